"""A right that ends while a request waits for a lock does nothing any more, also if SQL shows other rows meanwhile."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import time_machine
from django.contrib.auth.hashers import make_password
from django.contrib.sessions.models import Session
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from audit.consent import Person as Reader
from config.at_once import session_of_form
from config.sessions import SessionStore
from memory.access import tenants
from memory.access.authentication import either_key, new_request, prefix_of, request_key
from memory.access.roles import Action, locked_for, request_rights, roles_in, tenant_ids
from memory.accounts import invitations, memberships, people
from memory.agents import lifecycle
from memory.consent import granted_reads, requests
from memory.errors import AuthorityBroken, InvalidLink, KeyRejected, NotAllowed, NotFound, NotGranted
from memory.models import Agent, Invitation, Membership, Person, Role, Tenant, TenantKey
from refinement.notices import webhooks
from tests.admin.actions import confirm
from tests.admin.conftest import enrolled, sign_in
from tests.admin.reading import granted
from tests.members import join
from tests.second_factors import enrol
from tests.steps import PERSON, fresh, remember, wait_for_a_lock
from tests.unit.test_signed_roles import owner_of_acme, tenant_of_ada  # noqa: F401  fixtures

pytestmark = pytest.mark.database
PASSWORD = "another good passphrase"


def superuser(name: str) -> Person:
    return Person.objects.create_user(f"{name}@service.test", is_superuser=True)


@contextmanager
def form_of(person: Person) -> Iterator[SessionStore]:
    """A form of a signed-in person, as in the admin."""
    session = SessionStore()
    session.save()
    token, mine = request_rights.set((person, tenant_ids(person))), session_of_form.set((person.pk, session.row_key))
    try:
        yield session
    finally:
        session_of_form.reset(mine)
        request_rights.reset(token)


def late(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, act: Callable[[], object]) -> None:
    """Do something else just before the module's function is called for the first time."""
    original = getattr(module, name)

    def other(*call: Any, **more: Any) -> Any:
        monkeypatch.setattr(module, name, original)
        act()
        return original(*call, **more)

    monkeypatch.setattr(module, name, other)


