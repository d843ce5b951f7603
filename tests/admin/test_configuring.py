"""Agents set up by their tenant's owners and admins; keys shown once; what decides who can read is not theirs."""

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
from memory.models import Agent, AgentKey, Person, TenantKey
from refinement.api.tenant import NewAgentIn, SettingsIn
from tests import steps
from tests.admin.acting import confirm, post
from tests.admin.conftest import Enter
from tests.conftest import OPERATOR, House
from tests.privacy.marker import MARKER
from tests.steps import fresh

Staff = dict[str, Person]
ROLES = [("owner", True), ("admin", True), ("superuser", True), ("auditor", False), ("stranger", False)]
SETTINGS = {"budget_tokens": "9000", "target_tokens": "4000", "refine_every": "3 00:00:00"}
NEW_AGENT = "/admin/memory/agent/new/"
NEW_KEY = "/admin/memory/tenantkey/new/"


def page(agent: Agent, name: str) -> str:
    return reverse(f"admin:memory_agent_{name}", args=[agent.pk])


def new_agent(house: House, **instead: str) -> dict[str, str]:
    made = {"tenant": str(house.ada.tenant.pk), "agent": "eve", "model": "builtin/dedupe", "language": "english"}
    return made | SETTINGS | instead


def key_in(answer: Any) -> str:
    return re.search(r"palt?_[a-z0-9]{12}_[A-Za-z0-9_-]+", answer.content.decode()).group()


def test_the_forms_offer_what_the_api_takes() -> None:
    """The tenant's programs and its people set the same things."""
    assert set(SettingsForm.base_fields) == set(SettingsIn().get_fields())
    assert set(NewAgentForm.base_fields) - {"tenant"} == set(NewAgentIn().get_fields()) - {"paused"}


def test_who_may_add_an_agent(staff: Staff, house: House, enter: Enter) -> None:
    for role, may in ROLES:
        client = enter(role)
        assert client.get(NEW_AGENT).status_code == (200 if may else 403)
        answer = client.post(NEW_AGENT, new_agent(house, agent=role, steward="sam@acme.test"))
        assert answer.status_code == (200 if may else 403), role
        made = Agent.objects.filter(slug=role).first()
        assert (made is not None) == may, role
        if made is not None:
            assert (made.label, made.steward, made.budget_tokens) == (f"acme/{role}", "sam@acme.test", 9_000)
            assert made.refine_every == timedelta(days=3)
            assert authentication.is_key_of(made, key_in(answer))
            by = AuditEntry.objects.filter(agent_id=made.pk).values_list("actor_kind", "actor_label").distinct()
            assert list(by) == [(ActorKind.PERSON, staff[role].email)]


@pytest.mark.parametrize(("role", "may"), ROLES)
def test_who_may_set_an_agent_up(role: str, may: bool, staff: Staff, ada: Agent, enter: Enter) -> None:
    client, refused = enter(role), (404 if role == "stranger" else 403)
    listed = client.get(reverse("admin:memory_agent_change", args=[ada.pk])).content.decode()
    for name in ("change_settings", "create_first_key"):
        assert client.get(page(ada, name)).status_code == (200 if may else refused)
        assert (page(ada, name) in listed) == may, "the button"
    assert client.post(page(ada, "change_settings"), SETTINGS).status_code == (302 if may else refused)
    assert client.post(page(ada, "create_first_key"), {"label": "x"}).status_code == (200 if may else refused)
    key = AgentKey.objects.filter(agent=ada).order_by("pk").first()
    assert confirm(client, "revoke_key", key).status_code == (302 if may else 403)
    ada, key = fresh(ada), AgentKey.objects.get(pk=key.pk)
    assert (ada.budget_tokens, ada.target_tokens) == ((9_000, 4_000) if may else (8_000, 5_000))
    assert (key.revoked_at is not None) == may
    assert AgentKey.objects.filter(agent=ada).count() == (2 if may else 1)
    mine = AuditEntry.objects.filter(agent_id=ada.pk, actor_label=staff[role].email, actor_kind=ActorKind.PERSON)
    done = [Operation.AGENT_CHANGED, Operation.KEY_ISSUED, Operation.KEY_REVOKED] if may else []
    assert list(mine.order_by("seq").values_list("operation", flat=True)) == done


