"""Attacks on the work in the background: agents that are never refined, turns that are never freed, locks that block
all. And workers that choose at the same moment: no agent is taken twice, and no limit is exceeded."""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.utils import timezone

from config.management.commands.worker import _stop
from config.queue import Stopped
from memory.agents import lifecycle
from memory.consent import requests
from memory.models import Agent
from memory.writing import edits
from refinement import allowance, backlog, loop, schedule, scheduling, tasks
from refinement import session as sessions
from refinement.models import Outcome, Provider, RefinementSession, Served, Waiting
from refinement.monitoring import health
from tests import refining, steps
from tests.conftest import OPERATOR
from tests.fault.test_writers import at_once
from tests.fault.whole_sessions import DONE, MINUTE, due
from tests.model_server import Slow

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def on_postgresql(test: Any) -> Any:
    return pytest.mark.postgresql(pytest.mark.django_db(transaction=True)(test))


class Thread(threading.Thread):
    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.act, self.result = act, None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.act()
        finally:
            connection.close()


def in_thread(act: Callable[[], Any], seconds: float) -> Thread:
    """A thread that has had so much time to end."""
    thread = Thread(act)
    thread.join(seconds)
    return thread


@contextmanager
def locked(agent: Agent, work: Callable[[Agent], None] = lambda _: None, seconds: float = 60) -> Iterator[None]:
    """Another thread holds the agent's lock, as a long import or redaction does."""
    is_locked, end = threading.Event(), threading.Event()

    def hold() -> None:
        with edits.locked(agent) as row:
            work(row)
            is_locked.set()
            end.wait(seconds)

    holder = Thread(hold)
    assert is_locked.wait(10)
    try:
        yield
    finally:
        end.set()
        holder.join()


def begin_redaction(row: Agent) -> None:
    requests.removing.send(Agent, agent=row, why="redaction")


def open_with_tokens(agent: Agent) -> None:
    """An open session that has used tokens, which its end counts."""
    session = sessions.open_session(steps.fresh(agent), trigger="weekly")
    RefinementSession.objects.filter(pk=session.pk).update(prompt_tokens=5)


def open_due(agent: Agent) -> RefinementSession:
    session = scheduling.open_due(steps.fresh(agent))
    assert session is not None
    return session


def stop_in(seconds: float) -> None:
    """Stop this worker by a signal after so many seconds."""

    def stop(*_: object) -> None:
        raise Stopped(1)

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def stopping_at(text: str) -> Any:
    """Raise what a SIGTERM raises at the first statement that contains the text."""
    arrived: list[bool] = []

    def run(execute: Any, sql: str, *rest: Any) -> Any:
        if text in sql and not arrived:
            arrived.append(True)
            raise Stopped(1)
        return execute(sql, *rest)

    return connection.execute_wrapper(run)


@on_postgresql
def test_a_long_redaction_of_one_tenant_does_not_block_workers_of_another() -> None:
    """It ends the open session first, which counts tokens, and then rewrites the trail."""
    one, two, other = due("a", "one"), due("a", "two"), due("b", "x")
    open_with_tokens(one)
    refining.change(two, due_at=timezone.now() - 9 * MINUTE)
    backlog.sweep()
    with locked(one, begin_redaction):
        workers = [in_thread(scheduling.take, 2) for _ in range(2)]
        assert not any(worker.is_alive() for worker in workers)
    assert {turn.pk for turn in (worker.result for worker in workers) if turn} == {two.pk, other.pk}


@on_postgresql
def test_a_request_does_not_wait_for_workers_that_wait() -> None:
    """A worker that takes a turn locks the row of the agent that it chose."""
    one, two = due("a", "one"), due("a", "two")
    open_with_tokens(one)
    backlog.sweep()
    with locked(one, begin_redaction):
        worker, request = in_thread(scheduling.take, 1), in_thread(lambda: backlog.request(two), 2)
        assert not request.is_alive()
    worker.join()


@on_postgresql
def test_a_long_import_blocks_one_worker_and_not_one_after_the_other() -> None:
    agent = due("a", "one")
    backlog.sweep()
    with locked(agent):
        workers = []
        for _ in range(3):
            workers.append(in_thread(lambda: tasks.refine_agent(agent.pk), 2))
            tasks.close_stale()
            tasks.sweep()
        assert sum(worker.is_alive() for worker in workers) <= 1
    for worker in workers:
        worker.join()


