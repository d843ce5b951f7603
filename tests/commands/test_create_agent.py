"""create_agent: one line of JSON with the key, and refusals that create nothing."""

from __future__ import annotations

import re

import pytest

from audit.models import AuditEntry
from memory.access import authentication
from memory.models import Agent, AgentKey, Tenant
from tests import steps
from tests.commands.calling import Ran, failed, run
from tests.conftest import House

pytestmark = pytest.mark.django_db


def create(label: str = "acme/ada", *more: str, model: str = "builtin/dedupe") -> Ran:
    return run("create_agent", label, "--model", model, *more)


def test_the_key_is_printed_once_as_json_and_not_stored() -> None:
    ran = create()
    key = ran.json["key"]
    assert re.fullmatch(r"pal_[a-z0-9]{12}_[A-Za-z0-9_-]{43}", key)
    assert (ran.code, ran.out) == (0, f'{{"tenant": "acme", "agent": "ada", "key": "{key}"}}\n')
    assert authentication.agent_of_key(key).label == "acme/ada"
    stored = repr(list(AgentKey.objects.values()) + list(AuditEntry.objects.values()))
    assert (key in ran.err, key.split("_", 2)[2] in stored) == (False, False)
    assert [e.operation for e in AuditEntry.objects.order_by("seq")] == ["agent_created", "key_issued"]
    assert steps.problems(Agent.objects.get()) == []


def test_an_existing_agent_is_refused_and_not_changed(house: House) -> None:
    before = steps.state(house.ada)
    failed(create(), 1, "acme/ada already exists")
    assert steps.state(house.ada) == before
    assert AgentKey.objects.filter(agent=house.ada).count() == 1


def test_settings_are_stored() -> None:
    create("acme/ada", "--steward", "sue@acme.test", "--budget", "900", "--target", "500", "--memory-off")
    agent = Agent.objects.get()
    assert (agent.steward, agent.budget_tokens, agent.target_tokens) == ("sue@acme.test", 900, 500)
    assert agent.memory_enabled is False


def test_a_bad_label_model_or_setting_is_a_usage_error_and_creates_nothing() -> None:
    labels = ["acme", "/ada", "", "Acme/ada", "acme/a da", "acme/a/b", "acme/a-", "acme/ädа", "acme/a\n", "../x"]
    for label in (*labels, "acme/" + "x" * 65):
        failed(create(label), 2, "error:")
    for model in ("openai", "/x", "", "palm/x"):
        failed(create(model=model), 2, "error:")
    for model in ("builtin/nope", "openai/a\x1b[2J", " openai/gpt", "openai/" + "x" * 194):
        failed(create(model=model), 2, "error: model:")
    settings = [("steward", "not-an-address"), ("target", "9000"), *(("budget", n) for n in ("many", "0", str(2**31)))]
    for option, value in settings:
        failed(create("acme/ada", f"--{option}", value), 2, option)
    assert not Tenant.objects.exists()
    assert create(f"{'t' * 64}/{'a' * 64}").code == 0


def test_the_target_follows_a_smaller_budget() -> None:
    for number, (budget, target) in enumerate([(100, 63), (1, 1), (2_147_483_647, 5_000)]):
        assert create(f"acme/ada{number}", "--budget", str(budget)).code == 0
        assert Agent.objects.get(slug=f"ada{number}").target_tokens == target
