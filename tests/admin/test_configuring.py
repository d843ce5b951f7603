"""Agents that owners and admins set up, their keys, and the settings that only the agent's side accepts."""

from __future__ import annotations

import io
import itertools
import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse

from audit.models import ActorKind, AuditEntry, Operation
from memory.access import authentication, tenants
from memory.admin.agent_forms import NewAgentForm, SettingsForm
from memory.agents import lifecycle
from memory.consent import proposals
from memory.errors import KeyRejected
from memory.models import Agent, AgentKey, TenantKey
from refinement.api.tenant import NewAgentIn, SettingsIn
from tests import steps
from tests.admin.actions import confirm, html, post
from tests.admin.conftest import Enter, Staff
from tests.conftest import OPERATOR, House
from tests.privacy.marker import MARKER
from tests.steps import fresh

ROLES = [("owner", True), ("admin", True), ("superuser", True), ("auditor", False), ("stranger", False)]
SETTINGS = {"budget_tokens": "9000", "target_tokens": "4000", "refine_every": "3 00:00:00"}
NEW_AGENT = "/admin/memory/agent/new/"
NEW_KEY = "/admin/memory/tenantkey/new/"


def page(agent: Agent, name: str) -> str:
    return reverse(f"admin:memory_agent_{name}", args=[agent.pk])


def new_agent(house: House, **fields: str) -> dict[str, str]:
    form = {"tenant": str(house.ada.tenant.pk), "agent": "eve", "model": "builtin/dedupe", "language": "english"}
    return form | SETTINGS | fields


def key_in(response: Any) -> str:
    return re.search(r"palt?_[a-z0-9]{12}_[A-Za-z0-9_-]+", html(response)).group()


def count_of(operation: str, **filters: Any) -> int:
    return AuditEntry.objects.filter(operation=operation, **filters).count()


def test_the_forms_have_the_fields_of_the_api() -> None:
    assert set(SettingsForm.base_fields) == set(SettingsIn().get_fields())
    assert set(NewAgentForm.base_fields) - {"tenant"} == set(NewAgentIn().get_fields()) - {"paused"}


# --- who may do it


def test_who_may_add_an_agent(staff: Staff, house: House, enter: Enter) -> None:
    for role, may in ROLES:
        client = enter(role)
        assert client.get(NEW_AGENT).status_code == (200 if may else 403)
        response = client.post(NEW_AGENT, new_agent(house, agent=role, steward="sam@acme.test"))
        assert response.status_code == (200 if may else 403), role
        agent = Agent.objects.filter(slug=role).first()
        assert (agent is not None) == may, role
        if agent:
            assert (agent.label, agent.steward) == (f"acme/{role}", "sam@acme.test")
            assert (agent.budget_tokens, agent.refine_every) == (9_000, timedelta(days=3))
            assert authentication.is_key_of(agent, key_in(response))
            actors = AuditEntry.objects.filter(agent_id=agent.pk).values_list("actor_kind", "actor_label").distinct()
            assert list(actors) == [(ActorKind.PERSON, staff[role].email)]


@pytest.mark.parametrize(("role", "may"), ROLES)
def test_who_may_change_an_agent(role: str, may: bool, staff: Staff, ada: Agent, enter: Enter) -> None:
    client, refused = enter(role), (404 if role == "stranger" else 403)
    agents_page = html(client.get(page(ada, "change")))
    for name in ("change_settings", "create_first_key"):
        assert client.get(page(ada, name)).status_code == (200 if may else refused)
        assert (page(ada, name) in agents_page) == may, "the button"
    assert client.post(page(ada, "change_settings"), SETTINGS).status_code == (302 if may else refused)
    assert client.post(page(ada, "create_first_key"), {"label": "x"}).status_code == (200 if may else refused)
    key = AgentKey.objects.filter(agent=ada).order_by("pk").first()
    assert confirm(client, "revoke_key", key).status_code == (302 if may else 403)
    ada, key = fresh(ada), AgentKey.objects.get(pk=key.pk)
    assert (ada.budget_tokens, ada.target_tokens) == ((9_000, 4_000) if may else (8_000, 5_000))
    assert (key.revoked_at is not None, AgentKey.objects.filter(agent=ada).count()) == (may, 2 if may else 1)
    entries = AuditEntry.objects.filter(agent_id=ada.pk, actor_label=staff[role].email, actor_kind=ActorKind.PERSON)
    done = [Operation.AGENT_CHANGED, Operation.KEY_ISSUED, Operation.KEY_REVOKED] if may else []
    assert list(entries.order_by("seq").values_list("operation", flat=True)) == done


