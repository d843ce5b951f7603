"""Roles that SQL inserted, changed or put back give nobody anything, and `verify_audit` names them."""

from typing import Any
from unittest import mock

import pytest
from django.db.models.signals import post_init
from django.utils import timezone

from audit import guards
from config.keyfiles import new_key, read_key_file
from memory.access import roles, tenants
from memory.access.authentication import agent_named, either_key
from memory.access.roles import Action, live_fingerprints, manages, may, tenant_ids
from memory.accounts import invitations, memberships, people
from memory.agents import lifecycle
from memory.errors import Invalid, InvalidLink, KeyRejected, NotAllowed, NotFound
from memory.models import Agent, Invitation, Membership, Person, Role, Tenant, TenantKey
from tests.commands.calling import failed, run
from tests.conftest import OPERATOR
from tests.members import join
from tests.second_factors import enrol
from tests.tampering import sql, undone

pytestmark = pytest.mark.database


@pytest.fixture(name="acme")
def tenant_of_ada(ada: Agent) -> Tenant:
    return ada.tenant


@pytest.fixture(name="ann")
def owner_of_acme(acme: Tenant) -> Person:
    """The owner of acme."""
    person = Person.objects.create_user("ann@acme.test")
    join(person, acme, Role.OWNER)
    return person


@pytest.fixture
def eve(ann: Person, bob: Agent) -> Person:
    """The attacker: the owner of another tenant."""
    person = Person.objects.create_user("eve@globex.test")
    join(person, bob.tenant, Role.OWNER)
    return person


def allowed(person: Person, tenant: Tenant) -> set[Action]:
    """What the person may do in the tenant. `may` and `tenant_ids` must agree."""
    row = Person.objects.get(pk=person.pk)
    ids = tenant_ids(row)
    found = {action for action in Action if may(row, action, tenant)}
    assert found == {action for action in Action if tenant.pk in ids[action]}
    return found


@pytest.mark.sqlite
def test_nothing_is_signed_while_a_foreign_trigger_can_change_it(acme: Tenant, ann: Person, eve: Person) -> None:
    join(eve, acme, Role.ADMIN)
    row, change = Membership.objects.get(person=eve, tenant=acme), "UPDATE memory_person SET joined_at = '2001-01-01'"
    sql(f"CREATE TRIGGER x BEFORE DELETE ON memory_membership BEGIN {change} WHERE id = {ann.pk}; END")
    with pytest.raises(NotAllowed, match="verify_audit"):
        memberships.remove(row, ann)
    with mock.patch.object(guards, "unexpected", list):
        memberships.remove(row, ann)
    Person.objects.filter(pk=ann.pk).update(joined_at=ann.joined_at)
    assert Action.STAFF in allowed(ann, acme)


@pytest.mark.postgresql
def test_a_name_that_only_the_database_finds_equal_is_refused(acme: Tenant, ann: Person) -> None:
    sql("SET CONSTRAINTS ALL IMMEDIATE")
    sql("CREATE COLLATION x (provider = icu, locale = 'und-u-ka-shifted-ks-level1', deterministic = false)")
    sql("ALTER TABLE memory_person DROP CONSTRAINT person_email_lower_case")
    for table, column in (("memory_tenant", "slug"), ("memory_person", "email")):
        like = f"SELECT indexname FROM pg_indexes WHERE tablename = '{table}' AND indexname LIKE '%like'"
        sql(f"DO $$ DECLARE i text; BEGIN FOR i IN {like} LOOP EXECUTE 'DROP INDEX ' || i; END LOOP; END $$")
        sql(f"ALTER TABLE {table} ALTER {column} TYPE varchar(254) COLLATE x")
    assert Tenant.objects.filter(slug="ac-me").exists()
    for refused in (lambda: tenants.issue_key("ac-me"), lambda: agent_named("ac-me/ada")):
        with pytest.raises(NotFound):
            refused()
    with pytest.raises(NotFound):
        lifecycle.create("ac-me", "eve", model="builtin/dedupe", actor=OPERATOR)
    failed(run("create_superuser", "an-n@acme.test"), 1, "another address")


def named() -> list[str]:
    """The problems that `verify_audit` reports."""
    ran = run("verify_audit", "--all", "--json")
    assert ran.code == (1 if ran.json["problems"] else 0)
    return [f"{each['agent']} {each['problem']}" for each in ran.json["problems"]]


