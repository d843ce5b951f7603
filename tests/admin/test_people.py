"""People and their parts: an owner's for their tenant, a superuser's for all, and nobody else's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db.models import Q
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from audit.consent import Person as Asker
from audit.consent import Scope
from audit.models import AccessRequest, AccessState
from audit.trail import Actor
from memory.accounts import memberships, people
from memory.consent import grants
from memory.errors import LastOwner, NotAllowed, NotFound
from memory.models import Agent, Invitation, Membership, Person, Role, Tenant
from refinement import session as sessions
from refinement.llm.base import Usage
from tests import refining
from tests.admin.acting import confirm, post, said
from tests.admin.conftest import PASSWORD, Enter, code, enrolled, sign_in
from tests.conftest import House
from tests.steps import fresh

SignedIn = Callable[[Person], Client]
Staff = dict[str, Person]
PURPOSE = "To find out why it greets people twice"


@pytest.fixture
def theirs(house: House) -> Membership:
    """A part in the other tenant."""
    outsider = Person.objects.create_user("bob@globex.test")
    return Membership.objects.create(person=outsider, tenant=house.bob.tenant, role=Role.OWNER)


def acme() -> Tenant:
    return Tenant.objects.get(slug="acme")


def part_of(person: Person) -> Membership:
    return Membership.objects.get(person=person)


def page(part: Membership) -> str:
    return reverse("admin:memory_membership_change_role", args=[part.pk])


def granted(agent: Agent, person: Person) -> AccessRequest:
    asked = grants.ask(fresh(agent), Asker(person.pk, person.email), purpose=PURPOSE, scope=Scope("silo"))
    grants.approve(fresh(agent), asked.number, Actor.agent())
    return AccessRequest.objects.get(agent_id=agent.pk, number=asked.number)


def test_who_may_set_up_people(staff: Staff, enter: Enter) -> None:
    """Roles here; removing a part is in tests/admin/test_deeds.py."""
    part = part_of(Membership.objects.create(person=enrolled("lee@acme.test"), tenant=acme(), role="auditor").person)
    for role, may in (("admin", False), ("auditor", False), ("stranger", False), ("owner", True), ("superuser", True)):
        client, wanted = enter(role), "owner" if role != "superuser" else "admin"
        assert client.get("/admin/memory/membership/").status_code == (200 if may else 403), role
        assert client.get(page(part)).status_code == (200 if may else 404), role
        assert client.post(page(part), {"role": wanted}).status_code == (302 if may else 404), role
        assert part_of(part.person).role == (wanted if may else part.role), role


def test_another_tenants_part_is_as_one_that_is_not_there(theirs: Membership, enter: Enter) -> None:
    for role in ("owner", "admin", "auditor", "stranger"):
        client = enter(role)
        for pk in (theirs.pk, 99_999_999, "x", 10**30):
            address = reverse("admin:memory_membership_change_role", args=[pk])
            assert client.get(address).status_code == 404
            assert client.post(address, {"role": "auditor"}).status_code == 404
            assert confirm(client, "remove", Membership(pk=pk), from_row="1").status_code == (
                404 if role == "owner" else 403
            )
        assert "bob@globex" not in client.get("/admin/memory/membership/").content.decode()
    assert part_of(theirs.person).role == Role.OWNER


def test_opening_a_page_changes_nothing(staff: Staff, enter: Enter) -> None:
    client, before = enter("superuser"), list(Membership.objects.order_by("pk").values())
    assert client.get(page(part_of(staff["admin"])), {"role": "owner", "post": "yes"}).status_code == 200
    assert post(client, "remove", part_of(staff["admin"]), from_row="1").status_code == 200
    for name in ("deactivate", "reactivate"):
        assert post(client, name, staff["admin"], from_row="1").status_code == 200
    assert list(Membership.objects.order_by("pk").values()) == before
    assert Person.objects.get(pk=staff["admin"].pk).is_active


def test_nobody_changes_their_own_role_or_deactivates_themselves(staff: Staff, enter: Enter) -> None:
    Membership.objects.create(person=enrolled("second@acme.test"), tenant=acme(), role="owner")
    client, part = enter("owner"), part_of(staff["owner"])
    assert "You cannot change your own role" in client.post(page(part), {"role": "admin"}).content.decode()
    assert part_of(staff["owner"]).role == Role.OWNER
    left = confirm(client, "remove", part, from_row="1")
    assert left.headers["Location"] == "/admin/", "but leaves, while there is another owner"
    assert client.get("/admin/memory/membership/").status_code == 403
    root = enter("superuser")
    assert "You cannot deactivate yourself" in said(confirm(root, "deactivate", staff["superuser"], from_row="1"))
    assert root.get("/admin/").status_code == 200


def test_who_removes_a_part_comes_back_to_the_list_if_it_is_still_theirs(staff: Staff, enter: Enter) -> None:
    Membership.objects.create(person=enrolled("second@acme.test"), tenant=acme(), role="owner")
    client, listed = enter("owner"), "/admin/memory/membership/"
    assert confirm(client, "remove", part_of(staff["auditor"]), from_row="1").headers["Location"] == listed
    for person, place in ((staff["admin"], f"{listed}?q=acme"), (staff["owner"], "/admin/")):
        form = {"action": "remove", "_selected_action": str(part_of(person).pk), "confirmed": "1"}
        assert client.post(f"{listed}?q=acme", form).headers["Location"] == place


def test_a_tenant_keeps_an_owner_unless_a_superuser_says_otherwise(staff: Staff, signed_in: SignedIn) -> None:
    part = part_of(staff["owner"])
    word = {"even_the_last_owner": "on"}
    assert "needs an owner" in said(confirm(signed_in(staff["owner"]), "remove", part, **word, from_row="1"))
    root = signed_in(enrolled("root2@service.test", is_superuser=True))
    assert "needs an owner" in said(confirm(root, "remove", part, from_row="1"))
    assert "needs an owner" in root.post(page(part), {"role": "admin"}).content.decode()
    assert part_of(staff["owner"]).role == Role.OWNER
    assert root.post(page(part), {"role": "admin"} | word).status_code == 302
    assert part_of(staff["owner"]).role == Role.ADMIN


def test_of_two_owners_who_remove_each_other_the_second_is_none(staff: Staff) -> None:
    left = Person.objects.create_user("left@acme.test", is_active=False)
    Membership.objects.create(person=left, tenant=acme(), role=Role.OWNER)
    with pytest.raises(LastOwner):  # an owner who cannot sign in is none
        memberships.remove(part_of(staff["owner"]), staff["owner"])
    other = Person.objects.create_user("second@acme.test")
    second = Membership.objects.create(person=other, tenant=acme(), role=Role.OWNER)
    first = part_of(staff["owner"])
    memberships.remove(second, staff["owner"])
    with pytest.raises(NotFound):
        memberships.remove(first, other)
    assert part_of(staff["owner"]).role == Role.OWNER


def test_who_leaves_a_tenant_reads_nothing_of_it(staff: Staff, house: House, theirs: Membership) -> None:
    auditor = staff["auditor"]
    Membership.objects.create(person=auditor, tenant=house.bob.tenant, role=Role.AUDITOR)
    here, there = granted(house.ada, auditor), granted(house.bob, auditor)
    assert people.ending_summary(Q(person_id=auditor.pk, tenant_id=here.tenant_id)).startswith(
        "Grants in force that will end: 1."
    )
    memberships.remove(Membership.objects.get(person=auditor, tenant=house.ada.tenant), staff["owner"])
    here.refresh_from_db()
    there.refresh_from_db()
    assert (here.state, there.state) == (AccessState.REVOKED, AccessState.ACTIVE)


def test_a_superuser_deactivates_and_reactivates(staff: Staff, house: House, enter: Enter) -> None:
    admin, root = enter("admin"), enter("superuser")
    grant = granted(house.ada, staff["admin"])
    assert (
        "Grants in force that will end: 1." in post(root, "deactivate", staff["admin"], from_row="1").content.decode()
    )
    assert confirm(root, "deactivate", staff["admin"], from_row="1").status_code == 302
    grant.refresh_from_db()
    assert grant.state == AccessState.REVOKED
    assert admin.get("/admin/").status_code == 302
    assert confirm(root, "reactivate", staff["admin"], from_row="1").status_code == 302
    assert admin.get("/admin/").status_code == 302, "a session that was ended stays ended"
    assert sign_in(Client(), staff["admin"], code=code(staff["admin"], 1)).status_code == 302


def test_superusers_alone_manage_people_and_tenants(staff: Staff, enter: Enter) -> None:
    for role in ("owner", "admin", "auditor", "stranger"):
        client = enter(role)
        for name in ("person", "tenant"):
            assert client.get(f"/admin/memory/{name}/").status_code == 403
        for name in ("deactivate", "reactivate"):
            assert confirm(client, name, staff["superuser"], from_row="1").status_code == 403
        assert (
            client.post(reverse("admin:memory_tenant_change_settings", args=[acme().pk]), {"name": "x"}).status_code
            == 404
        )
        assert client.post(reverse("admin:memory_tenant_add_tenant"), {"slug": "mine"}).status_code == 403
        with pytest.raises(NotAllowed):
            people.deactivate(staff["superuser"], staff[role])
    assert set(Tenant.objects.values_list("slug", "name")) == {("acme", ""), ("globex", "")}
    assert Person.objects.get(pk=staff["superuser"].pk).is_active


def test_nobody_is_made_a_superuser_by_a_page(staff: Staff, enter: Enter) -> None:
    client = enter("superuser")
    admin = staff["admin"]
    assert "create_superuser" in client.get(reverse("admin:memory_person_change", args=[admin.pk])).content.decode()
    forged = {"is_superuser": "on", "role": "auditor", "address": "new@acme.test", "tenant": part_of(admin).tenant_id}
    client.post(reverse("admin:memory_person_change", args=[admin.pk]), forged)
    confirm(client, "reactivate", admin, **forged, from_row="1")
    client.post(page(part_of(admin)), forged)
    assert list(Person.objects.filter(is_superuser=True)) == [staff["superuser"]]


def test_a_superuser_makes_and_names_tenants(enter: Enter) -> None:
    client, new = enter("superuser"), reverse("admin:memory_tenant_add_tenant")
    assert client.post(new, {"slug": "initech", "name": "Initech"}).status_code == 302
    assert "already exists" in client.post(new, {"slug": "initech"}).content.decode()
    made = Tenant.objects.get(slug="initech")
    settings = reverse("admin:memory_tenant_change_settings", args=[made.pk])
    assert client.post(settings, {"name": "Initech AG", "max_steps": "7", "slug": "other"}).status_code == 302
    made.refresh_from_db()
    assert (made.slug, made.name, made.max_steps, made.max_changes) == ("initech", "Initech AG", 7, None)


def test_a_tenants_slug_or_limit_that_is_none(enter: Enter) -> None:
    client, address = enter("superuser"), reverse("admin:memory_tenant_add_tenant")
    for slug in ("", "A", "a b", "-a", "a" * 65, "a\0b", "\ud800", "ä", "../a"):
        form = urlencode({"slug": slug, "name": "x"}, errors="surrogatepass")
        answer = client.post(address, form, content_type="application/x-www-form-urlencoded")
        assert answer.status_code == 200, slug
    assert Tenant.objects.count() == 2
    assert client.post(address, {"slug": "a\n"}).status_code == 302, "which is trimmed"
    for value in ("-1", "x", "9" * 5_000, str(2**31), "1.5", "\0", "١"):
        answer = client.post(reverse("admin:memory_tenant_change_settings", args=[acme().pk]), {"max_steps": value})
        assert (answer.status_code, acme().max_steps) in {(200, None), (302, 1)}, value


def test_what_workers_do_for_a_tenant_is_bounded_and_told(enter: Enter, house: House) -> None:
    session = sessions.open_session(house.ada, trigger="weekly")
    sessions.count_model_calls(session, Usage(prompt=1_200, completion=34), 1, 1)
    sessions.close(session, "completed")
    client = enter("superuser")
    address = reverse("admin:memory_tenant_change_settings", args=[acme().pk])
    assert client.post(address, {"sessions_at_once": "3", "month_tokens": "1000"}).status_code == 302
    assert (acme().sessions_at_once, acme().month_tokens) == (3, 1_000)
    shown = client.get(reverse("admin:memory_tenant_change", args=[acme().pk])).content.decode()
    assert "1,234, in ended sessions" in shown
    assert client.post(address, {"sessions_at_once": "-1"}).status_code == 200
    refining.change(house.ada, due_at=timezone.now(), due_reason="weekly")
    shown = client.get(reverse("admin:memory_agent_change", args=[house.ada.pk])).content.decode()
    assert "model tokens for this month are used up" in shown


# --- one's own account ----------------------------------------------------------------------------------------------


def nonce_of(page: str) -> str:
    return re.search(r'name="nonce" value="([0-9a-f]{32})"', page).group(1)


def shown_code(person: Person, nonce: str) -> str:
    return code_of(people.candidate(person, f"replacing/{person.pk}/{nonce}"))


def code_of(factor: Any) -> str:
    from django_otp.oath import TOTP

    return f"{TOTP(people._secret(factor)).token():06d}"


NEW = "another good passphrase"


def test_one_changes_ones_own_password(staff: Staff, house: House, signed_in: SignedIn) -> None:
    pat = staff["auditor"]
    client, other = signed_in(pat), Client()
    other.force_login(pat, backend="django.contrib.auth.backends.ModelBackend")
    grant = granted(house.ada, pat)
    address = reverse("admin:account_password")
    assert "Grants in force that will end: 1." in client.get(address).content.decode()
    form = {"present": PASSWORD, "present_code": code(pat, 1), "password": NEW, "again": NEW}
    assert "Password changed" in client.post(address, form).content.decode()
    grant.refresh_from_db()
    assert grant.state == AccessState.REVOKED
    assert client.get("/admin/").status_code == other.get("/admin/").status_code == 302
    assert Person.objects.get(pk=pat.pk).check_password(NEW)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"present": each} for each in ("not this one", "x" * 2_000)),
        *({"present_code": each} for each in ("000000", "\0")),
        *({"password": each, "again": each} for each in ("short", "auditor@acme.test")),
        {"again": "something different"},
    ],
)
def test_a_password_that_is_not_changed(wrong: dict[str, str], staff: Staff, signed_in: SignedIn) -> None:
    pat = staff["auditor"]
    client = signed_in(pat)
    form = {"present": PASSWORD, "present_code": code(pat, 1), "password": NEW, "again": NEW} | wrong
    answer = client.post(reverse("admin:account_password"), form)
    assert answer.status_code == 200
    assert Person.objects.get(pk=pat.pk).check_password(PASSWORD)
    assert client.get("/admin/").status_code == 200
    assert PASSWORD not in answer.content.decode()
    assert NEW not in answer.content.decode()


def test_djangos_own_page_of_passwords_is_not_there(staff: Staff, enter: Enter) -> None:
    """It asks for no code."""
    client = enter("auditor")
    form = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
    assert client.post("/admin/password_change/", form).headers["Location"] == "/admin/account/password/"
    assert Person.objects.get(pk=staff["auditor"].pk).check_password(PASSWORD)


def test_one_replaces_ones_own_second_factor(staff: Staff, house: House, signed_in: SignedIn) -> None:
    pat = staff["auditor"]
    client, grant, address = signed_in(pat), granted(house.ada, pat), reverse("admin:account_factor")
    before = bytes(pat.authenticator.seed)
    nonce = nonce_of(client.get(address).content.decode())
    form = {"present": PASSWORD, "present_code": code(pat, 1), "nonce": nonce}
    wrong = client.post(address, form | {"code": "000000"}).content.decode()
    assert nonce_of(wrong) == nonce, "the same one is shown again"
    assert bytes(Person.objects.get(pk=pat.pk).authenticator.seed) == before
    new_code = shown_code(pat, nonce)
    assert new_code != "000000"
    assert "replaced" in client.post(address, form | {"code": new_code}).content.decode()
    factor = Person.objects.get(pk=pat.pk).authenticator
    assert factor.confirmed
    assert bytes(factor.seed) != before
    grant.refresh_from_db()
    assert grant.state == AccessState.REVOKED
    assert client.get("/admin/").status_code == 302
    assert sign_in(client, pat, code=code(pat, 1)).status_code == 302


@pytest.mark.parametrize(
    "wrong",
    [{"present": "not this one"}, {"present_code": "000000"}, {"nonce": "x" * 32}, {"nonce": ""}, {"nonce": "\0" * 32}],
)
def test_a_second_factor_that_is_not_replaced(wrong: dict[str, str], staff: Staff, signed_in: SignedIn) -> None:
    pat = staff["auditor"]
    client, nonce = signed_in(pat), "0" * 32
    before = bytes(pat.authenticator.seed)
    form = {"present": PASSWORD, "present_code": code(pat, 1), "nonce": nonce, "code": shown_code(pat, nonce)} | wrong
    assert client.post(reverse("admin:account_factor"), form).status_code == 200
    assert bytes(Person.objects.get(pk=pat.pk).authenticator.seed) == before
    assert client.get("/admin/").status_code == 200


def test_an_account_is_for_who_signed_in_and_its_pages_are_kept_by_nobody(
    browser: Callable[[], Client], staff: Staff, enter: Enter
) -> None:
    nobody, one_factor, client = browser(), browser(), enter("auditor")
    one_factor.force_login(staff["admin"], backend="django.contrib.auth.backends.ModelBackend")
    for name in ("account", "account_password", "account_factor"):
        address = reverse(f"admin:{name}")
        assert nobody.get(address).status_code == one_factor.get(address).status_code == 302
        answer = client.get(address)
        assert "no-store" in answer.headers["Cache-Control"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]


def test_lists_take_as_many_queries_however_long(
    staff: Staff, house: House, signed_in: SignedIn, django_assert_max_num_queries: Any
) -> None:
    many, root, rest = 200, staff["superuser"], {"tenant": acme(), "role": "admin"}
    Person.objects.bulk_create(Person(email=f"p{n}@acme.test", password="!") for n in range(many))
    added = Person.objects.filter(email__startswith="p")
    Membership.objects.bulk_create(Membership(person=each, **rest) for each in added)
    Tenant.objects.bulk_create(Tenant(slug=f"t{n}") for n in range(many))
    made = {"invited_by": root, "made_at": timezone.now()} | rest
    Invitation.objects.bulk_create(Invitation(prefix=f"p{n}", address=f"i{n}@a.test", **made) for n in range(many))
    client = signed_in(root)
    for model in ("membership", "person", "invitation", "tenant"):
        with django_assert_max_num_queries(12):
            assert client.get(f"/admin/memory/{model}/").status_code == 200