def test_a_tenant_key_is_not_revoked_in_another_tenant(
    acme: Tenant, bob: Agent, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was "revoked", and the key went on."""
    key = tenants.issue_key("acme")
    rows, names = TenantKey.objects.all(), {acme.pk: "acme", bob.tenant_id: "globex"}

    def name(own: dict[int, str], tenant: int) -> None:
        for pk in own:
            Tenant.objects.filter(pk=pk).update(slug=f"x{pk}")
        for pk, slug in own.items():
            Tenant.objects.filter(pk=pk).update(slug=slug)
        rows.update(tenant=tenant)

    name(dict(zip(names, reversed(names.values()), strict=True)), bob.tenant_id)
    late(monkeypatch, tenants, "set_live", lambda: name(names, acme.pk))
    with pytest.raises(NotFound), transaction.atomic():
        tenants.revoke_key("acme", prefix_of(key))
    name(names, acme.pk)
    assert prefix_of(key) == either_key(key).prefix, "the command failed, and the key is still valid"


@pytest.mark.parametrize("what", ["key", "invitation"])
def test_what_sql_marks_as_ended_for_a_moment_is_not_reported_as_ended(acme: Tenant, ann: Person, what: str) -> None:
    boss, now = superuser("boss"), timezone.now()
    key, _ = tenants.issue_key("acme"), invitations.invite(acme, "new@acme.test", Role.OWNER, ann)
    TenantKey.objects.update(revoked_at=now)
    Invitation.objects.update(used_at=now)
    Tenant.objects.filter(pk=acme.pk).update(live_prefixes="")
    end: Callable[[], object] = partial(tenants.revoke_key, "acme", prefix_of(key))
    if what == "invitation":
        end = partial(invitations.withdraw, Invitation.objects.get(), boss)
    with pytest.raises(NotAllowed, match="was changed"):
        end()


def test_an_invitation_that_sql_hides_while_it_is_replaced_does_not_count(
    acme: Tenant, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = invitations.invite(acme, "lee@acme.test", Role.OWNER, ann)
    first = Invitation.objects.filter(pk=Invitation.objects.get().pk)
    first.update(address="aside@acme.test")
    late(monkeypatch, invitations, "set_live", lambda: first.update(address="lee@acme.test"))
    invitations.invite(acme, "lee@acme.test", Role.AUDITOR, ann)
    with pytest.raises(InvalidLink):
        invitations.look(token)


def test_who_is_removed_while_their_second_factor_is_signed_stays_removed(
    acme: Tenant, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve = Person.objects.create_user("eve@acme.test")
    join(eve, acme, Role.OWNER)
    late(monkeypatch, memberships, "lock", lambda: memberships.set_role(acme.pk, eve.pk, None))
    memberships.sign_again(eve.pk)
    assert roles_in(Tenant.objects.get(pk=acme.pk)) == {ann.pk: Role.OWNER}
    assert not Membership.objects.filter(person=eve).exists()


@pytest.mark.parametrize("end", ["password", "second factor", "sign-out"])
def test_a_form_of_an_ended_session_changes_nobody(acme: Tenant, ann: Person, end: str) -> None:
    boss, friend = superuser("boss"), Person.objects.create_user("friend@acme.test", is_active=False)
    enrol(boss)
    token = invitations.invite(acme, boss.email, Role.OWNER, ann)
    by = Person.objects.get(pk=boss.pk)
    with form_of(by) as session:
        if end == "password":
            people.set_password(boss, PASSWORD)
        elif end == "second factor":
            enrol(boss)
        else:
            session.delete()
        for act in (lambda: people.set_active(friend, by, is_active=True), lambda: invitations.accept(token, by)):
            with pytest.raises(NotAllowed, match="has changed"):
                act()
        with pytest.raises(NotAllowed, match="has changed"):
            tenants.issue_key("acme")
    assert not Person.objects.get(pk=friend.pk).is_active
    assert roles_in(acme) == {ann.pk: Role.OWNER}


def test_an_invitation_of_a_person_who_is_deactivated_meanwhile_gives_no_role(
    acme: Tenant, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss, lee = superuser("boss"), Person.objects.create_user("lee@acme.test")
    enrol(lee)
    token = invitations.invite(acme, lee.email, Role.OWNER, boss)
    late(monkeypatch, invitations, "lock", lambda: people.set_active(boss, superuser("other"), is_active=False))
    with pytest.raises(InvalidLink, match="no longer invite"):
        invitations.accept(token, lee)
    assert roles_in(acme) == {ann.pk: Role.OWNER}


def test_a_right_that_ends_while_paths_are_compared_changes_nothing(
    ada: Agent, ann: Person, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    settings.VAULT_ROOTS = [str(tmp_path)]
    late(monkeypatch, lifecycle, "advisory_lock", lambda: people.set_password(Person.objects.get(pk=ann.pk), PASSWORD))
    by = Person.objects.get(pk=ann.pk)
    with form_of(by), pytest.raises(NotAllowed, match="nothing was done"):
        lifecycle.change(ada, PERSON, vault_path=str(tmp_path / "vault"))


def test_who_left_a_tenant_reads_nothing_with_a_grant_that_began_meanwhile(acme: Tenant, ada: Agent) -> None:
    eve = Person.objects.create_user("eve@acme.test")
    join(eve, acme, Role.AUDITOR)
    remember(ada, "tea")
    number = granted(ada, eve)
    reader = Reader(eve.pk, eve.email)
    assert [read.opened.content for read in granted_reads.memories(fresh(ada), number, reader, [1])] == ["tea"]
    memberships.set_role(acme.pk, eve.pk, None)
    with pytest.raises(NotGranted):
        granted_reads.memories(fresh(ada), number, reader, [1])


def test_a_sign_in_with_a_former_password_does_not_bring_it_back(db: None) -> None:
    """Django replaces an old hash when its password is checked."""
    former, ann = "a good long passphrase", Person.objects.create_user("ann@acme.test")
    Person.objects.filter(pk=ann.pk).update(password=make_password(former, hasher="pbkdf2_sha1"))
    stale = Person.objects.get(pk=ann.pk)
    people.set_password(Person.objects.get(pk=ann.pk), PASSWORD)
    assert stale.check_password(former)
    assert Person.objects.get(pk=ann.pk).check_password(PASSWORD)
    Person.objects.filter(pk=ann.pk).update(password=make_password(former, hasher="pbkdf2_sha1"))
    assert Person.objects.get(pk=ann.pk).check_password(former)
    assert Person.objects.get(pk=ann.pk).password.startswith("pbkdf2_sha256")


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_the_account_and_the_session_of_a_form_do_not_end_before_it(acme: Tenant) -> None:
    """A form waited for the row of a webhook. Meanwhile its person signed out. Then it changed the webhook."""
    boss = superuser("boss")

    def is_locked(row: Any) -> bool:
        with closing(connection), transaction.atomic():
            try:
                type(row)._default_manager.select_for_update(nowait=True).get(pk=row.pk)
            except OperationalError:
                return True
        return False

    with form_of(boss) as session, locked_for(Action.STAFF, acme.pk, boss), ThreadPoolExecutor(1) as pool:
        rows = acme, boss, Session.objects.get(session_key=session.row_key)
        assert [*pool.map(is_locked, rows)] == [True] * 3


@pytest.mark.parametrize("end", ["removal", "sign-out", "password", "deactivation"])
def test_a_right_that_ends_during_an_edit_changes_nothing(
    ada: Agent, acme: Tenant, ann: Person, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The entry waited for SQL that held its number. A suspension was lifted."""
    lifecycle.suspend_keys(ada, PERSON)
    rows = Person.objects.filter(pk=ann.pk)
    with form_of(ann) as session:
        ends: dict[str, Callable[[], object]] = {
            "removal": lambda: memberships.set_role(acme.pk, ann.pk, None),
            "sign-out": session.delete,
            "password": lambda: rows.update(password=make_password(PASSWORD)),
            "deactivation": lambda: rows.update(is_active=False),
        }
        late(monkeypatch, lifecycle, "change", ends[end])
        with pytest.raises(NotAllowed, match="nothing was done"):
            lifecycle.lift_suspension(fresh(ada), PERSON)
    assert fresh(ada).keys_lifted_at is None


def test_a_tenant_key_that_ends_during_an_edit_changes_nothing(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tenants.issue_key("acme")
    late(monkeypatch, lifecycle, "_clean", lambda: tenants.revoke_key("acme", prefix_of(key)))
    with new_request():
        request_key.set(either_key(key))
        with pytest.raises(KeyRejected):
            lifecycle.suspend_keys(fresh(ada), PERSON)
    assert not fresh(ada).keys_suspended


def test_a_grant_that_expires_while_its_read_is_recorded_gives_nothing(
    ada: Agent, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(ada, "tea")
    reader = Person.objects.create_user("reader@acme.test")
    join(person=reader, tenant=acme, role=Role.AUDITOR)
    number = granted(ada, reader, seconds=3_600)
    with time_machine.travel(timezone.now()) as clock:
        late(monkeypatch, granted_reads, "_record", lambda: clock.shift(3_601))
        with pytest.raises(NotGranted):
            granted_reads.memories(fresh(ada), number, Reader(reader.pk, reader.email), [1])


def test_nobody_is_removed_while_sql_hides_an_agent_whose_grant_must_end(
    acme: Tenant, ada: Agent, bob: Agent, ann: Person
) -> None:
    """The grant went on, also for a command that was reading."""
    reader = Person.objects.create_user("reader@acme.test")
    member = join(person=reader, tenant=acme, role=Role.AUDITOR)
    number = granted(ada, reader)
    Agent.objects.filter(pk=ada.pk).update(tenant=bob.tenant_id)
    with pytest.raises(AuthorityBroken):
        memberships.remove(member, ann)
    Agent.objects.filter(pk=ada.pk).update(tenant=acme)
    memberships.remove(member, ann)
    assert requests.find(fresh(ada), number).state == "revoked"


@pytest.mark.parametrize("form", ["reactivate", "accept", "add a tenant"])
def test_a_form_of_a_session_that_ends_meanwhile_does_nothing(
    acme: Tenant, ann: Person, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """These pages did not note the session of the form."""
    boss, client = enrolled("boss@service.test", is_superuser=True), Client()
    eve = Person.objects.create_user("eve@service.test", is_active=False)
    token = invitations.invite(acme, boss.email, Role.OWNER, ann)
    assert sign_in(client, boss).status_code == 302
    forms: dict[str, tuple[Any, str, Callable[[], object]]] = {
        "reactivate": (people, "set_active", lambda: confirm(client, "reactivate", eve)),
        "accept": (invitations, "accept", lambda: client.post(reverse("join", args=[token]))),
        "add a tenant": (
            tenants,
            "create",
            lambda: client.post(reverse("admin:memory_tenant_add_tenant"), {"slug": "new"}),
        ),
    }
    module, name, send = forms[form]
    late(monkeypatch, module, name, Session.objects.all().delete)
    send()
    assert not Person.objects.get(pk=eve.pk).is_active
    assert not Membership.objects.filter(person=boss).exists()
    assert not Tenant.objects.filter(slug="new").exists()


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_who_is_deactivated_while_their_form_waits_for_a_member_signs_nothing(acme: Tenant, ann: Person) -> None:
    first = superuser("first")
    boss = superuser("boss")
    is_held, may_go = Event(), Event()

    def hold() -> None:
        with closing(connection), transaction.atomic():
            Person.objects.select_for_update().get(pk=ann.pk)
            is_held.set()
            may_go.wait(20)

    def ask() -> str:
        with closing(connection), form_of(boss):
            return tenants.issue_key("acme")

    with ThreadPoolExecutor(2) as pool:
        holding = pool.submit(hold)
        assert is_held.wait(20)
        asked = pool.submit(ask)
        wait_for_a_lock()
        people.set_active(boss, first, is_active=False)
        may_go.set()
        holding.result()
        with pytest.raises(NotAllowed, match="nothing was done"):
            asked.result()
    assert not TenantKey.objects.exists()


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_form_and_a_new_second_factor_at_once_are_no_deadlock(acme: Tenant, ann: Person) -> None:
    is_held, may_go = Event(), Event()

    def form() -> None:
        with closing(connection), locked_for(Action.STAFF, acme.pk, ann):
            is_held.set()
            may_go.wait(20)
            webhooks.configure(acme, "https://good.example/")

    def replace() -> None:
        with closing(connection):
            enrol(ann)

    with ThreadPoolExecutor(2) as pool:
        sent = pool.submit(form)
        assert is_held.wait(20)
        replaced = pool.submit(replace)
        wait_for_a_lock()
        may_go.set()
        sent.result()
        replaced.result()
    assert webhooks.of(acme).url


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("work", ["first key", "second factor"])
def test_tenants_are_locked_before_people_and_agents(acme: Tenant, ada: Agent, bob: Agent, work: str) -> None:
    """In another order, requests for first keys made each removal or deactivation of a person fail."""
    pat = Person.objects.create_user("pat@acme.test")
    for tenant in (acme, bob.tenant):
        join(pat, tenant, Role.OWNER)

    def wait() -> None:
        with closing(connection), transaction.atomic():
            if work == "first key":
                lifecycle.first_key(bob, PERSON)
            else:
                memberships.lock_tenants(pat.pk)

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Tenant.objects.select_for_update(no_key=True).get(pk=bob.tenant_id)
            waiting = pool.submit(wait)
            wait_for_a_lock()
            for model, row in ((Agent, bob.pk), (Person, pat.pk)):
                assert model._default_manager.select_for_update(nowait=True).get(pk=row)
        waiting.result()
