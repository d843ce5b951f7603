from __future__ import annotations

import re
from typing import Any

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


def test_prints_the_key_once_as_json_and_nothing_else() -> None:
    ran = create()
    assert ran.code == 0
    assert list(ran.json) == ["tenant", "agent", "key"]
    assert (ran.json["tenant"], ran.json["agent"]) == ("acme", "ada")
    assert re.fullmatch(r"pal_[a-z0-9]{12}_[A-Za-z0-9_-]{43}", ran.json["key"])
    assert ran.out == f'{{"tenant": "acme", "agent": "ada", "key": "{ran.json["key"]}"}}\n'
    assert ran.json["key"] not in ran.err


def test_the_key_opens_that_agent_and_is_nowhere_in_the_database() -> None:
    key = create().json["key"]
    assert authentication.agent_of_key(key).label == "acme/ada"
    stored = repr(list(AgentKey.objects.values()) + list(AuditEntry.objects.values()))
    assert key.split("_", 2)[2] not in stored


def test_makes_the_tenant_once() -> None:
    create("acme/ada")
    create("acme/bob")
    assert Tenant.objects.get().agents.count() == 2


def test_an_existing_agent_is_refused_and_left_as_it_is(house: House) -> None:
    before = steps.state(house.ada)
    failed(create(), 1, "already an agent acme/ada")
    assert steps.state(house.ada) == before
    assert AgentKey.objects.filter(agent=house.ada).count() == 1


def test_settings_are_kept() -> None:
    create("acme/ada", "--steward", "sue@acme.test", "--budget", "900", "--target", "500", "--memory-off")
    agent = Agent.objects.get()
    assert (agent.steward, agent.budget_tokens, agent.target_tokens) == ("sue@acme.test", 900, 500)
    assert agent.memory_enabled is False


def test_its_trail_begins_with_its_making() -> None:
    create()
    agent = Agent.objects.get()
    assert [e.operation for e in AuditEntry.objects.order_by("seq")] == ["agent_created", "key_issued"]
    assert steps.problems(agent) == []


@pytest.mark.parametrize("model", ["openai", "openai/", "/x", "", "palm/x", "OpenAI/x"])
def test_an_unknown_model_is_a_usage_error(model: str) -> None:
    failed(create(model=model), 2, "error:")
    assert not Tenant.objects.exists()


@pytest.mark.parametrize(
    "label",
    ["acme", "acme/", "/ada", "/", "", "Acme/ada", "acme/ADA", "acme/a da", "acme/a/b", "acme/-a", "acme/a-", "a..b/c"]
    + ["acme/ädа", "acme/" + "x" * 65, "x" * 65 + "/ada", "acme/a\n", "acme/a;b", "../x"],
)
def test_a_bad_label_is_a_usage_error(label: str) -> None:
    failed(create(label), 2, "error:")
    assert not Tenant.objects.exists()


def test_labels_of_64_characters_are_taken() -> None:
    assert create(f"{'t' * 64}/{'a' * 64}").code == 0


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--steward", "not-an-address"], "steward"),
        (["--steward", '"sue"@acme.test'], "plain e-mail address"),
        (["--target", "9000"], "target"),
        (["--target", "0"], "target"),
        (["--budget", "-1"], "budget"),
        (["--budget", "many"], "budget"),
        (["--budget", "9" * 30], "budget"),
    ],
)
def test_a_bad_setting_is_a_usage_error(more: list[str], word: str) -> None:
    failed(create("acme/ada", *more), 2, word)
    assert not Tenant.objects.exists()


def test_a_model_must_be_given() -> None:
    failed(run("create_agent", "acme/ada"), 2, "--model")


def test_no_network_and_no_provider_key_is_needed_to_make_an_agent(settings: Any) -> None:
    settings.OPENAI_API_KEY = ""
    assert create(model="openai/gpt-4.1").code == 0


@pytest.mark.parametrize(
    "model", ["builtin/nope", "openai/a\nb", "openai/a\x1b[2J", "openai/gpt ", " openai/gpt", "openai/" + "x" * 194]
)
def test_a_model_that_can_be_nobodys_is_refused_by_its_field(model: str) -> None:
    failed(create(model=model), 2, "error: model:")
    assert not Tenant.objects.exists()


def test_a_budget_past_the_column_is_refused_by_its_field() -> None:
    failed(create("acme/ada", "--budget", "99999999999999"), 2, "error: budget:", "2,147,483,647")
    assert create("acme/ada", "--budget", "2147483647").code == 0


@pytest.mark.parametrize(("budget", "target"), [(100, 63), (1, 1), (8_000, 5_000), (100_000, 5_000)])
def test_the_target_follows_a_smaller_budget(db: None, budget: int, target: int) -> None:
    assert create("acme/ada", "--budget", str(budget)).code == 0
    assert Agent.objects.get(slug="ada").target_tokens == target