def test_another_tenants_agent_is_as_one_that_is_not_there(house: House, enter: Enter) -> None:
    before = AuditEntry.objects.filter(agent_id=house.bob.pk).count()
    tenants.issue_key("globex")
    theirs = (AgentKey.objects.get(agent=house.bob), TenantKey.objects.get(), AgentKey(pk=99_999_999))
    pages = itertools.product(
        ("change_settings", "keys", "create_first_key"), (house.bob.pk, 99_999_999, "x", 10**30, "\0")
    )
    addresses = [reverse(f"admin:memory_agent_{name}", args=[pk]) for name, pk in pages]
    for role in ("owner", "admin", "auditor", "stranger"):
        client = enter(role)
        for address in addresses:
            assert client.get(address).status_code == client.post(address, SETTINGS).status_code == 404
        for key in theirs:
            assert confirm(client, "revoke_key", key).status_code == (404 if role in ("owner", "admin") else 403)
        client.post(NEW_AGENT, new_agent(house, tenant=str(house.bob.tenant.pk)))
        client.post(NEW_KEY, {"tenant": str(house.bob.tenant.pk)})
    assert AuditEntry.objects.filter(agent_id=house.bob.pk).count() == before
    assert (Agent.objects.count(), AgentKey.objects.count(), TenantKey.objects.count()) == (2, 2, 1)
    assert not AgentKey.objects.exclude(revoked_at=None).exists()
    assert not TenantKey.objects.exclude(revoked_at=None).exists()


def test_what_the_agents_side_decides_is_not_set_here(ada: Agent, client: Client) -> None:
    forged = {"model": "openai/gpt", "steward": "eve@acme.test", "is_steward_only": "on", "system_prompt": "x"}
    forged |= {"retention": "0.50", "language": "german", "refinement_prompt": "x", "memory_enabled": "", "slug": "x"}
    for address in (page(ada, "change_settings"), reverse("admin:memory_agent_change", args=[ada.pk])):
        client.post(address, SETTINGS | forged)
    after = fresh(ada)
    same = (*forged, "wrapped_key")
    assert [getattr(after, name) for name in same] == [getattr(ada, name) for name in same]


def test_opening_a_page_changes_nothing(house: House, client: Client) -> None:
    addresses = [page(house.ada, "change_settings"), page(house.ada, "create_first_key"), NEW_AGENT, NEW_KEY]
    before = AuditEntry.objects.count(), AgentKey.objects.count()
    for address in addresses:
        assert client.get(address, new_agent(house) | {"label": "x", "post": "yes"}).status_code == 200
    assert (AuditEntry.objects.count(), AgentKey.objects.count()) == before
    assert not TenantKey.objects.exists()


WRONG = [
    ({"target_tokens": "9001"}, "not be more than the budget"),
    ({"budget_tokens": "-1"}, "greater than or equal to 1"),
    ({"budget_tokens": "x"}, "whole number"),
    ({"budget_tokens": "9" * 5_000}, "whole number"),
    ({"budget_tokens": str(2**31)}, "less than or equal to"),
    ({"budget_tokens": ""}, "required"),
    ({"budget_tokens": "\0"}, "whole number"),
    ({"refine_every": "00:59:59"}, "from one hour to ten years"),
    ({"refine_every": "3653 00:00:00"}, "from one hour to ten years"),
    ({"refine_every": "999999999999 00:00:00"}, "days must be between"),
    ({"refine_every": "soon"}, "valid duration"),
    ({"refine_every": "\0"}, "valid duration"),
    ({"max_steps": "-1"}, "greater than or equal to 0"),
    ({"max_model_tokens": str(2**53 + 1)}, "less than or equal to"),
]


def test_settings_that_are_none(ada: Agent, client: Client) -> None:
    seq = fresh(ada).audit_seq
    for wrong, told in WRONG:
        answer = client.post(page(ada, "change_settings"), SETTINGS | wrong)
        assert answer.status_code == 200, wrong
        assert told in answer.content.decode(), wrong
    assert (fresh(ada).budget_tokens, fresh(ada).audit_seq) == (8_000, seq)


def test_a_cadence_is_switched_off_and_an_agent_paused(ada: Agent, enter: Enter) -> None:
    client = enter("admin")
    settings = SETTINGS | {"refine_every": "", "paused": "on", "max_steps": "5", "last_n": "5", "max_entries": ""}
    assert client.post(page(ada, "change_settings"), settings)
    after = fresh(ada)
    assert (after.refine_every, after.paused, after.max_steps) == (None, True, 5)
    assert (after.last_n, after.max_entries, after.context_tokens) == (5, 0, None)
    shown = client.get(page(ada, "change_settings")).content.decode()
    assert re.search(r'name="paused"[^>]*checked', shown)
    seq = after.audit_seq
    assert client.post(page(ada, "change_settings"), settings)
    assert fresh(ada).audit_seq == seq, "the same again is no change"


