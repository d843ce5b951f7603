"""People, memberships and tenants: owners manage their tenant's, superusers manage all."""

from typing import Any
from urllib.parse import urlencode

import pytest
from django.db.models import Q
from django.forms.models import model_to_dict
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from audit.models import AccessRequest, State
from memory.access import roles, tenants
from memory.accounts import memberships, people
from memory.admin.base.forms import AdminForm
from memory.errors import LastOwner, NotAllowed, NotFound
from memory.models import Agent, Invitation, Membership, Person, Role, Tenant, TenantKey
from memory.writing import edits
from refinement import session as sessions
from refinement.llm.base import Usage
from refinement.notices.models import Webhook
from tests import refining
from tests.admin import reading
from tests.admin.actions import confirm, html, messages_of, post, state_of
from tests.admin.conftest import Enter, Staff, code, enrolled, sign_in
from tests.conftest import House
from tests.members import join
from tests.steps import fresh

MEMBERSHIPS = "/admin/memory/membership/"


def acme() -> Tenant:
    return Tenant.objects.get(slug="acme")


def membership(person: Person) -> Membership:
    return Membership.objects.get(person=person)


def member(email: str, role: str) -> Membership:
    return join(person=enrolled(email), tenant=acme(), role=role)


def role_page(membership: Membership) -> str:
    return reverse("admin:memory_membership_change_role", args=[membership.pk])


def granted(agent: Agent, person: Person) -> AccessRequest:
    return AccessRequest.objects.get(agent_id=agent.pk, number=reading.granted(agent, person))


# --- memberships


SECRETS = {  # forms whose answer has a secret
    "admin:memory_tenantkey_add_key": {"tenant": "1", "label": "a"},
    "admin:memory_agent_add_agent": {"tenant": "1", "agent": "new", "model": "builtin/dedupe", "language": "en"}
    | {"budget_tokens": "200", "target_tokens": "100"},
    "admin:memory_tenant_change_webhook": {"url": "https://example.com/hook"},
}