COPY = "INSERT INTO memory_membership (person_id, tenant_id, role, mac)"
ATTACKS: dict[str, str] = {
    "inserted": f"{COPY} VALUES ({{eve}}, {{acme}}, 'owner', '')",
    "copied": f"{COPY} SELECT {{eve}}, tenant_id, role, mac FROM memory_membership WHERE person_id = {{ann}}",
    "moved to another tenant": "UPDATE memory_membership SET tenant_id = {acme} WHERE person_id = {eve}",
    "moved to another person": "UPDATE memory_membership SET person_id = {eve} WHERE person_id = {ann}",
    "changed": "UPDATE memory_membership SET role = 'owner' WHERE person_id = {eve}",
    "a superuser": "UPDATE memory_person SET is_superuser = true WHERE id = {eve}",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_role_inserted_or_moved_by_sql_gives_nothing_and_is_named(
    attack: str, acme: Tenant, ann: Person, eve: Person
) -> None:
    assert named() == []
    if attack == "moved to another person":
        Membership.objects.filter(person=eve).delete()  # it may have one row in a tenant only
    if attack == "changed":
        join(eve, acme, Role.AUDITOR)
        assert allowed(eve, acme) == {Action.SEE, Action.ASK}
    sql(ATTACKS[attack].format(eve=eve.pk, ann=ann.pk, acme=acme.pk))
    assert allowed(eve, acme) == set()
    assert not manages(Person.objects.get(pk=eve.pk))
    assert any(f"person {eve.pk}" in problem for problem in named())
    if attack in ("inserted", "copied"):
        assert Action.STAFF in allowed(ann, acme), "a forged row takes nothing from others"


def test_a_removed_membership_cannot_be_put_back_alone(acme: Tenant, ann: Person, eve: Person) -> None:
    old = join(eve, acme, Role.OWNER)
    before = Tenant.objects.get(pk=acme.pk)
    memberships.set_role(acme.pk, eve.pk, None)
    join(Person.objects.create_user("lee@acme.test"), acme, Role.ADMIN)
    with undone():  # the row alone: the others keep their roles
        old.save(force_insert=True)
        assert (allowed(eve, acme), Action.STAFF in allowed(ann, acme)) == (set(), True)
        assert any(f"person {eve.pk}" in problem for problem in named())
    with undone():  # with the tenant's row, but not with all memberships of that time
        old.save(force_insert=True)
        before.save()
        assert allowed(eve, acme) == set()
        assert any("acme a membership was changed" in problem for problem in named())


@pytest.mark.parametrize("is_replaced", [False, True])
def test_an_invitation_that_sql_marked_as_used_is_ended(acme: Tenant, ann: Person, is_replaced: bool) -> None:
    token = invitations.invite(acme, "lee@acme.test", Role.OWNER, ann)
    hidden = Invitation.objects.filter(pk=Invitation.objects.get().pk)
    hidden.update(used_at=timezone.now())
    if is_replaced:
        invitations.invite(acme, "lee@acme.test", Role.ADMIN, ann)
    else:
        invitations.withdraw(hidden.get(), ann)
    hidden.update(used_at=None)
    with pytest.raises(InvalidLink):
        invitations.look(token)


def test_a_role_is_changed_only_for_the_person_that_was_shown(acme: Tenant, ann: Person, eve: Person) -> None:
    shown = Membership.objects.get(person=ann, tenant=acme)
    shown.person = eve  # SQL has exchanged the numbers of two memberships since then
    with pytest.raises(NotFound):
        memberships.change_role(shown, Role.ADMIN, Person.objects.create_user("root@s.test", is_superuser=True))


def test_a_tenant_key_or_invitation_cannot_be_put_back(acme: Tenant, ann: Person) -> None:
    key, token = tenants.issue_key("acme"), invitations.invite(acme, "lee@acme.test", Role.ADMIN, ann)
    prefix, invitation = key.split("_")[1], Invitation.objects.get()
    old = TenantKey.objects.get(prefix=prefix)
    before = Tenant.objects.get(pk=acme.pk)
    assert (either_key(key), invitations.look(token).role, named()) == (old, Role.ADMIN, [])
    tenants.revoke_key("acme", prefix)
    invitations.withdraw(invitation, ann)
    for is_with_tenant in (False, True):
        with undone():
            old.save()
            invitation.save(force_insert=True)
            if is_with_tenant:  # the list of that time, with a membership that is newer
                join(Person.objects.create_user("max@acme.test"), acme, Role.ADMIN)
                before.save()
            with pytest.raises(KeyRejected):
                either_key(key)
            with pytest.raises(InvalidLink):
                invitations.look(token)
            found = ("tenant key", "invitation") if not is_with_tenant else ("a membership",)
            assert all(any(what in problem for problem in named()) for what in found)


def test_a_membership_removed_by_sql_is_named_and_a_superuser_repairs_the_tenant(
    acme: Tenant, ann: Person, eve: Person
) -> None:
    """Until then no membership of the tenant counts. Each role must be set again, so none is confirmed unseen."""
    root = Person.objects.create_user("root@service.test", is_superuser=True)
    join(eve, acme, Role.AUDITOR)
    join(Person.objects.create_user("lee@acme.test"), acme, Role.ADMIN)
    Membership.objects.filter(person__email="lee@acme.test").delete()
    assert (allowed(eve, acme), allowed(ann, acme)) == (set(), set())
    assert any("acme a membership was changed" in problem for problem in named())
    row = Membership.objects.get(person=ann)
    memberships.change_role(row, Role.OWNER, root)
    assert (allowed(eve, acme), Action.STAFF in allowed(ann, acme)) == (set(), True)
    memberships.remove(Membership.objects.get(person=eve, tenant=acme), ann)
    assert named() == []


def test_a_person_reactivated_or_renamed_by_sql_may_do_nothing(acme: Tenant, ann: Person) -> None:
    root = Person.objects.create_user("root@service.test", is_superuser=True)
    for values in ({"email": "boss@acme.test"}, {"generation": 7}):
        with undone():
            Person.objects.filter(pk=ann.pk).update(**values)
            assert allowed(ann, acme) == set()
            assert any(f"person {ann.pk}" in problem for problem in named())
    people.set_active(ann, root, is_active=False)
    Person.objects.filter(pk=ann.pk).update(is_active=True)
    assert allowed(ann, acme) == set()
    people.set_active(ann, root, is_active=True)
    assert Action.STAFF in allowed(ann, acme)


def test_a_forged_superuser_deactivates_nobody_and_does_not_become_one(ann: Person, eve: Person) -> None:
    root = Person.objects.create_user("root@service.test", is_superuser=True)
    Person.objects.filter(pk=eve.pk).update(is_superuser=True)
    with pytest.raises(NotAllowed):
        people.set_active(root, Person.objects.get(pk=eve.pk), is_active=False)
    people.set_active(eve, root, is_active=False)
    people.set_active(eve, root, is_active=True)
    row = Person.objects.get(pk=eve.pk)
    assert (row.is_proven(), row.is_superuser) == (True, False)


WRONG = [
    *(
        f"memory_membership SET {value}"
        for value in ("mac = 'x'", "mac = 7", "role = x'ff'", "role = CAST(x'ff' AS TEXT)")
    ),
    *(f"memory_tenant SET {value}" for value in ("members_mac = 'x'", "members_seq = 'x'", "live_prefixes = 7")),
    *(f"memory_person SET {value}" for value in ("mac = 7", "generation = 'x'")),
]


@pytest.mark.sqlite
def test_a_value_of_a_wrong_type_gives_nothing_and_is_named(acme: Tenant, ann: Person) -> None:
    sql("PRAGMA ignore_check_constraints = 1")
    for change in WRONG:
        with undone():
            sql(f"UPDATE {change}")
            assert (allowed(ann, acme), named() != []) == (set(), True), change
    sql("PRAGMA ignore_check_constraints = 0")


def test_a_tenant_without_members_stays_open_after_a_change_of_the_pepper(acme: Tenant, settings: Any) -> None:
    newest, old = new_key(), read_key_file(settings.KEYS_DIR, "pepper")
    alone = tenants.create("alone")
    settings.PEPPER_KEY = f"{newest},{old}"
    assert run("rotate_pepper").code == 0
    settings.PEPPER_KEY = newest
    assert tenants.issue_key("alone")
    Tenant.objects.filter(pk=alone.pk).update(members_seq=0)
    assert run("rotate_pepper").code == 1
    assert "alone was changed outside the service" in run("rotate_pepper").err
    eve = Person.objects.create_user("eve@acme.test")
    Person.objects.filter(pk=eve.pk).update(is_superuser=True)
    assert f"person {eve.pk} was changed outside the service" in run("rotate_pepper").err


def test_a_newer_pepper_signs_and_an_older_one_verifies(acme: Tenant, ann: Person, settings: Any) -> None:
    newest, old = new_key(), read_key_file(settings.KEYS_DIR, "pepper")
    for pepper, is_valid in ((f"{newest},{old}", True), (newest, False), (f"{newest},{old}", True)):
        settings.PEPPER_KEY = pepper
        assert ((Action.STAFF in allowed(ann, acme)), named() == []) == (is_valid, is_valid)
    enrol(ann)
    settings.PEPPER_KEY = newest
    assert Action.STAFF in allowed(ann, acme)


def test_a_key_counts_while_another_process_changes_the_list(acme: Tenant, ann: Person) -> None:
    key = tenants.issue_key("acme")
    stale = Tenant.objects.get(pk=acme.pk)
    join(Person.objects.create_user("pat@acme.test"), acme, Role.AUDITOR)
    assert live_fingerprints(stale) == [either_key(key).fingerprint]


def test_a_key_or_invitation_that_sql_changes_or_removes_is_named(acme: Tenant, ann: Person) -> None:
    tenants.issue_key("acme")
    invitations.invite(acme, "lee@acme.test", Role.ADMIN, ann)
    for kind in (TenantKey, Invitation):
        shown = {"label": "other"} if kind is TenantKey else {"role": Role.OWNER}
        for values in ({"mac": bytes(32)}, shown, None):
            with undone():
                kind.objects.all().delete() if values is None else kind.objects.update(**values)
                assert named() != [], (kind, values)


def test_an_invitation_whose_address_sql_hides_while_it_is_replaced_is_ended(acme: Tenant, ann: Person) -> None:
    token = invitations.invite(acme, "lee@acme.test", Role.OWNER, ann)
    first = Invitation.objects.filter(pk=Invitation.objects.get().pk)
    first.update(address="aside@acme.test")
    invitations.invite(acme, "lee@acme.test", Role.AUDITOR, ann)
    first.update(address="lee@acme.test")
    with pytest.raises(InvalidLink):
        invitations.look(token)
    assert named() != []


def test_an_invitation_that_sql_moves_until_another_tenant_is_locked_is_invalid(
    acme: Tenant, ann: Person, eve: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender was removed while somebody joined, because their tenant was not locked."""
    enrol(eve)
    eve.refresh_from_db()
    token = invitations.invite(acme, "eve@globex.test", Role.OWNER, ann)
    other, lock = tenants.create("other"), invitations.lock
    moved = Invitation.objects.all()
    moved.update(tenant=other)

    def locked(*ids: int) -> None:
        lock(*ids)
        moved.update(tenant=acme)

    monkeypatch.setattr(invitations, "lock", locked)
    with pytest.raises(InvalidLink, match="not valid"):
        invitations.accept(token, eve)
    assert eve.pk not in roles.roles_in(acme)
    moved.update(tenant=acme)
    assert invitations.accept(token, eve).tenant == acme


def test_nothing_is_signed_for_a_person_whom_sql_changed(acme: Tenant, ann: Person, eve: Person) -> None:
    join(eve, acme, Role.ADMIN)
    Person.objects.filter(pk=eve.pk).update(email="other@globex.test")
    with pytest.raises(NotAllowed, match=f"Person {eve.pk} was changed"):
        tenants.issue_key("acme")


def test_a_key_whose_prefix_sql_changes_while_it_is_revoked_stays_revoked(acme: Tenant, ann: Person) -> None:
    key = tenants.issue_key("acme")
    row = TenantKey.objects.get()
    TenantKey.objects.filter(pk=row.pk).update(prefix="aaaaaaaaaaaa")
    tenants.revoke_key("acme", "aaaaaaaaaaaa")
    TenantKey.objects.filter(pk=row.pk).update(prefix=row.prefix, revoked_at=None)
    with pytest.raises(KeyRejected):
        either_key(key)


def test_a_tenant_has_few_keys_and_invitations_and_ended_ones_are_not_read(
    acme: Tenant, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles, "MOST_LIVE", 2, raising=False)
    for _ in range(6):
        tenants.issue_key("acme")
        tenants.revoke_key("acme", TenantKey.objects.latest("pk").prefix)
    read: list[Any] = []
    note = lambda **_: read.append(1)  # noqa: E731
    post_init.connect(note, sender=TenantKey)
    tenants.issue_key("acme")
    post_init.disconnect(note, sender=TenantKey)
    assert len(read) == 2, "the new row, before and after it is stored"
    tenants.issue_key("acme")
    with pytest.raises(Invalid):
        tenants.issue_key("acme")
    tenants.revoke_key("acme", TenantKey.objects.latest("pk").prefix)
    tenants.issue_key("acme")
    for name in ("a", "b", "a"):
        invitations.invite(acme, f"{name}@acme.test", Role.ADMIN, ann)
    with pytest.raises(Invalid):
        invitations.invite(acme, "c@acme.test", Role.ADMIN, ann)
    assert Invitation.objects.count() == 2


def test_a_tenant_has_a_limited_number_of_members(acme: Tenant, ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 15,000 members, each invitation and new key locked SQLite for one to two seconds."""
    monkeypatch.setattr(memberships, "MOST", len(roles.roles_in(acme)))
    other = Person.objects.create_user("one-more@acme.test")
    with pytest.raises(NotAllowed, match="at most"):
        memberships.set_role(acme.pk, other.pk, Role.ADMIN)
    memberships.set_role(acme.pk, ann.pk, Role.ADMIN)
    assert (other.pk in roles.roles_in(acme), roles.roles_in(acme)[ann.pk]) == (False, Role.ADMIN)
