"""A provider that is down costs a few calls and one or two sessions, not one of each agent. Then all continue.

The clock moves by a minute; the tests carry out the tasks of workers.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from memory.models import Agent
from refinement import tasks
from refinement.models import Outcome, RefinementSession
from tests import queueing, refining
from tests.fault.playing import DONE, MINUTE, due
from tests.model_server import Action, ModelServer, Slow, Status, Turn

pytestmark = pytest.mark.django_db


class Outage:
    """A provider that fails until `trouble` is None, the clock, and workers."""

    def __init__(self, clock: time_machine.Traveller) -> None:
        self.clock, self.trouble = clock, Status(503)
        self.server: ModelServer

    def reply(self, turn: Turn) -> Action:
        return self.trouble or DONE

    def work(self, minutes: int) -> list[int]:
        """Let workers work; the number of calls in each minute."""
        calls = []
        for minute in range(minutes):
            before = len(self.server.requests)
            tasks.close_stale() if minute % 5 else tasks.sweep()
            queueing.work()
            calls.append(len(self.server.requests) - before)
            self.clock.shift(MINUTE)
        return calls


@pytest.fixture
def outage(clock: time_machine.Traveller, serve: Any, settings: Any) -> Outage:
    outage = Outage(clock)
    outage.server = serve(outage.reply)
    settings.MODEL_CALL_SECONDS = 1
    return outage


def create_due(count: int) -> list[Agent]:
    """So many agents of three tenants with a model of the provider, all due."""
    return [due(f"t{n % 3}", f"a{n}", "openai/scripted") for n in range(count)]


def create_others() -> set[int]:
    """Due agents that need no provider."""
    return {due("other", f"b{n}").pk for n in range(5)}


def outcomes() -> Counter[str]:
    return Counter(RefinementSession.objects.values_list("outcome", flat=True))


def completed() -> set[int]:
    return set(RefinementSession.objects.filter(outcome="completed").values_list("agent_id", flat=True))


@pytest.mark.parametrize(("trouble", "failed"), [(Status(503), 1), (Status(429), 1), (Slow(5), 2)])
def test_an_hour_of_failure_fails_one_or_two_sessions(
    trouble: Action, failed: int, outage: Outage, settings: Any
) -> None:
    outage.trouble = trouble
    settings.MODEL_CALL_SECONDS = 0.2 if isinstance(trouble, Slow) else 5
    create_due(20)
    calls = outage.work(50)
    assert max(calls) <= 5
    assert sum(calls) >= 10, "the provider is checked"
    assert outcomes() == {Outcome.FAILED: failed}
    outage.trouble = None
    settings.MODEL_CALL_SECONDS = 5
    outage.work(6)
    assert outcomes() == {Outcome.FAILED: failed, Outcome.COMPLETED: 20 - failed}
    outage.clock.shift(64 * MINUTE)
    outage.work(6)
    assert outcomes() == {Outcome.FAILED: failed, Outcome.COMPLETED: 20}, "the failed ones after their hour"


def test_agents_of_other_providers_continue(outage: Outage) -> None:
    create_due(20)
    others = create_others()
    outage.work(1)
    assert completed() == others


def test_agents_that_wait_for_a_provider_take_no_place_of_others(outage: Outage, settings: Any) -> None:
    """They are more than one sweep queues, and of as many tenants."""
    settings.SWEEP_AGENTS = 3
    for number in range(12):
        agent = due(f"s{number}", "a", "openai/scripted")
        refining.change(agent, due_at=timezone.now() - timedelta(days=1))
    outage.work(1)
    others = create_others()
    outage.clock.shift(4 * MINUTE)
    outage.work(1)
    assert completed() == others
    outage.trouble = None
    outage.work(6)
    assert outcomes() == {Outcome.FAILED: 1, Outcome.COMPLETED: 11 + len(others)}, "they all complete at once"


def test_a_model_that_refuses_is_not_down(outage: Outage) -> None:
    """A wrong key or name concerns one agent, and does not make others wait."""
    outage.trouble = Status(404)
    create_due(5)
    outage.work(1)
    assert outcomes() == {Outcome.FAILED: 5}
    assert set(RefinementSession.objects.values_list("reason", flat=True)) == {"model_refused"}


def test_a_check_of_a_provider_sends_no_memory(outage: Outage) -> None:
    for agent in create_due(3):
        refining.fill(agent, 3, 30)
    outage.work(20)
    checks = [request.body for request in outage.server.requests[2:]]
    assert outage.server.refused == []
    assert checks
    assert all([each["content"] for each in body["messages"]] == ["Answer with one word: yes."] for body in checks)


def test_an_agent_that_stays_over_its_budget_is_refined_once_a_day(outage: Outage) -> None:
    """Neither at every sweep, nor by its weekly date in addition."""
    outage.trouble = None
    [agent] = create_due(1)
    refining.change(agent, budget_tokens=100, target_tokens=80)
    refining.fill(agent, 6, 40)
    days = []
    for _ in range(2):
        before = RefinementSession.objects.count()
        for _ in range(144):
            tasks.sweep()
            queueing.work()
            outage.clock.shift(10 * MINUTE)
        days.append(RefinementSession.objects.count() - before)
    assert days == [1, 1]
