"""Work in the background, attacked: agents that would never be refined, turns that stay, locks that all wait for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.db import connection
from django.utils import timezone

from audit.trail import Actor
from config.management.commands.worker import _stop
from config.queue import Stopped
from memory.agents import lifecycle
from memory.consent import signals
from memory.models import Agent
from memory.writing import edits
from refinement import allowance, backlog, loop, schedule, scheduling, tasks
from refinement import session as sessions
from refinement.llm import connections
from refinement.models import Outcome, Provider, RefinementSession, Waiting
from refinement.monitoring import health
from tests import refining, steps
from tests.model_server import Call, ModelServer, Slow

pytestmark = pytest.mark.database

ME = Actor.operator("tests")
MINUTE = timedelta(minutes=1)
DONE = Call("complete_refinement", {"summary": "Nothing to do."})


def due(tenant: str, name: str, model: str = "builtin/dedupe", **given: Any) -> Agent:
    agent, _ = lifecycle.create(tenant, name, model=model, actor=ME, **given)
    refining.change(agent, due_at=timezone.now() - MINUTE, due_reason="weekly")
    return agent


class Thread(threading.Thread):
    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.act, self.result = act, None

    def run(self) -> None:
        try:
            self.result = self.act()
        finally:
            connection.close()


def begun(act: Callable[[], Any], seconds: float) -> Thread:
    """Done in a thread, which is given so long to end."""
    thread = Thread(act)
    thread.start()
    thread.join(seconds)
    return thread


@contextmanager
def held(agent: Agent, do: Callable[[Agent], None] = lambda _: None, seconds: float = 60) -> Iterator[None]:
    """Somebody holds the agent's lock, as an import does or a redaction, for as long as they take."""
    has_it, end = threading.Event(), threading.Event()

    def hold() -> None:
        with edits.locked(agent) as row:
            do(row)
            has_it.set()
            end.wait(seconds)

    holder = Thread(hold)
    holder.start()
    assert has_it.wait(10)
    try:
        yield
    finally:
        end.set()
        holder.join()


def redacted(row: Agent) -> None:
    """The beginning of a redaction."""
    signals.removing.send(Agent, agent=row, why="redaction")


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_long_redaction_of_one_tenant_keeps_no_worker_of_another_waiting() -> None:
    """It ends the open session first, which counts tokens, and then goes on for as long as the trail is."""
    one, two, other = due("a", "one"), due("a", "two"), due("b", "x")
    session = sessions.open_session(steps.fresh(one), trigger="weekly")
    RefinementSession.objects.filter(pk=session.pk).update(prompt_tokens=5)
    refining.change(two, due_at=timezone.now() - 9 * MINUTE)
    backlog.sweep()
    with held(one, redacted):
        workers = [begun(scheduling.take, 2) for _ in range(2)]
        assert [worker.is_alive() for worker in workers] == [False, False]
    assert {turn.pk for turn in (worker.result for worker in workers) if turn} == {two.pk, other.pk}


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_an_import_that_takes_long_keeps_one_worker_waiting_not_one_after_the_other() -> None:
    agent = due("a", "one")
    backlog.sweep()
    with held(agent):
        workers = []
        for _ in range(3):
            workers.append(begun(lambda: tasks.refine_agent(agent.pk), 2))
            tasks.close_stale()
            tasks.sweep()
        assert sum(worker.is_alive() for worker in workers) <= 1
    for worker in workers:
        worker.join()


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_who_is_held_by_an_import_is_come_back_to_later_and_not_again_and_again() -> None:
    agent = due("a", "one")
    backlog.sweep()
    with held(agent):
        assert tasks.refine_agent(agent.pk) == "not_due"
        assert Waiting.objects.filter(pk=agent.pk, taken_at__isnull=False).exists()
        tasks.sweep()
        assert scheduling.take() is None
    with time_machine.travel(timezone.now() + timedelta(seconds=settings.LEASE_SECONDS + 1)):
        tasks.sweep()
        assert tasks.refine_agent(agent.pk) == "completed"


@pytest.fixture
def server(settings: Any) -> Iterator[ModelServer]:
    with ModelServer(Slow(5, then=DONE)) as server:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        yield server
    connections.close_clients()


def stop_in(seconds: float) -> None:
    def stop(*_: object) -> None:
        raise Stopped(1)

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)


@pytest.mark.django_db
def test_a_worker_stopped_while_it_looks_for_a_provider_gives_its_turn_back(server: ModelServer) -> None:
    Provider.objects.create(name="openai", failures=2, shut_until=timezone.now())
    agent = due("a", "one", "openai/any")
    backlog.sweep()
    stop_in(1)
    with pytest.raises(Stopped):
        tasks.refine_agent(agent.pk)
    assert not Waiting.objects.filter(taken_at__isnull=False).exists()


def stopping_at(word: str) -> Any:
    """A SIGTERM that arrives in the midst of the first statement that says this word."""
    arrived: list[bool] = []

    def run(execute: Any, sql: str, *rest: Any) -> Any:
        if word in sql and not arrived:
            arrived.append(True)
            raise Stopped(1)
        return execute(sql, *rest)

    return connection.execute_wrapper(run)