def test_who_may_propose_a_change(staff: Staff, ada: Agent, enter: Enter) -> None:
    for role, may in ROLES:
        client, refused = enter(role), (404 if role == "stranger" else 403)
        assert client.get(page(ada, "propose")).status_code == (200 if may else refused)
        form = {"model": "openai/gpt", "steward": f"{role}@else.test"}
        assert client.post(page(ada, "propose"), form).status_code == (302 if may else refused)
    entries = AuditEntry.objects.filter(agent_id=ada.pk, operation=Operation.CHANGE_PROPOSED).order_by("seq")
    assert [entry.actor_label for entry in entries] == [staff[role].email for role, may in ROLES if may]
    assert (fresh(ada).model, fresh(ada).steward) == ("builtin/dedupe", ""), "until the agent's side accepts"


def test_who_may_create_and_revoke_a_tenants_keys(house: House, enter: Enter) -> None:
    for role, may in ROLES:
        client = enter(role)
        response = client.post(NEW_KEY, {"tenant": str(house.ada.tenant.pk), "label": role})
        assert TenantKey.objects.filter(label=role).exists() == may
        if may:
            key = key_in(response)
            assert authentication.either_key(key).tenant == house.ada.tenant
            assert confirm(client, "revoke_key", TenantKey.objects.get(label=role)).status_code == 302
            with pytest.raises(KeyRejected):
                authentication.either_key(key)


def test_an_agent_of_another_tenant_gets_the_response_of_a_missing_one(house: House, enter: Enter) -> None:
    tenants.issue_key("globex")
    before = AuditEntry.objects.count()
    keys = (AgentKey.objects.get(agent=house.bob), TenantKey.objects.get(), AgentKey(pk=99_999_999))
    pages = ("change_settings", "keys", "create_first_key", "propose")
    ids = (house.bob.pk, 99_999_999, "x", 10**30, "\0")
    for role in ("owner", "admin", "auditor", "stranger"):
        client, may = enter(role), role in ("owner", "admin")
        for name, pk in itertools.product(pages, ids):
            address = reverse(f"admin:memory_agent_{name}", args=[pk])
            assert client.get(address).status_code == client.post(address, SETTINGS).status_code == 404
        assert {confirm(client, "revoke_key", key).status_code for key in keys} == {404 if may else 403}
        client.post(NEW_AGENT, new_agent(house, tenant=str(house.bob.tenant.pk)))
        client.post(NEW_KEY, {"tenant": str(house.bob.tenant.pk)})
    assert (Agent.objects.count(), AuditEntry.objects.count()) == (2, before)
    assert list(AgentKey.objects.values_list("revoked_at", flat=True)) == [None, None]
    assert list(TenantKey.objects.values_list("revoked_at", flat=True)) == [None]


def test_the_settings_form_does_not_set_what_the_agents_side_decides(ada: Agent, client: Client) -> None:
    forged = {"model": "openai/gpt", "steward": "eve@acme.test", "is_steward_only": "on", "system_prompt": "x"}
    forged |= {"retention": "0.50", "language": "german", "refinement_prompt": "x", "memory_enabled": "", "slug": "x"}
    for name in ("change_settings", "change"):
        client.post(page(ada, name), SETTINGS | forged)
    for name in (*forged, "wrapped_key"):
        assert getattr(fresh(ada), name) == getattr(ada, name), name


def test_opening_a_form_changes_nothing(house: House, client: Client) -> None:
    before = AuditEntry.objects.count(), AgentKey.objects.count()
    for address in (page(house.ada, "change_settings"), page(house.ada, "create_first_key"), NEW_AGENT, NEW_KEY):
        assert client.get(address, new_agent(house) | {"label": "x", "post": "yes"}).status_code == 200
    assert (AuditEntry.objects.count(), AgentKey.objects.count()) == before
    assert not TenantKey.objects.exists()


# --- what the forms accept

