"""A provider that is down costs a few calls and a session or two, not one of each agent. When it is back, all go on.

The clock is moved on by the minute; the workers' tasks are carried out as they would be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent
from refinement import tasks
from refinement.llm import connections, http
from refinement.models import Outcome, RefinementSession
from tests import queueing, refining
from tests.model_server import NO_PAUSES, Action, Call, ModelServer, Slow, Status, Turn

ME = Actor.operator("tests")
MINUTE = timedelta(minutes=1)
DONE = Call("complete_refinement", {"summary": "Nothing to do."})


class Model:
    """One that can be switched off."""

    def __init__(self) -> None:
        self.trouble: Action | None = Status(503)

    def __call__(self, turn: Turn) -> Action:
        return self.trouble or DONE


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def server(model: Model, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setattr(http, "PAUSES", NO_PAUSES)
    with ModelServer(model) as server:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        settings.MODEL_CALL_SECONDS = 1
        yield server
    connections.close_clients()


def crowd(count: int, model: str = "openai/scripted") -> list[Agent]:
    """So many agents of three tenants, all due."""
    made = [lifecycle.create(f"t{n % 3}", f"a{n}", model=model, actor=ME)[0] for n in range(count)]
    for agent in made:
        refining.change(agent, due_at=timezone.now() - MINUTE, due_reason="weekly")
    return made


def outcomes() -> Counter[str]:
    return Counter(RefinementSession.objects.values_list("outcome", flat=True))


def work_for(minutes: int, clock: time_machine.Traveller, server: ModelServer) -> list[int]:
    """Let workers work; the calls the provider had in each minute."""
    calls = []
    for minute in range(minutes):
        before = len(server.requests)
        tasks.close_stale() if minute % 5 else tasks.sweep()
        queueing.work()
        calls.append(len(server.requests) - before)
        clock.shift(MINUTE)
    return calls


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(timezone.now(), tick=False) as traveller:
        yield traveller


@pytest.mark.parametrize(("trouble", "failed"), [(Status(503), 1), (Status(429), 1), (Slow(5), 2)])
def test_an_hour_of_it_fails_a_session_or_two_not_one_of_each_agent(
    trouble: Action,
    failed: int,
    db: None,
    model: Model,
    server: ModelServer,
    clock: time_machine.Traveller,
    settings: Any,
) -> None:
    model.trouble = trouble
    settings.MODEL_CALL_SECONDS = 0.2 if isinstance(trouble, Slow) else 5
    crowd(20)
    calls = work_for(50, clock, server)
    assert max(calls) <= 5
    assert sum(calls) >= 10, "it is looked for"
    assert outcomes() == {Outcome.FAILED: failed}
    model.trouble = None
    settings.MODEL_CALL_SECONDS = 5
    work_for(6, clock, server)
    assert outcomes() == {Outcome.FAILED: failed, Outcome.COMPLETED: 20 - failed}
    clock.shift(64 * MINUTE)
    work_for(6, clock, server)
    assert outcomes() == {Outcome.FAILED: failed, Outcome.COMPLETED: 20}, "the first after their hour"


def test_agents_of_other_providers_go_on(
    db: None, model: Model, server: ModelServer, clock: time_machine.Traveller
) -> None:
    crowd(20)
    others = crowd_of_others()
    work_for(1, clock, server)
    assert set(RefinementSession.objects.filter(outcome="completed").values_list("agent_id", flat=True)) == others


def test_who_waits_for_it_takes_nobodys_place_in_line(
    db: None, model: Model, server: ModelServer, clock: time_machine.Traveller, settings: Any
) -> None:
    """However many they are, and of however many tenants; nor does one of them keep the line from being filled."""
    settings.SWEEP_AGENTS = 3
    for number in range(12):
        agent, _ = lifecycle.create(f"s{number}", "a", model="openai/scripted", actor=ME)
        refining.change(agent, due_at=timezone.now() - timedelta(days=1), due_reason="weekly")
    work_for(1, clock, server)
    others = crowd_of_others()
    clock.shift(4 * MINUTE)
    work_for(1, clock, server)
    assert set(RefinementSession.objects.filter(outcome="completed").values_list("agent_id", flat=True)) == others
    model.trouble = None
    work_for(6, clock, server)
    assert outcomes() == {Outcome.FAILED: 1, Outcome.COMPLETED: 11 + len(others)}, "and they come in one go"


def crowd_of_others() -> set[int]:
    made = [lifecycle.create("other", f"b{n}", model="builtin/dedupe", actor=ME)[0] for n in range(5)]
    for agent in made:
        refining.change(agent, due_at=timezone.now(), due_reason="weekly")
    return {agent.pk for agent in made}


def test_a_model_that_refuses_is_there(
    db: None, model: Model, server: ModelServer, clock: time_machine.Traveller
) -> None:
    """A wrong key or name is each agent's own trouble, and no reason to leave the others waiting."""
    model.trouble = Status(404)
    crowd(5)
    work_for(1, clock, server)
    assert outcomes() == {Outcome.FAILED: 5}
    assert set(RefinementSession.objects.values_list("reason", flat=True)) == {"model_refused"}


def test_looking_for_it_says_nothing_of_any_memory(
    db: None, model: Model, server: ModelServer, clock: time_machine.Traveller
) -> None:
    for agent in crowd(3):
        refining.fill(agent, 3, 30)
    work_for(20, clock, server)
    looks = [request.body for request in server.requests[2:]]
    assert server.refused == []
    assert looks
    assert all([said["content"] for said in body["messages"]] == ["Answer with one word: yes."] for body in looks)


def test_an_agent_that_stays_over_its_budget_is_refined_once_a_day(
    db: None, model: Model, server: ModelServer, clock: time_machine.Traveller
) -> None:
    """Not at every sweep; and not by its weekly date besides."""
    model.trouble = None
    [agent] = crowd(1)
    refining.change(agent, budget_tokens=100, target_tokens=80)
    refining.fill(agent, 6, 40)
    days = []
    for _ in range(2):
        before = RefinementSession.objects.count()
        for _ in range(144):
            tasks.sweep()
            queueing.work()
            clock.shift(10 * MINUTE)
        days.append(RefinementSession.objects.count() - before)
    assert days == [1, 1]