def test_a_second_sigterm_does_not_come_in_the_midst_of_the_closing() -> None:
    """`serve` sends one to the group when the sentinel has sent one, a moment before."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Stopped):
            _stop()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.django_db(transaction=True)
def test_a_sigterm_while_a_session_ends_at_its_limit_does_not_leave_it_open() -> None:
    agent = due("a", "one", max_steps=0)
    session = scheduling.open_due(steps.fresh(agent))
    assert session is not None
    with stopping_at('UPDATE "refinement_refinementsession" SET "agent_id"'), pytest.raises(Stopped):
        loop.drive(session)
    session.refresh_from_db()
    assert session.outcome != Outcome.OPEN


@pytest.mark.django_db
def test_what_a_person_asked_of_a_paused_agent_outlives_its_runtimes_asking_and_a_worker_that_is_stopped() -> None:
    agent = due("a", "one", paused=True)
    backlog.request_for(agent, ME)
    assert schedule.due().filter(pk=agent.pk).exists()
    backlog.request(agent)
    assert schedule.due().filter(pk=agent.pk).exists()
    session = scheduling.open_due(steps.fresh(agent))
    assert session is not None
    sessions.close(session, Outcome.INCOMPLETE, schedule.WORKER_STOPPED)
    assert schedule.due(timezone.now() + MINUTE).filter(pk=agent.pk).exists()


@pytest.mark.django_db
def test_an_erased_agent_is_due_no_more_whatever_its_tenant_sets() -> None:
    agent = due("a", "one")
    refining.change(agent, wrapped_key=b"", due_at=None)
    lifecycle.change(steps.fresh(agent), ME, refine_every=timedelta(hours=1))
    assert not schedule.due(timezone.now() + timedelta(days=1)).filter(pk=agent.pk).exists()


@pytest.mark.django_db
def test_agents_that_ask_all_the_time_leave_a_turn_to_others_of_their_tenant() -> None:
    asking, quiet = due("a", "asking"), due("a", "quiet")
    with time_machine.travel(timezone.now(), tick=False) as clock:
        for _ in range(20):
            backlog.request(asking)
            backlog.sweep()
            turn = scheduling.take()
            assert turn is not None
            sessions.close(scheduling.open_due(Agent.objects.get(pk=turn.pk)), Outcome.COMPLETED)  # type: ignore[arg-type]
            scheduling.end(turn)
            clock.shift(2 * MINUTE)
    assert RefinementSession.objects.filter(agent=quiet).exists()


@pytest.mark.django_db
def test_a_session_that_ended_before_midnight_takes_nothing_off_the_new_month() -> None:
    """Two that end together at a month's end commit in the other order; or a clock is a second ahead."""
    agent = due("a", "one")
    old, new = (sessions.RefinementSession(agent=agent, driver="server", prompt_tokens=100) for _ in range(2))
    new.closed_at = datetime.fromisoformat("2026-12-01T00:00:00.1+00:00")
    old.closed_at = datetime.fromisoformat("2026-11-30T23:59:59.9+00:00")
    allowance.count(new)
    allowance.count(old)
    assert allowance.spent(agent.tenant_id, new.closed_at) == 100


@pytest.mark.django_db
def test_readyz_agrees_that_a_time_far_off_shuts_nothing() -> None:
    Provider.objects.create(name="openai", failures=2, shut_until=timezone.now() + timedelta(days=900))
    assert health._models() == "ok"


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_worker_stopped_while_it_waits_for_a_lock_closes_its_session() -> None:
    """The signal comes in the midst of a statement: an import holds the agent's row."""
    agent = due("a", "one")
    session = scheduling.open_due(steps.fresh(agent))
    assert session is not None
    with held(agent, seconds=3):
        stop_in(1)
        with pytest.raises(Stopped):
            loop.drive(session)
    session.refresh_from_db()
    assert session.outcome == Outcome.INCOMPLETE


@pytest.mark.django_db
def test_a_session_may_use_no_more_than_its_tenant_has_left(settings: Any) -> None:
    """A tenant sets max_model_tokens of its agents itself, and the limit of the tenant's row bounds no agent's own."""
    agent = due("a", "one", max_model_tokens=10**12, max_steps=2**31 - 1)
    agent.tenant.month_tokens, agent.tenant.max_model_tokens = 1_000, 1_000
    agent.tenant.save()
    session = scheduling.open_due(steps.fresh(agent))
    assert session is not None
    assert session.max_model_tokens <= 1_000


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_request_does_not_wait_for_workers_that_wait() -> None:
    """Whoever takes a turn holds the row of the agent it chose: who asks for that one?"""
    one, two = due("a", "one"), due("a", "two")
    session = sessions.open_session(steps.fresh(one), trigger="weekly")
    RefinementSession.objects.filter(pk=session.pk).update(prompt_tokens=5)
    backlog.sweep()
    with held(one, redacted):
        worker, asking = begun(scheduling.take, 1), begun(lambda: backlog.request(two), 2)
        assert not asking.is_alive()
    worker.join()


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_closing_lapsed_sessions_does_not_wait_for_an_import() -> None:
    """An import longer than the lease: each close_stale, every 5 minutes, kept one more worker; b's session stayed."""
    one, other = due("a", "one"), due("b", "two")
    for agent in (one, other):
        sessions.open_session(steps.fresh(agent), trigger="weekly")
    RefinementSession.objects.update(lease_until=timezone.now() - MINUTE)
    with held(one):
        closing = begun(tasks.close_stale, 9)
        assert not closing.is_alive()
        assert RefinementSession.objects.get(agent=other).outcome == Outcome.ABANDONED