BAD_SETTINGS = [
    ("target_tokens", "not be more than the budget", ["9001"]),
    ("budget_tokens", "whole number", ["x", "9" * 5_000, "\0"]),
    ("budget_tokens", "less than or equal to", [str(2**31)]),
    ("budget_tokens", "required", [""]),
    ("refine_every", "from one hour to ten years", ["00:59:59", "3653 00:00:00"]),
    ("refine_every", "days must be between", ["999999999999 00:00:00"]),
    ("refine_every", "valid duration", ["soon", "\0"]),
    ("max_steps", "greater than or equal to 0", ["-1"]),
    ("max_model_tokens", "less than or equal to", [str(2**53 + 1)]),
]


def test_bad_settings_are_refused(ada: Agent, client: Client) -> None:
    seq = fresh(ada).audit_seq
    for field, error, value in ((field, error, value) for field, error, values in BAD_SETTINGS for value in values):
        response = client.post(page(ada, "change_settings"), SETTINGS | {field: value})
        assert (response.status_code, error in html(response)) == (200, True), (field, value)
    assert (fresh(ada).budget_tokens, fresh(ada).audit_seq) == (8_000, seq)


def test_settings_are_changed_and_saving_them_again_changes_nothing(ada: Agent, enter: Enter) -> None:
    client, address = enter("admin"), page(ada, "change_settings")
    settings = SETTINGS | {"refine_every": "", "paused": "on", "max_steps": "5", "last_n": "5", "max_entries": ""}
    assert client.post(address, settings).status_code == 302
    after = fresh(ada)
    assert (after.refine_every, after.paused, after.max_steps) == (None, True, 5)
    assert (after.last_n, after.max_entries, after.context_tokens) == (5, 0, None)
    assert re.search(r'name="paused"[^>]*checked', html(client.get(address)))
    assert client.post(address, settings).status_code == 302
    assert fresh(ada).audit_seq == after.audit_seq


BAD_AGENTS: list[tuple[str, str, list[str]]] = [
    ("agent", "The agent acme/ada already exists", ["ada"]),
    ("agent", "required", [""]),
    ("agent", "lower-case letters", ["A b", "\ud800"]),
    ("agent", "at most 64 characters", ["a" * 65]),
    ("model", "provider/name", ["gpt"]),
    ("model", "control character", ["openai/\x07"]),
    ("model", "The only built-in model is builtin/dedupe.", ["builtin/nothing"]),
    ("language", "Must be one of: arabic, ", ["klingon"]),
    ("steward", "valid email", ["sam", "a@b.test\nBcc: c@d.test"]),
    ("steward", "plain email address", ['"ab"@b.test']),
    ("tenant", "not one of the available choices", ["99999999", "9" * 5_000]),
    ("target_tokens", "not be more than the budget", ["9001"]),
    ("refine_every", "from one hour to ten years", ["00:00:01"]),
    *((name, "Null characters", ["a\0"]) for name in ("agent", "model", "tenant")),
]


def test_a_bad_agent_is_refused(house: House, client: Client) -> None:
    for field, error, value in ((field, error, value) for field, error, values in BAD_AGENTS for value in values):
        form = urlencode(new_agent(house) | {field: value}, errors="surrogatepass")
        response = client.post(NEW_AGENT, form, content_type="application/x-www-form-urlencoded")
        errors = response.context["form"].errors["__all__" if "already" in error else field]
        assert error in " ".join(errors), (field, value)
    assert Agent.objects.count() == 2


def test_an_agent_is_added_with_a_language(house: House, client: Client) -> None:
    form = html(client.get(NEW_AGENT))
    for name in ("german", "other"):
        assert f'<option value="{name}">' in form
        assert client.post(NEW_AGENT, new_agent(house, agent=name, language=name)).status_code == 200
        assert Agent.objects.get(slug=name).language == name


BAD_PROPOSALS = [
    ({}, "changes nothing"),
    ({"model": "gpt"}, "provider/name"),
    ({"model": "\0"}, "Null characters"),
    ({"model": ""}, "required"),
    ({"steward": "a%b.test@c.test"}, "plain email address"),
    ({"memory_path": "/etc/passwd"}, "Must be under"),
    ({"memory_path": "../globex/bob.md"}, "Must be under"),
]


def test_a_bad_proposal_is_refused(ada: Agent, client: Client) -> None:
    for fields, error in BAD_PROPOSALS:
        response = client.post(page(ada, "propose"), {"model": "builtin/dedupe"} | fields)
        assert (response.status_code, error in html(response)) == (200, True), fields
    assert count_of(Operation.CHANGE_PROPOSED) == 0


