"""Attempts to shut a provider for all agents, and to keep it shut."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone
from django_q.models import Schedule

from config import queue
from memory.agents import lifecycle
from memory.models import Agent
from refinement import backlog, knife, loop, providers, scheduling, tasks
from refinement import session as sessions
from refinement.errors import BackingOff, SessionOpen
from refinement.models import Driver, Provider, RefinementSession, Waiting
from tests import queueing
from tests.conftest import OPERATOR
from tests.fault.playing import DONE, MINUTE, due
from tests.model_server import Action, Slow, Status, Turn

pytestmark = [pytest.mark.database, pytest.mark.django_db]

MODELS: dict[str, Action] = {
    "bad": Status(429),
    "over": Status(429, {"Retry-After": "86400"}),
    "usual": Slow(1.5, then=DONE),
    "slow": Slow(2, then=DONE),
}


def by_model(turn: Turn) -> Action:
    return MODELS.get(turn.model, DONE)


def work() -> None:
    tasks.sweep()
    queueing.work()


def decline(agent: Agent) -> None:
    """Open a session of the runtime and decline it, which removes the back-off of a failed agent."""
    agent.refresh_from_db()
    if agent.failures_in_a_row:
        session = sessions.open_session(agent, trigger="agent", driver=Driver.RUNTIME)
        knife.call(agent, session.number, "decline_refinement", {"reason": "no"})


def test_a_tenant_with_short_sessions_shuts_no_provider(serve: Any) -> None:
    """The server answers within 2 seconds, as usual. A tenant may set max_seconds to any number."""
    serve(by_model)
    for n in range(2):
        due("hostile", f"a{n}", "openai/slow", max_seconds=1)
    work()
    assert providers.closed() == {}


def test_a_model_over_its_quota_shuts_no_other_model(serve: Any, settings: Any) -> None:
    serve(by_model)
    settings.MODEL_CALL_SECONDS = 2
    due("hostile", "a", "openai/bad")
    work()
    assert set(providers.closed()) == {"openai/bad"}


def test_a_runtime_cannot_have_a_failing_model_called_repeatedly(
    serve: Any, settings: Any, clock: time_machine.Traveller
) -> None:
    serve(by_model)
    settings.MODEL_CALL_SECONDS = 2
    agent = due("hostile", "a", "openai/bad")
    due("hostile", "a2")
    refused = 0
    for _ in range(6):
        try:
            backlog.request(agent)
        except BackingOff:
            refused += 1
        queueing.work()
        decline(agent)
        clock.shift(6 * MINUTE)
    assert (RefinementSession.objects.filter(outcome="failed").count(), refused) == (1, 5)


def test_one_agent_does_not_shut_a_provider_for_all_others(serve: Any, clock: time_machine.Traveller) -> None:
    """Its model is over its quota for a day, the models of the others are not. It requests and removes its back-off
    as often as it can."""
    serve(by_model)
    hostile = due("hostile", "a", "openai/over")
    for n in range(24):
        due(f"t{n % 3}", f"a{n}", "openai/good")
    for minute in range(10):
        decline(hostile)
        with suppress(BackingOff, SessionOpen):
            backlog.request(hostile)
        tasks.close_stale() if minute % 5 else tasks.sweep()
        queueing.work()
        if minute == 0:
            completed = RefinementSession.objects.filter(outcome="completed").exclude(agent=hostile)
            assert completed.values("agent").distinct().count() == 24
        clock.shift(MINUTE)


def test_after_a_change_of_model_the_limit_of_the_new_provider_holds(settings: Any) -> None:
    settings.PROVIDER_SESSIONS = {"ollama": 1}
    agents = [due("any", f"a{n}") for n in range(4)]
    tasks.sweep()
    for agent in agents:
        lifecycle.change(agent, OPERATOR, model="ollama/large")
    tasks.sweep()
    assert scheduling.take() is not None
    assert scheduling.take() is None


def test_after_a_change_of_model_a_shut_provider_does_not_block_the_agent() -> None:
    Provider.objects.create(name="openai", failures=9, shut_until=timezone.now() + 4 * MINUTE)
    agent = due("any", "a", "openai/gone")
    tasks.sweep()
    lifecycle.change(agent, OPERATOR, model="builtin/dedupe")
    work()
    assert RefinementSession.objects.filter(outcome="completed").count() == 1


def test_after_a_short_pause_of_a_provider_a_worker_is_woken(clock: time_machine.Traveller) -> None:
    """All wake-ups are used during the one second that the provider asks for."""
    for n in range(5):
        due(f"t{n}", "a", "openai/any")
    tasks.sweep()
    Provider.objects.create(name="openai", failures=1, shut_until=timezone.now() + timedelta(seconds=1))
    queueing.work()
    clock.shift(2)
    assert scheduling.free().count() == 5
    assert Schedule.objects.get(func=queue.REFINE_AGENT).next_run <= timezone.now()


def test_a_turn_taken_by_a_clock_that_was_ahead_is_freed() -> None:
    due("any", "a")
    with time_machine.travel(timezone.now() + timedelta(days=30)):
        tasks.sweep()
        assert scheduling.take() is not None
    Waiting.objects.update(since=timezone.now())
    tasks.close_stale()
    tasks.sweep()
    assert Waiting.objects.filter(taken_at__isnull=False).count() == 0


def test_a_call_that_spent_its_time_waiting_for_a_pause_is_not_a_failure_of_the_provider(
    serve: Any, settings: Any
) -> None:
    """Of its 3 seconds it waits for 2.8, and the server answers in 1.5."""
    serve(by_model)
    settings.MODEL_CALL_SECONDS = 3
    due("any", "a", "openai/usual")
    tasks.sweep()
    turn = scheduling.take()
    assert turn is not None
    session = scheduling.open_due(Agent.objects.get(pk=turn.pk))
    assert session is not None
    Provider.objects.create(name="openai", failures=1, shut_until=timezone.now() + timedelta(seconds=2.8))
    loop.drive(session)
    assert Provider.objects.get(name="openai").failures <= 1