NONE: list[tuple[str, str, list[str]]] = [
    ("agent", "The agent acme/ada already exists", ["ada"]),
    ("agent", "required", [""]),
    ("agent", "lower-case letters", ["A b", "\ud800"]),
    ("agent", "at most 64 characters", ["a" * 65]),
    ("model", "provider/name", ["gpt"]),
    ("model", "control character", ["openai/\x07"]),
    ("model", "at most 200 characters", ["x" * 201]),
    ("model", "The only built-in model is builtin/dedupe.", ["builtin/nothing"]),
    ("model", "openai, anthropic, ollama, builtin", ["nobody/knows"]),
    ("language", "at most 32 characters", ["x" * 33]),
    ("language", "Must be one of: arabic, ", ["klingon"]),
    ("steward", "valid email", ["sam", "a@b.test\nBcc: c@d.test"]),
    ("steward", "plain email address", ['"ab"@b.test']),
    ("tenant", "not one of the available choices", ["99999999", "9" * 5_000]),
    ("budget_tokens", "greater than or equal to 1", ["0"]),
    ("target_tokens", "not be more than the budget", ["9001"]),
    ("target_tokens", "greater than or equal to 1", ["0"]),
    ("refine_every", "from one hour to ten years", ["00:00:01"]),
    *((name, "Null characters", ["a\0"]) for name in ("agent", "model", "tenant")),
]


def test_an_agent_that_is_none(house: House, client: Client) -> None:
    for field, told, value in ((field, told, value) for field, told, values in NONE for value in values):
        form = urlencode(new_agent(house) | {field: value}, errors="surrogatepass")
        answer = client.post(NEW_AGENT, form, content_type="application/x-www-form-urlencoded")
        assert told in " ".join(answer.context["form"].errors[field if "already" not in told else "__all__"])
    assert Agent.objects.count() == 2


# --- what is its own side's to accept -------------------------------------------------------------------------------


def test_who_may_propose_a_change(staff: Staff, ada: Agent, enter: Enter) -> None:
    for role, may in ROLES:
        client, refused = enter(role), (404 if role == "stranger" else 403)
        assert client.get(page(ada, "propose")).status_code == (200 if may else refused)
        form = {"model": "openai/gpt", "steward": f"{role}@else.test"}
        assert client.post(page(ada, "propose"), form).status_code == (302 if may else refused)
    entries = AuditEntry.objects.filter(agent_id=ada.pk, operation=Operation.CHANGE_PROPOSED).order_by("seq")
    assert [entry.actor_label for entry in entries] == [staff[role].email for role, may in ROLES if may]
    assert (fresh(ada).model, fresh(ada).steward) == ("builtin/dedupe", ""), "until its own side accepts"


NO_PROPOSALS = [
    ({}, "changes nothing"),
    ({"model": "gpt"}, "provider/name"),
    ({"model": "builtin/nothing"}, "The only built-in model is builtin/dedupe."),
    ({"model": "\0"}, "Null characters"),
    ({"steward": "sam"}, "valid email"),
    ({"steward": "a%b.test@c.test"}, "plain email address"),
    ({"model": ""}, "required"),
    ({"memory_path": "/etc/passwd"}, "Must be under"),
    ({"memory_path": "../globex/bob.md"}, "Must be under"),
]


def test_a_proposal_that_is_none(house: House, client: Client) -> None:
    for wrong, told in NO_PROPOSALS:
        answer = client.post(page(house.ada, "propose"), {"model": "builtin/dedupe"} | wrong)
        assert answer.status_code == 200
        assert told in answer.content.decode(), wrong
    assert client.post(page(house.bob, "propose"), {"model": "openai/gpt"}).status_code == 404
    assert not AuditEntry.objects.filter(operation=Operation.CHANGE_PROPOSED).exists()


def test_a_memory_file_is_proposed_and_shown(ada: Agent, enter: Enter, settings: Any, tmp_path: Path) -> None:
    settings.VAULT_ROOTS = [str(tmp_path)]
    client, shown = enter("owner"), reverse("admin:memory_agent_change", args=[ada.pk])
    form = {"model": ada.model, "steward": ada.steward, "memory_path": "ada.md"}
    assert client.post(page(ada, "propose"), form).status_code == 302
    path = f"{tmp_path}/acme/ada.md"
    assert f"its memory file: {path}" in client.get(shown).content.decode()
    assert "the agent&#x27;s memory, encrypted" in client.get(shown).content.decode()
    proposals.accept(fresh(ada), steps.last_entry(ada).seq, steps.ME)
    assert f"{path}, in clear text" in client.get(shown).content.decode()


# --- keys -----------------------------------------------------------------------------------------------------------