@pytest.mark.parametrize("name", SECRETS)
def test_who_is_removed_while_their_form_waits_gets_no_secret(
    name: str, staff: Staff, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    member("second@acme.test", "owner")
    values = SECRETS[name] | ({"tenant": str(acme().pk)} if "tenant" in SECRETS[name] else {})
    address = reverse(name, args=[] if "tenant" in values else [acme().pk])
    is_valid = AdminForm.is_valid

    def slow(form: AdminForm) -> bool:
        memberships.remove(membership(staff["owner"]), staff["superuser"])
        return is_valid(form)

    monkeypatch.setattr(AdminForm, "is_valid", slow)
    page = html(client.post(address, values))
    assert "so nothing was done" in page
    assert not TenantKey.objects.exists()
    assert Agent.objects.filter(tenant=acme()).count() == 1
    assert not Webhook.objects.exclude(url="").exists()


WAITING: dict[str, dict[str, str]] = {  # actions and forms of an agent, which wait for its row
    "pause": {},
    "suspend_keys": {},
    "ask_erasure": {},
    "admin:memory_agent_create_first_key": {"label": "a"},
    "admin:memory_agent_propose": {"model": "builtin/archive"},
    "admin:memory_agent_ask": {"purpose": "to see why it forgot a customer", "kind": "silo", "seconds": "3600"},
    "admin:memory_agent_change_settings": {"budget_tokens": "7777", "target_tokens": "5000", "language": "en"},
}


@pytest.mark.parametrize("name", WAITING)
def test_who_is_removed_while_their_action_waits_for_the_agent_does_nothing(
    name: str, house: House, staff: Staff, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    member("second@acme.test", "owner")
    entries, lock = fresh(house.ada).audit_seq, edits._locking

    def slow(*args: Any) -> Any:
        for own in Membership.objects.filter(person=staff["owner"]):
            memberships.set_role(own.tenant_id, own.person_id, None)
        return lock(*args)

    monkeypatch.setattr(edits, "_locking", slow)
    if ":" in name:
        said = html(client.post(reverse(name, args=[house.ada.pk]), WAITING[name]))
    else:
        said = messages_of(confirm(client, name, house.ada, **WAITING[name]))
    assert "Your role in this tenant has changed, so nothing was done." in said
    assert fresh(house.ada).audit_seq == entries


def test_who_is_removed_while_their_action_waits_for_the_tenant_does_nothing(
    staff: Staff, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    member("second@acme.test", "owner")
    tenants.issue_key("acme")
    lock = roles.lock

    def slow(tenant_id: int) -> Tenant:
        for own in Membership.objects.filter(person=staff["owner"]):
            memberships.set_role(own.tenant_id, own.person_id, None)
        return lock(tenant_id)

    monkeypatch.setattr(roles, "lock", slow)
    said = messages_of(confirm(client, "revoke_key", TenantKey.objects.get()))
    assert "Your role in this tenant has changed" in said
    assert TenantKey.objects.get().revoked_at is None


@pytest.mark.parametrize("name", ["change_settings", "add_tenant"])
def test_a_superuser_who_is_deactivated_while_their_form_waits_changes_no_tenant(
    name: str, staff: Staff, enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = enter("superuser"), enrolled("root2@service.test", is_superuser=True)
    is_valid, before = AdminForm.is_valid, state_of(Tenant)

    def slow(form: AdminForm) -> bool:
        people.set_active(staff["superuser"], other, is_active=False)
        return is_valid(form)

    monkeypatch.setattr(AdminForm, "is_valid", slow)
    address = reverse(f"admin:memory_tenant_{name}", args=[acme().pk] if name == "change_settings" else [])
    values = {field: str(value) for field, value in model_to_dict(acme()).items() if value is not None}
    assert client.post(address, values | {"name": "Other", "slug": "other"}).status_code == 200
    assert state_of(Tenant) == before


def test_a_form_that_waits_while_the_password_changes_does_nothing(
    staff: Staff, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may have sent it, who has the old session."""
    is_valid = AdminForm.is_valid

    def slow(form: AdminForm) -> bool:
        people.set_password(Person.objects.get(pk=staff["owner"].pk), "a long new password 7")
        return is_valid(form)

    monkeypatch.setattr(AdminForm, "is_valid", slow)
    page = html(client.post(reverse("admin:memory_tenantkey_add_key"), {"tenant": str(acme().pk), "label": "a"}))
    assert "so nothing was done" in page
    assert not TenantKey.objects.exists()


def test_an_owner_changes_a_role(staff: Staff, client: Client) -> None:
    own = membership(staff["auditor"])
    assert post(client, "remove", own, from_row="1").status_code == 200
    assert membership(staff["auditor"]).role == "auditor", "the preview changes nothing"
    assert client.post(role_page(own), {"role": "owner"}).status_code == 302
    assert membership(staff["auditor"]).role == "owner"


def test_nobody_changes_their_own_role_or_deactivates_themselves(staff: Staff, enter: Enter) -> None:
    member("second@acme.test", "owner")
    client, own = enter("owner"), membership(staff["owner"])
    assert "You cannot change your own role" in html(client.post(role_page(own), {"role": "admin"}))
    assert membership(staff["owner"]).role == Role.OWNER
    root = enter("superuser")
    assert "You cannot deactivate yourself" in messages_of(confirm(root, "deactivate", staff["superuser"]))
    assert root.get("/admin/").status_code == 200


def test_removing_a_membership_leads_to_a_page_that_the_person_may_see(staff: Staff, enter: Enter) -> None:
    member("second@acme.test", "owner")
    client = enter("owner")
    removed = confirm(client, "remove", membership(staff["auditor"]), from_row="1")
    assert removed["Location"] == MEMBERSHIPS
    for person, address in ((staff["admin"], f"{MEMBERSHIPS}?q=acme"), (staff["owner"], "/admin/")):
        form = {"action": "remove", "_selected_action": str(membership(person).pk), "confirmed": "1"}
        assert client.post(f"{MEMBERSHIPS}?q=acme", form)["Location"] == address
    assert client.get(MEMBERSHIPS).status_code == 403, "the owner has left the tenant"


def test_only_a_superuser_removes_the_last_owner(staff: Staff, enter: Enter) -> None:
    last = membership(staff["owner"])
    left = Person.objects.create_user("left@acme.test", is_active=False)
    join(person=left, tenant=acme(), role=Role.OWNER)  # cannot sign in, so does not count
    with pytest.raises(LastOwner):
        memberships.remove(last, staff["owner"])
    client, root = enter("owner"), enter("superuser")
    assert "needs an owner" in messages_of(confirm(client, "remove", last))
    assert "Only a superuser can remove the last owner." in html(post(root, "remove", last))
    assert membership(staff["owner"]).role == Role.OWNER
    assert root.post(role_page(last), {"role": "admin"}).status_code == 302
    assert membership(staff["owner"]).role == Role.ADMIN


def test_an_owner_who_was_removed_removes_nobody(staff: Staff) -> None:
    second, first = member("second@acme.test", "owner"), membership(staff["owner"])
    memberships.remove(second, staff["owner"])
    with pytest.raises(NotFound):
        memberships.remove(first, second.person)
    assert membership(staff["owner"]).role == Role.OWNER


def test_leaving_a_tenant_ends_the_grants_to_its_agents(staff: Staff, house: House) -> None:
    auditor = staff["auditor"]
    join(person=auditor, tenant=house.bob.tenant, role=Role.AUDITOR)
    revoked, kept = granted(house.ada, auditor), granted(house.bob, auditor)
    summary = people.ending_summary(Q(person_id=auditor.pk, tenant_id=revoked.tenant_id))
    assert summary.startswith("Active grants that will end: 1.")
    memberships.remove(Membership.objects.get(person=auditor, tenant=house.ada.tenant), staff["owner"])
    states = [AccessRequest.objects.get(pk=grant.pk).state for grant in (revoked, kept)]
    assert states == [State.REVOKED, State.ACTIVE]


# --- superusers


def test_a_superuser_deactivates_and_reactivates(staff: Staff, house: House, enter: Enter) -> None:
    admin, client, root = staff["admin"], enter("admin"), enter("superuser")
    grant = granted(house.ada, admin)
    assert "Active grants that will end: 1." in html(post(root, "deactivate", admin, from_row="1"))
    assert confirm(root, "deactivate", admin, from_row="1").status_code == 302
    grant.refresh_from_db()
    assert grant.state == State.REVOKED
    assert client.get("/admin/").status_code == 302
    assert confirm(root, "reactivate", admin, from_row="1").status_code == 302
    assert client.get("/admin/").status_code == 302, "the session does not come back"
    assert sign_in(Client(), admin, code=code(admin, 1)).status_code == 302


def test_only_a_superuser_deactivates_and_only_after_confirmation(staff: Staff, enter: Enter) -> None:
    for role in ("owner", "admin", "auditor", "stranger"):
        client = enter(role)
        for name in ("deactivate", "reactivate"):
            assert confirm(client, name, staff["superuser"], from_row="1").status_code == 403
        with pytest.raises(NotAllowed):
            people.set_active(staff["superuser"], staff[role], is_active=False)
    root = enter("superuser")
    for name in ("deactivate", "reactivate"):
        assert post(root, name, staff["admin"], from_row="1").status_code == 200
    assert all(Person.objects.values_list("is_active", flat=True))


def test_no_page_creates_a_superuser(staff: Staff, enter: Enter) -> None:
    client, admin = enter("superuser"), staff["admin"]
    own = membership(admin)
    page = reverse("admin:memory_person_change", args=[admin.pk])
    assert "create_superuser" in html(client.get(page))
    forged = {"is_superuser": "on", "role": "auditor", "address": "new@acme.test", "tenant": str(own.tenant_id)}
    client.post(page, forged)
    confirm(client, "reactivate", admin, **forged, from_row="1")
    client.post(role_page(own), forged)
    assert list(Person.objects.filter(is_superuser=True)) == [staff["superuser"]]


def test_a_superuser_adds_and_renames_tenants(enter: Enter) -> None:
    client, new = enter("superuser"), reverse("admin:memory_tenant_add_tenant")
    assert client.post(new, {"slug": "initech", "name": "Initech"}).status_code == 302
    assert "already exists" in html(client.post(new, {"slug": "initech"}))
    tenant = Tenant.objects.get(slug="initech")
    settings = reverse("admin:memory_tenant_change_settings", args=[tenant.pk])
    assert client.post(settings, {"name": "Initech AG", "max_steps": "7", "slug": "other"}).status_code == 302
    tenant.refresh_from_db()
    assert (tenant.slug, tenant.name, tenant.max_steps, tenant.max_changes) == ("initech", "Initech AG", 7, None)


def test_a_bad_slug_or_limit_of_a_tenant_is_refused(enter: Enter) -> None:
    client, address = enter("superuser"), reverse("admin:memory_tenant_add_tenant")
    for slug in ("", "A", "a b", "-a", "a" * 65, "a\0b", "\ud800", "ä", "../a"):
        form = urlencode({"slug": slug, "name": "x"}, errors="surrogatepass")
        response = client.post(address, form, content_type="application/x-www-form-urlencoded")
        assert response.status_code == 200, slug
    assert Tenant.objects.count() == 2
    assert client.post(address, {"slug": "a\n"}).status_code == 302, "white space around it is removed"
    for value in ("-1", "x", "9" * 5_000, str(2**31), "1.5", "\0", "١"):
        response = client.post(reverse("admin:memory_tenant_change_settings", args=[acme().pk]), {"max_steps": value})
        assert (response.status_code, acme().max_steps) in {(200, None), (302, 1)}, value


def test_a_tenants_limits_and_used_tokens_are_shown(enter: Enter, house: House) -> None:
    session = sessions.open_session(house.ada, trigger="weekly")
    sessions.count_model_calls(session, Usage(prompt=1_200, completion=34), 1, 1)
    sessions.close(session, "completed")
    client, address = enter("superuser"), reverse("admin:memory_tenant_change_settings", args=[acme().pk])
    assert client.post(address, {"sessions_at_once": "3", "month_tokens": "1000"}).status_code == 302
    assert (acme().sessions_at_once, acme().month_tokens) == (3, 1_000)
    assert "1,234 (only sessions" in html(client.get(reverse("admin:memory_tenant_change", args=[acme().pk])))
    refining.change(house.ada, due_at=timezone.now(), due_reason="weekly")
    agents_page = html(client.get(reverse("admin:memory_agent_change", args=[house.ada.pk])))
    assert "model tokens for this month are used up" in agents_page


def test_the_number_of_queries_does_not_grow_with_the_rows(
    staff: Staff, enter: Enter, django_assert_max_num_queries: Any
) -> None:
    count, role = 200, {"tenant": acme(), "role": "admin"}
    Person.objects.bulk_create(Person(email=f"p{n}@acme.test", password="!") for n in range(count))
    added = Person.objects.filter(email__startswith="p")
    Membership.objects.bulk_create(Membership(person=each, **role) for each in added)
    Tenant.objects.bulk_create(Tenant(slug=f"t{n}") for n in range(count))
    made = {"invited_by": staff["superuser"], "made_at": timezone.now()} | role
    Invitation.objects.bulk_create(Invitation(prefix=f"p{n}", address=f"i{n}@a.test", **made) for n in range(count))
    client = enter("superuser")
    for model in ("membership", "person", "invitation", "tenant"):
        with django_assert_max_num_queries(12):
            assert client.get(f"/admin/memory/{model}/").status_code == 200