def test_a_memory_file_is_proposed_and_shown(ada: Agent, client: Client, settings: Any, tmp_path: Path) -> None:
    settings.VAULT_ROOTS = [str(tmp_path)]
    form = {"model": ada.model, "steward": ada.steward, "memory_path": "ada.md"}
    assert client.post(page(ada, "propose"), form).status_code == 302
    path, proposed = f"{tmp_path}/acme/ada.md", html(client.get(page(ada, "change")))
    assert f"its memory file: {path}" in proposed
    assert "the agent&#x27;s memory, encrypted" in proposed
    proposals.accept(fresh(ada), steps.last_entry(ada).seq, steps.ME)
    assert f"{path}, in clear text" in html(client.get(page(ada, "change")))


def test_the_forms_warn_when_a_steward_cannot_receive_mail(ada: Agent, client: Client, settings: Any) -> None:
    addresses = [page(ada, "propose"), NEW_AGENT]
    assert not any("EMAIL_URL" in html(client.get(address)) for address in addresses)
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    assert all("a steward cannot receive requests" in html(client.get(address)) for address in addresses)
    Agent.objects.filter(pk=ada.pk).update(steward="stew@else.test")
    assert "This request will be refused." in html(client.get(page(ada, "propose")))
    refusal = html(client.post(page(ada, "propose"), {"model": "openai/gpt"}))
    assert "Ask the operator to set EMAIL_URL, such as smtp+tls://" in refusal
    assert count_of(Operation.CHANGE_PROPOSED) == 0


# --- keys


def test_a_key_is_shown_once_and_stored_nowhere(house: House, client: Client, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    responses = [
        client.post(NEW_AGENT, new_agent(house)),
        client.post(page(house.ada, "create_first_key"), {"label": "x"}),
        client.post(NEW_KEY, {"tenant": str(house.ada.tenant.pk), "label": "x"}),
    ]
    logging.getLogger().removeHandler(handler)
    for response in responses:
        assert response.status_code == 200
        assert "no-store" in response.headers["Cache-Control"]
        assert "unsafe" not in response.headers["Content-Security-Policy"]
        assert "Authorization: Bearer KEY" in html(response)
    assert all("POST /api/v1/agent/keys" in html(response) for response in responses[:2])
    kept = [list(model.objects.values()) for model in (AgentKey, TenantKey, LogEntry, AuditEntry, Session)]
    kept += [row.get_decoded() for row in Session.objects.all()]
    kept += [str(message) for response in responses for message in get_messages(response.wsgi_request)]
    kept += [caplog.text, log.getvalue()]
    kept += [html(client.get(f"/admin/memory/{name}/")) for name in ("agent", "agentkey", "tenantkey", "membership")]
    for response in responses:
        secret = key_in(response).split("_", 2)[2]
        assert (len(secret) > 40, secret in str(kept)) == (True, False)


def test_a_bad_label_is_refused(ada: Agent, client: Client) -> None:
    for label, address in itertools.product(("x" * 101, "\0"), (page(ada, "create_first_key"), NEW_KEY)):
        assert client.post(address, {"label": label, "tenant": str(ada.tenant_id)}).status_code == 200
    assert (AgentKey.objects.count(), TenantKey.objects.count()) == (2, 0)


def test_no_key_is_created_for_an_agent_whose_runtime_has_its_own(ada: Agent, client: Client) -> None:
    lifecycle.exchange_key(AgentKey.objects.get(agent=ada), OPERATOR)
    assert "side can issue a key" in html(client.post(page(ada, "create_first_key"), {"label": ""}))
    steps.remember(ada, f"{MARKER} likes tea")
    assert page(ada, "create_first_key") not in html(client.get(page(ada, "change")))


def test_a_key_is_listed_and_is_revoked_once(house: House, client: Client) -> None:
    key, listed = AgentKey.objects.get(agent=house.ada), html(client.get(page(house.ada, "keys"), follow=True))
    assert (key.prefix in listed, AgentKey.objects.get(agent=house.bob).prefix in listed) == (True, False)
    assert "never used" in html(post(client, "revoke_key", key))
    assert authentication.is_key_of(house.ada, house.ada_key)
    for _ in range(2):
        assert confirm(client, "revoke_key", key).status_code == 302
    assert not authentication.is_key_of(house.ada, house.ada_key)
    assert count_of(Operation.KEY_REVOKED, agent_id=house.ada.pk) == 1
