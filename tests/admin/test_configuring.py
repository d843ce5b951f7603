"""Agents that owners and admins set up, their keys, and the settings that only the agent's side accepts."""

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
from django.utils import timezone

from audit.models import AuditEntry, Operation
from memory.access import authentication
from memory.admin.agent_forms import NewAgentForm, SettingsForm
from memory.agents import lifecycle
from memory.consent import approval, claims
from memory.errors import KeyRejected
from memory.mail import letters
from memory.models import Agent, AgentKey, Tenant, TenantKey
from refinement.api.tenant import NewAgentIn, SettingsIn
from refinement.notices import webhooks
from refinement.notices.models import Delivery, Webhook
from tests import steps
from tests.admin.actions import confirm, html, post
from tests.admin.test_permissions import SETTINGS
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import fresh

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
    assert set(SettingsForm().fields) == set(SettingsIn().get_fields())
    new = NewAgentForm(tenants=Tenant.objects.none(), models=[], providers=[]).fields.keys()
    assert new - {"tenant", "other_model"} == set(NewAgentIn().get_fields()) - {"paused"}


def test_an_agent_is_added_with_its_settings_and_a_key(house: House, client: Client) -> None:
    form = html(client.get(NEW_AGENT))
    for name in ("german", "other"):
        assert f'<option value="{name}">' in form
        response = client.post(NEW_AGENT, new_agent(house, agent=name, language=name, steward="sam@acme.test"))
        agent = Agent.objects.get(slug=name)
        assert (agent.label, agent.language, agent.steward) == (f"acme/{name}", name, "sam@acme.test")
        assert (agent.budget_tokens, agent.refine_every) == (9_000, timedelta(days=3))
        assert authentication.is_key_of(agent, key_in(response))


def test_a_proposal_changes_nothing_until_the_agents_side_accepts(ada: Agent, client: Client) -> None:
    client.post(page(ada, "propose"), {"other_model": "openai/gpt", "steward": "sue@else.test"})
    assert count_of(Operation.CHANGE_PROPOSED, agent_id=ada.pk) == 1
    assert (fresh(ada).model, fresh(ada).steward) == ("builtin/dedupe", "")


def test_the_settings_form_does_not_set_what_the_agents_side_decides(ada: Agent, client: Client) -> None:
    forged = {"model": "openai/gpt", "steward": "eve@acme.test", "is_steward_only": "on", "system_prompt": "x"}
    forged |= {"retention": "0.50", "language": "german", "refinement_prompt": "x", "memory_enabled": "", "slug": "x"}
    for name in ("change_settings", "change"):
        client.post(page(ada, name), SETTINGS | forged)
    for name in (*forged, "wrapped_key"):
        assert getattr(fresh(ada), name) == getattr(ada, name), name


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


def test_settings_are_changed_and_saving_them_again_changes_nothing(ada: Agent, client: Client) -> None:
    address = page(ada, "change_settings")
    settings = SETTINGS | {"refine_every": "", "paused": "on", "max_steps": "5", "last_n": "5", "max_entries": ""}
    assert client.post(address, settings).status_code == 302
    after = fresh(ada)
    assert (after.budget_tokens, after.target_tokens, after.refine_every) == (9_000, 4_000, None)
    assert (after.paused, after.max_steps) == (True, 5)
    assert (after.last_n, after.max_entries, after.context_tokens) == (5, 0, None)
    assert re.search(r'name="paused"[^>]*checked', html(client.get(address)))
    assert client.post(address, settings).status_code == 302
    assert fresh(ada).audit_seq == after.audit_seq


BAD_AGENTS: list[tuple[str, str, list[str]]] = [
    ("agent", "The agent acme/ada already exists", ["ada"]),
    ("agent", "required", [""]),
    ("agent", "lower-case letters", ["A b", "\ud800"]),
    ("agent", "at most 64 characters", ["a" * 65]),
    ("other_model", "provider/name", ["gpt"]),
    ("other_model", "control character", ["openai/\x07"]),
    ("other_model", "The built-in models are builtin/archive and builtin/dedupe.", ["builtin/nothing"]),
    ("model", "Choose a model, or write one below.", [""]),
    ("model", "not one of the available choices", ["openai/gpt", "a\0"]),
    ("language", "Must be one of: arabic, ", ["klingon"]),
    ("steward", "valid email", ["sam", "a@b.test\nBcc: c@d.test"]),
    ("steward", "plain email address", ['"ab"@b.test']),
    ("tenant", "not one of the available choices", ["99999999", "9" * 5_000]),
    ("target_tokens", "not be more than the budget", ["9001"]),
    ("refine_every", "from one hour to ten years", ["00:00:01"]),
    *((name, "Null characters", ["a\0"]) for name in ("agent", "other_model", "tenant")),
]


def test_a_bad_agent_is_refused(house: House, client: Client) -> None:
    for field, error, value in ((field, error, value) for field, error, values in BAD_AGENTS for value in values):
        fields = new_agent(house) | ({"model": ""} if field == "other_model" else {}) | {field: value}
        form = urlencode(fields, errors="surrogatepass")
        response = client.post(NEW_AGENT, form, content_type="application/x-www-form-urlencoded")
        errors = response.context["form"].errors["__all__" if "already" in error else field]
        assert error in " ".join(errors), (field, value)
    assert Agent.objects.count() == 2