def test_a_key_is_shown_once_and_kept_nowhere(house: House, client: Client, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger().addHandler(handler)
    answers = [
        client.post(NEW_AGENT, new_agent(house)),
        client.post(page(house.ada, "create_first_key"), {"label": "x"}),
        client.post(NEW_KEY, {"tenant": str(house.ada.tenant.pk), "label": "x"}),
    ]
    logging.getLogger().removeHandler(handler)
    for answer in answers:
        assert answer.status_code == 200
        assert "no-store" in answer.headers["Cache-Control"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert "Authorization: Bearer KEY" in answer.content.decode()
    assert all("POST /api/v1/agent/keys" in answer.content.decode() for answer in answers[:2])
    kept = [*AgentKey.objects.values(), *TenantKey.objects.values(), *LogEntry.objects.values()]
    kept += [*AuditEntry.objects.values(), *Session.objects.values()]
    kept += [row.get_decoded() for row in Session.objects.all()]
    kept += [str(message) for answer in answers for message in get_messages(answer.wsgi_request)]
    kept += [caplog.text, said.getvalue()]
    lists = ("agent", "agentkey", "tenantkey", "membership")
    kept += [client.get(f"/admin/memory/{name}/").content.decode() for name in lists]
    for answer in answers:
        secret = key_in(answer).split("_", 2)[2]
        assert len(secret) > 40
        assert secret not in str(kept)


def test_a_runtimes_own_silo_is_given_no_key_nor_is_a_label_that_is_none(ada: Agent, client: Client) -> None:
    for label, address in itertools.product(("x" * 101, "\0"), (page(ada, "create_first_key"), NEW_KEY)):
        assert client.post(address, {"label": label, "tenant": str(ada.tenant_id)}).status_code == 200
    assert (AgentKey.objects.count(), TenantKey.objects.count()) == (2, 0)
    lifecycle.exchange_key(AgentKey.objects.get(agent=ada), OPERATOR)
    assert "side can issue a key" in client.post(page(ada, "create_first_key"), {"label": ""}).content.decode()
    steps.remember(ada, f"{MARKER} likes tea")
    assert page(ada, "create_first_key") not in client.get(page(ada, "change")).content.decode()


def test_the_keys_of_an_agent_are_listed_by_name_alone(house: House, enter: Enter) -> None:
    client = enter("admin")
    moved = client.get(page(house.ada, "keys"))
    shown = client.get(moved.headers["Location"]).content.decode()
    assert AgentKey.objects.get(agent=house.ada).prefix in shown
    assert AgentKey.objects.get(agent=house.bob).prefix not in shown


def test_a_key_is_revoked_once_it_is_confirmed(house: House, enter: Enter) -> None:
    client, key = enter("admin"), AgentKey.objects.get(agent=house.ada)
    assert "never used" in post(client, "revoke_key", key).content.decode()
    assert authentication.is_key_of(house.ada, house.ada_key)
    for _ in range(2):
        assert confirm(client, "revoke_key", key).status_code == 302
    assert not authentication.is_key_of(house.ada, house.ada_key)
    assert AuditEntry.objects.filter(agent_id=house.ada.pk, operation=Operation.KEY_REVOKED).count() == 1


def test_who_may_make_and_end_a_tenants_keys(house: House, enter: Enter) -> None:
    for role, may in ROLES:
        client = enter(role)
        answer = client.post(NEW_KEY, {"tenant": str(house.ada.tenant.pk), "label": role})
        assert TenantKey.objects.filter(label=role).exists() == may
        if may:
            key = key_in(answer)
            assert authentication.either_key(key).tenant == house.ada.tenant
            assert confirm(client, "revoke_key", TenantKey.objects.get(label=role)).status_code == 302
            with pytest.raises(KeyRejected):
                authentication.either_key(key)


def test_that_a_steward_cannot_be_asked_is_told_before_the_form_is_filled_in(
    house: House, enter: Enter, settings: Any
) -> None:
    client, addresses = enter("owner"), [page(house.ada, "propose"), NEW_AGENT]
    assert not any("EMAIL_URL" in client.get(address).content.decode() for address in addresses)
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    assert all("a steward cannot receive requests" in client.get(address).content.decode() for address in addresses)
    Agent.objects.filter(pk=house.ada.pk).update(steward="stew@else.test")
    assert "This request will be refused." in client.get(page(house.ada, "propose")).content.decode()
    answer = client.post(page(house.ada, "propose"), {"model": "openai/gpt"})
    assert "Ask the operator to set EMAIL_URL, such as smtp+tls://" in answer.content.decode()
    assert not AuditEntry.objects.filter(operation=Operation.CHANGE_PROPOSED).exists()


def test_the_languages_there_are_can_be_chosen(house: House, client: Client) -> None:
    shown = client.get(NEW_AGENT).content.decode()
    for name in ("german", "other"):
        assert f'<option value="{name}">' in shown
        assert client.post(NEW_AGENT, new_agent(house, agent=name, language=name)).status_code == 200
        assert Agent.objects.get(slug=name).language == name
