"""Who can shut a provider for everybody, and keep it so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone
from django_q.models import Schedule

from audit.trail import Actor
from config import queue
from memory.agents import lifecycle
from memory.models import Agent
from refinement import backlog, knife, loop, providers, scheduling, tasks
from refinement import session as sessions
from refinement.errors import BackingOff, SessionOpen
from refinement.llm import connections, http
from refinement.models import Driver, Provider, RefinementSession, Waiting
from tests import queueing, refining
from tests.model_server import NO_PAUSES, Action, Call, ModelServer, Slow, Status, Turn

pytestmark = [pytest.mark.database, pytest.mark.django_db]
ME = Actor.operator("tests")
MINUTE = timedelta(minutes=1)
DONE = Call("complete_refinement", {"summary": "Nothing to do."})


class Models:
    """Each model's own way to answer."""

    def __init__(self, **ways: Action) -> None:
        self.ways = ways

    def __call__(self, turn: Turn) -> Action:
        return self.ways.get(turn.model, DONE)


@pytest.fixture
def server(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setattr(http, "PAUSES", NO_PAUSES)
    with ModelServer(
        Models(
            bad=Status(429),
            over=Status(429, {"Retry-After": "86400"}),
            usual=Slow(1.5, then=DONE),
            slow=Slow(2, then=DONE),
        )
    ) as server:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        settings.OLLAMA_BASE_URL = server.ollama_url
        yield server
    connections.close_clients()


def due(tenant: str, name: str, model: str, **given: Any) -> Agent:
    agent, _ = lifecycle.create(tenant, name, model=model, actor=ME, **given)
    refining.change(agent, due_at=timezone.now() - MINUTE, due_reason="weekly")
    return agent


def test_a_tenant_whose_sessions_are_short_shuts_nothing(server: ModelServer) -> None:
    """The server answers within 2 seconds, as ever; a tenant may set max_seconds from 0 on."""
    for n in range(2):
        due("hostile", f"a{n}", "openai/slow", max_seconds=1)
    tasks.sweep()
    queueing.work()
    assert providers.closed() == {}


def test_a_model_that_is_over_its_quota_shuts_no_other_model(server: ModelServer, settings: Any) -> None:
    settings.MODEL_CALL_SECONDS = 2
    due("hostile", "a", "openai/bad")
    tasks.sweep()
    queueing.work()
    assert set(providers.closed()) == {"openai/bad"}


def test_one_runtime_cannot_have_a_failing_model_called_again_and_again(server: ModelServer, settings: Any) -> None:
    """A session of the runtime's own, opened and ended at once, takes the back-off away."""
    settings.MODEL_CALL_SECONDS = 2
    agent = due("hostile", "a", "openai/bad")
    due("hostile", "a2", "builtin/dedupe")
    refused = 0
    with time_machine.travel(timezone.now(), tick=False) as clock:
        for _ in range(6):
            try:
                backlog.request(agent)
            except BackingOff:
                refused += 1
            queueing.work()
            agent.refresh_from_db()
            if agent.failures_in_a_row:
                session = sessions.open_session(agent, trigger="agent", driver=Driver.RUNTIME)
                knife.call(agent, session.number, "decline_refinement", {"reason": "no"})
            clock.shift(6 * MINUTE)
    failed = RefinementSession.objects.filter(outcome="failed").count()
    assert (failed, refused) == (1, 5)


def test_a_model_that_was_changed_is_limited_as_what_it_is_now(settings: Any) -> None:
    settings.PROVIDER_SESSIONS = {"ollama": 1}
    made = [due("any", f"a{n}", "builtin/dedupe") for n in range(4)]
    tasks.sweep()
    for agent in made:
        lifecycle.change(agent, ME, model="ollama/large")
    tasks.sweep()
    taken = []
    while (turn := scheduling.take()) is not None:
        taken.append(turn.pk)
    assert len(taken) == 1


def test_a_model_that_was_changed_away_from_a_shut_provider_goes_on(settings: Any) -> None:
    Provider.objects.create(name="openai", failures=9, shut_until=timezone.now() + 4 * MINUTE)
    agent = due("any", "a", "openai/gone")
    tasks.sweep()
    lifecycle.change(agent, ME, model="builtin/dedupe")
    tasks.sweep()
    queueing.work()
    assert RefinementSession.objects.filter(outcome="completed").count() == 1


def test_after_a_short_pause_somebody_is_woken() -> None:
    """A provider asks for one second; the wake-ups are used up in it."""
    for n in range(5):
        due(f"t{n}", "a", "openai/any")
    tasks.sweep()
    with time_machine.travel(timezone.now(), tick=False) as clock:
        Provider.objects.create(name="openai", failures=1, shut_until=timezone.now() + timedelta(seconds=1))
        queueing.work()
        clock.shift(2)
        assert scheduling.free().count() == 5
        assert Schedule.objects.get(func=queue.REFINE_AGENT).next_run <= timezone.now()


def test_a_turn_taken_by_a_clock_that_was_ahead_is_forgotten() -> None:
    due("any", "a", "builtin/dedupe")
    with time_machine.travel(timezone.now() + timedelta(days=30)):
        tasks.sweep()
        assert scheduling.take() is not None
    Waiting.objects.update(since=timezone.now())
    tasks.close_stale()
    tasks.sweep()
    assert Waiting.objects.filter(taken_at__isnull=False).count() == 0


def test_a_call_that_waited_at_the_gate_until_its_end_is_no_failure_of_the_provider(
    server: ModelServer, settings: Any
) -> None:
    """Of 3 seconds 2.8 are waited; the server answers in 1.5, and is told to be down for it."""
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


def test_one_agent_does_not_keep_a_provider_from_all_others(server: ModelServer) -> None:
    """Its model is over its quota, for a day, and others' are not. It asks, and would take its back-off away, as
    often as it may."""
    hostile = due("hostile", "a", "openai/over")
    for n in range(24):
        due(f"t{n % 3}", f"a{n}", "openai/good")
    with time_machine.travel(timezone.now(), tick=False) as clock:
        for minute in range(10):
            hostile.refresh_from_db()
            if hostile.failures_in_a_row:
                session = sessions.open_session(hostile, trigger="agent", driver=Driver.RUNTIME)
                knife.call(hostile, session.number, "decline_refinement", {"reason": "no"})
            with suppress(BackingOff, SessionOpen):
                backlog.request(hostile)
            tasks.close_stale() if minute % 5 else tasks.sweep()
            queueing.work()
            if minute == 0:
                done = RefinementSession.objects.filter(outcome="completed").exclude(agent=hostile)
                assert done.values("agent").distinct().count() == 24
            clock.shift(MINUTE)