BAD_PROPOSALS = [
    ({}, "changes nothing"),
    ({"model": "gpt"}, "Select a valid choice"),
    ({"model": "", "other_model": "gpt"}, "provider/name"),
    ({"model": "", "other_model": "\0"}, "Null characters"),
    ({"model": ""}, "Must have 1 to 200 of these"),
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
    approval.approve(fresh(ada), steps.last_entry(ada).seq, steps.ME)
    assert f"{path}, in clear text" in html(client.get(page(ada, "change")))


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
    claims.exchange(AgentKey.objects.get(agent=ada), steps.ME)
    assert "side can issue a key" in html(client.post(page(ada, "create_first_key"), {"label": ""}))
    steps.remember(ada, f"{MARKER} likes tea")
    assert page(ada, "create_first_key") not in html(client.get(page(ada, "change")))


def test_the_pages_say_what_is_lost_and_what_is_missing(
    ada: Agent, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims.exchange(AgentKey.objects.get(agent=ada), steps.ME)
    shown = html(client.get(page(ada, "change")))
    assert ("No model is set" in shown, "with runtime" in shown) == (True, True)
    assert "No model is set" in html(client.get("/admin/memory/agent/"))
    assert client.post(page(ada, "propose"), {"steward": "sue@else.test"}).status_code == 302
    assert steps.last_entry(ada).detail["proposed"] == {"steward": "sue@else.test"}
    assert "can end the last key" in html(post(client, "revoke_key", AgentKey.objects.get(agent=ada, revoked_at=None)))
    asked = html(post(client, "suspend_keys", fresh(ada)))
    assert "can then get a new key with its recovery code. Otherwise, nobody" in asked
    lifecycle.change(fresh(ada), steps.ME, steward="sue@else.test")
    assert "Its steward, sue@else.test, gets no code" in html(post(client, "suspend_keys", fresh(ada)))
    monkeypatch.setattr(letters, "SETTLED", timedelta())
    assert "its steward, sue@else.test, receives by mail" in html(post(client, "suspend_keys", fresh(ada)))
    assert confirm(client, "suspend_keys", fresh(ada)).status_code == 302
    assert "keys suspended" in html(client.get(page(ada, "change")))


def test_a_tenants_key_works_until_it_is_revoked(house: House, client: Client) -> None:
    key = key_in(client.post(NEW_KEY, {"tenant": str(house.ada.tenant.pk), "label": "x"}))
    assert authentication.either_key(key).tenant == house.ada.tenant
    assert confirm(client, "revoke_key", TenantKey.objects.get()).status_code == 302
    assert bytes(TenantKey.objects.get().mac) == b""
    with pytest.raises(KeyRejected):
        authentication.either_key(key)


def test_a_key_is_listed_and_is_revoked_once(house: House, client: Client) -> None:
    key, listed = AgentKey.objects.get(agent=house.ada), html(client.get(page(house.ada, "keys"), follow=True))
    lifecycle.issue_key(house.ada, steps.ME)
    assert ("never" in listed, "active" in listed) == (True, True)
    assert (key.prefix in listed, AgentKey.objects.get(agent=house.bob).prefix in listed) == (True, False)
    assert "never used" in html(post(client, "revoke_key", key))
    assert authentication.is_key_of(house.ada, house.ada_key)
    for _ in range(2):
        assert confirm(client, "revoke_key", key).status_code == 302
    assert not authentication.is_key_of(house.ada, house.ada_key)
    assert count_of(Operation.KEY_REVOKED, agent_id=house.ada.pk) == 1


# --- the webhook of a tenant


def test_an_owner_sets_the_webhook_and_sees_its_secret_once(ada: Agent, client: Client) -> None:
    tenant, url = ada.tenant, "https://hooks.example/palimpsest"
    page, form = (reverse(f"admin:memory_tenant_{name}", args=[tenant.pk]) for name in ("change", "change_webhook"))
    assert "the webhook is off" in html(client.get(page))
    assert "must begin with https" in html(client.post(form, {"url": "http://hooks.example/"})).lower()
    secrets = [re.findall("whsec_[A-Za-z0-9+/]{43}=", html(client.post(form, {"url": url, **more}))) for more in (
        {}, {}, {"new_secret": "on"},
    )]  # fmt: skip
    assert [len(found) for found in secrets] == [1, 0, 1]
    assert secrets[0] != secrets[2]
    webhooks.of(tenant).deliveries.create(message="x", type="x", at=timezone.now(), data={}, wait_until=timezone.now())
    Webhook.objects.update(problem="The server answered 500.")
    shown = html(client.get(page)) + html(client.get(form))
    assert url in shown
    assert "The server answered 500. 1 message waits." in shown
    assert "whsec" not in shown
    assert client.post(form, {"url": ""}).status_code == 302
    assert (webhooks.of(tenant).url, Delivery.objects.count()) == ("", 0)