@on_postgresql
def test_an_agent_that_is_locked_by_an_import_is_retried_after_the_lease(settings: Any) -> None:
    agent = due("a", "one")
    backlog.sweep()
    with locked(agent):
        assert tasks.refine_agent(agent.pk) == "not_due"
        assert Waiting.objects.filter(pk=agent.pk, taken_at__isnull=False).exists()
        tasks.sweep()
        assert scheduling.take() is None
    with time_machine.travel(timezone.now() + timedelta(seconds=settings.LEASE_SECONDS + 1)):
        tasks.sweep()
        assert tasks.refine_agent(agent.pk) == "completed"


@on_postgresql
def test_an_agent_whose_connection_is_lost_is_due_at_the_next_sweep() -> None:
    """A lost connection is not a lock, after which the agent would stay taken until the lease ends."""
    agent, lost = due("a", "one"), []

    def lose(execute: Any, sql: str, *rest: Any) -> Any:
        if "lock_timeout" in sql and not lost:
            lost.append(sql)
            return execute("SELECT pg_terminate_backend(pg_backend_pid())", None, *rest[1:])
        return execute(sql, *rest)

    backlog.sweep()
    with connection.execute_wrapper(lose):
        assert tasks.refine_agent(agent.pk) == "fault"
    tasks.sweep()
    assert (tasks.refine_agent(agent.pk), len(lost)) == ("completed", 1)


@on_postgresql
def test_closing_expired_sessions_does_not_wait_for_an_import() -> None:
    """The import outlasts the lease. Each run of close_stale blocked one more worker, and b's session stayed open."""
    one, other = due("a", "one"), due("b", "two")
    for agent in (one, other):
        sessions.open_session(steps.fresh(agent), trigger="weekly")
    RefinementSession.objects.update(lease_until=timezone.now() - MINUTE)
    with locked(one):
        assert not in_thread(tasks.close_stale, 9).is_alive()
        assert RefinementSession.objects.get(agent=other).outcome == Outcome.ABANDONED


def test_a_worker_stopped_while_it_checks_a_provider_releases_its_turn(serve: Any) -> None:
    serve(Slow(5, then=DONE))
    Provider.objects.create(name="openai", failures=2, shut_until=timezone.now())
    agent = due("a", "one", "openai/any")
    backlog.sweep()
    stop_in(1)
    with pytest.raises(Stopped):
        tasks.refine_agent(agent.pk)
    assert not Waiting.objects.filter(taken_at__isnull=False).exists()


def test_a_second_sigterm_does_not_interrupt_the_shutdown() -> None:
    """`serve` sends one to the group just after the first process sends one."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(Stopped):
            _stop()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.django_db(transaction=True)
def test_a_sigterm_while_a_session_ends_at_its_limit_does_not_leave_it_open() -> None:
    session = open_due(due("a", "one", max_steps=0))
    with stopping_at('UPDATE "refinement_refinementsession" SET "agent_id"'), pytest.raises(Stopped):
        loop.drive(session)
    session.refresh_from_db()
    assert session.outcome != Outcome.OPEN


@on_postgresql
def test_a_worker_stopped_while_it_waits_for_a_lock_closes_its_session() -> None:
    """An import holds the agent's row when the signal interrupts a statement."""
    agent = due("a", "one")
    session = open_due(agent)
    with locked(agent, seconds=3):
        stop_in(1)
        with pytest.raises(Stopped):
            loop.drive(session)
    session.refresh_from_db()
    assert session.outcome == Outcome.INCOMPLETE


def test_a_persons_request_for_a_paused_agent_survives_a_request_of_its_runtime_and_a_stopped_worker() -> None:
    agent = due("a", "one", paused=True)
    for request in (lambda: backlog.request_for(agent, OPERATOR), lambda: backlog.request(agent)):
        request()
        assert schedule.due().filter(pk=agent.pk).exists()
    sessions.close(open_due(agent), Outcome.INCOMPLETE, schedule.WORKER_STOPPED)
    assert schedule.due(timezone.now() + MINUTE).filter(pk=agent.pk).exists()


def test_an_erased_agent_is_never_due_again() -> None:
    agent = due("a", "one")
    refining.change(agent, wrapped_key=b"", due_at=None)
    lifecycle.change(steps.fresh(agent), OPERATOR, refine_every=timedelta(hours=1))
    assert not schedule.due(timezone.now() + timedelta(days=1)).filter(pk=agent.pk).exists()


def test_an_agent_that_always_requests_leaves_turns_to_others_of_its_tenant(clock: time_machine.Traveller) -> None:
    greedy, quiet = due("a", "greedy"), due("a", "quiet")
    for _ in range(20):
        backlog.request(greedy)
        backlog.sweep()
        turn = scheduling.take()
        assert turn is not None
        sessions.close(open_due(Agent.objects.get(pk=turn.pk)), Outcome.COMPLETED)
        RefinementSession.objects.update(lost_tokens=1)  # so that it may request the next
        scheduling.end(turn)
        clock.shift(2 * MINUTE)
    assert RefinementSession.objects.filter(agent=quiet).exists()


