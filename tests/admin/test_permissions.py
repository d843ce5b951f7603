"""Who may open and send each form. A row of another tenant gets the response of a missing one."""

import itertools
from typing import Any

import pytest
from django.urls import reverse

from audit.models import AuditEntry
from memory.access import tenants
from memory.models import Agent, AgentKey, Invitation, Membership, Person, Role, Tenant, TenantKey
from refinement.notices.models import Webhook
from tests.admin.actions import confirm, html
from tests.admin.conftest import Enter, Staff
from tests.conftest import House
from tests.members import join
from tests.tampering import undone

MANAGERS, OWNERS = ("owner", "admin", "superuser"), ("owner", "superuser")
ROLES = ("owner", "admin", "auditor", "superuser", "stranger")
SETTINGS = {"budget_tokens": "9000", "target_tokens": "4000", "refine_every": "3 00:00:00"}
NEW_AGENT = SETTINGS | {"agent": "eve", "model": "builtin/dedupe", "language": "english"}
# Each form: the model of its row, who may send it, what they send, the status then, and whether that changes something.
FORMS: dict[str, tuple[Any, tuple[str, ...], dict[str, str], int, bool]] = {
    "agent_change_settings": (Agent, MANAGERS, SETTINGS, 302, True),
    "agent_create_first_key": (Agent, MANAGERS, {"label": "x"}, 200, True),
    "agent_propose": (Agent, MANAGERS, {"other_model": "openai/gpt", "steward": "sue@else.test"}, 302, True),
    "agent_time_machine": (Agent, MANAGERS, {"head": "1"}, 200, False),
    "agent_ask": (Agent, (*MANAGERS, "auditor"), {}, 200, False),
    "agent_add_agent": (None, MANAGERS, NEW_AGENT, 200, True),
    "tenantkey_add_key": (None, MANAGERS, {"label": "x"}, 200, True),
    "membership_change_role": (Membership, OWNERS, {"role": "admin"}, 302, True),
    "membership_invite": (None, OWNERS, {"address": "new@else.test", "role": "admin"}, 200, True),
    "tenant_change_settings": (Tenant, ("superuser",), {"name": "x"}, 302, True),
    "tenant_change_webhook": (Tenant, OWNERS, {"url": "https://hooks.test/"}, 200, True),
    "tenant_add_tenant": (None, ("superuser",), {"slug": "initech"}, 302, True),
}
LISTS = {"agent": (*MANAGERS, "auditor"), "agentkey": MANAGERS, "tenantkey": MANAGERS}
LISTS |= {"membership": OWNERS, "invitation": OWNERS, "person": ("superuser",), "tenant": OWNERS}


@pytest.fixture
def rows(staff: Staff, house: House) -> dict[Any, int]:
    """The row of each model for the forms."""
    lee = Person.objects.create_user("lee@acme.test")
    membership = join(person=lee, tenant=house.ada.tenant, role="auditor")
    return {Agent: house.ada.pk, Membership: membership.pk, Tenant: house.ada.tenant_id}


def url(name: str, *ids: Any) -> str:
    return reverse(f"admin:memory_{name}", args=ids)


def state() -> list[Any]:
    models = (Agent, AgentKey, TenantKey, Membership, Invitation, Tenant, Person, AuditEntry, Webhook)
    return [list(model.objects.order_by("pk").values()) for model in models]


def test_each_form_is_for_its_roles(rows: dict[Any, int], staff: Staff, house: House, enter: Enter) -> None:
    clients = {role: enter(role) for role in ROLES}
    tenant = str(house.ada.tenant_id)
    for (name, (model, roles, fields, status, changes)), role in itertools.product(FORMS.items(), ROLES):
        with undone():
            client, before, entries = clients[role], state(), AuditEntry.objects.count()
            address = url(name, rows[model]) if model else url(name)
            is_seen = (model is Agent and role != "stranger") or (model is Tenant and role in OWNERS)
            refused = 403 if model is None or is_seen else 404
            expected = (200, status, changes) if role in roles else (refused, refused, False)
            opened, sent = client.get(address), client.post(address, fields | {"tenant": tenant})
            assert (opened.status_code, sent.status_code, state() != before) == expected, (name, role)
            actors = AuditEntry.objects.order_by("pk").values_list("actor_kind", "actor_label")[entries:]
            assert set(actors) <= {("person", staff[role].email)}


def test_each_list_and_button_is_for_its_roles(house: House, enter: Enter) -> None:
    for role in ROLES:
        client = enter(role)
        for name, roles in LISTS.items():
            assert client.get(url(f"{name}_changelist")).status_code == (200 if role in roles else 403), (name, role)
        page = html(client.get(url("agent_change", house.ada.pk)))
        for name in ("agent_change_settings", "agent_create_first_key"):
            assert (url(name, house.ada.pk) in page) == (role in MANAGERS), (name, role)


def test_opening_a_form_changes_nothing(rows: dict[Any, int], enter: Enter) -> None:
    client = enter("superuser")
    before = state()
    for name, (model, _, fields, _, _) in FORMS.items():
        address = url(name, rows[model]) if model else url(name)
        assert client.get(address, fields | {"post": "yes"}).status_code == 200, name
    assert state() == before


def test_a_row_of_another_tenant_gets_the_response_of_a_missing_row(house: House, enter: Enter) -> None:
    outsider = Person.objects.create_user("bob@globex.test")
    membership = join(person=outsider, tenant=house.bob.tenant, role=Role.OWNER)
    tenants.issue_key("globex")
    rows = {Agent: house.bob.pk, Membership: membership.pk, Tenant: house.bob.tenant_id}
    keys = (AgentKey.objects.get(agent=house.bob), TenantKey.objects.get(), AgentKey(pk=99_999_999))
    for role in ("owner", "admin", "auditor", "stranger"):
        client, refused = enter(role), 404 if role in MANAGERS else 403
        before = state()
        for name, (model, _, fields, _, _) in FORMS.items():
            for pk in (rows[model], 99_999_999, "x", 10**30, "\0") if model else ():
                address = url(name, pk)
                assert client.get(address).status_code == client.post(address, fields).status_code == 404, (name, pk)
            if model is None:
                client.post(url(name), fields | {"tenant": str(house.bob.tenant_id)})
        assert {confirm(client, "revoke_key", key).status_code for key in keys} == {refused}
        assert {client.get(url("agent_keys", pk)).status_code for pk in (house.bob.pk, 99_999_999)} == {404}
        assert state() == before