@time_machine.travel(datetime.fromisoformat("2026-11-30T23:59:59.9+00:00"))
def test_a_session_that_ended_before_midnight_does_not_count_in_the_new_month() -> None:
    """Two sessions that end together may commit in the other order, or a clock may be a second ahead."""
    agent = due("a", "one")
    old, new = (RefinementSession(agent=agent, driver="server", prompt_tokens=100) for _ in range(2))
    new.closed_at = datetime.fromisoformat("2026-12-01T00:00:00.1+00:00")
    old.closed_at = datetime.fromisoformat("2026-11-30T23:59:59.9+00:00")
    allowance.count(new)
    allowance.count(old)
    assert allowance.spent(agent.tenant_id, new.closed_at) == 100


def test_a_session_may_use_no_more_than_its_tenant_has_left() -> None:
    """A tenant sets max_model_tokens of its agents itself."""
    agent = due("a", "one", max_model_tokens=10**12, max_steps=2**31 - 1)
    agent.tenant.month_tokens, agent.tenant.max_model_tokens = 1_000, 1_000
    agent.tenant.save()
    assert open_due(agent).max_model_tokens <= 1_000


def test_readyz_ignores_a_shut_time_far_in_the_future() -> None:
    Provider.objects.create(name="openai", failures=2, shut_until=timezone.now() + timedelta(days=900))
    assert health._models() == "ok"


def in_workers(work: Callable[[int], Any], count: int = 8) -> list[Any]:
    return at_once(*(lambda place=place: work(place) for place in range(count)))


def enqueue(count: int, tenants: int) -> None:
    now = timezone.now()
    Waiting.objects.bulk_create(
        Waiting(agent_id=n, tenant_id=n % tenants, provider="openai", due_at=now, since=now, claim=n)
        for n in range(1, count + 1)
    )


def create_due(count: int) -> list[Agent]:
    return [due(f"t{n % 3}", f"a{n}") for n in range(count)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("per_tenant", "per_provider"), [(0, {}), (2, {"openai": 5})])
def test_no_agent_is_taken_twice_and_no_limit_is_exceeded(
    settings: Any, per_tenant: int, per_provider: dict[str, int]
) -> None:
    settings.TENANT_SESSIONS, settings.PROVIDER_SESSIONS = per_tenant, per_provider
    enqueue(80, 4)
    running: Counter[int] = Counter()
    most: list[tuple[int, int]] = []
    lock, done = threading.Lock(), []
    end = time.monotonic() + 100  # a thread that raises an error may keep its agent

    def work(place: int) -> None:
        dice = random.Random(place)
        while len(done) < 80 and time.monotonic() < end:
            turn = scheduling.take()
            if turn is None:
                time.sleep(0.01)  # as a worker waits: otherwise it takes SQLite's lock again before the others
                continue
            with lock:
                running[turn.tenant_id] += 1
                most.append((max(running.values()), sum(running.values())))
            for _ in range(dice.randrange(3)):
                Served.objects.count()
            with lock:
                running[turn.tenant_id] -= 1
                done.append(turn.pk)
            scheduling.end(turn)

    in_workers(work)
    assert sorted(done) == list(range(1, 81))
    if per_tenant:
        assert max(tenant for tenant, _ in most) <= per_tenant
        assert max(provider for _, provider in most) <= per_provider["openai"]


@pytest.mark.django_db(transaction=True)
def test_concurrent_sweeps_queue_each_agent_once() -> None:
    agents = {agent.pk for agent in create_due(30)}
    queued = in_workers(lambda _: backlog.sweep(), 4)
    assert set(Waiting.objects.values_list("pk", flat=True)) == agents
    assert sum(queued) == 30


@pytest.mark.django_db(transaction=True)
def test_one_of_several_workers_opens_the_session_of_an_agent() -> None:
    [agent] = create_due(1)
    opened = in_workers(lambda _: scheduling.open_due(agent))
    assert sum(session is not None for session in opened) == 1
    assert RefinementSession.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_requests_and_workers_that_choose_do_not_block_each_other() -> None:
    """A request holds the agent's lock, a worker that chooses holds the workers' lock. Neither needs the other."""
    agents = create_due(12)
    backlog.sweep()

    def act(place: int) -> None:
        if place % 2:
            for agent in agents[place::4]:
                backlog.request(agent)
        else:
            for _ in range(6):
                turn = scheduling.take()
                if turn is not None:
                    scheduling.end(turn)

    in_workers(act)
    assert not Waiting.objects.filter(taken_at__isnull=False).exists()
