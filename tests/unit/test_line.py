"""Due agents wait in the queue, each once, and are refined by whoever takes them, once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit.models import Operation
from config.queue import QueueUnreachable
from memory.agents import lifecycle
from memory.consent import erasure, removal_requests
from memory.models import Agent, DueReason
from memory.time_machine import rollback as history
from memory.time_machine.rollback import What
from memory.writing import operations
from refinement import backlog, loop, scheduling, tasks
from refinement import session as sessions
from refinement.models import RefinementSession, Waiting
from tests import queueing, steps
from tests.queueing import carry_out, waiting, work
from tests.refining import change, fill, opened
from tests.steps import ME, PERSON, entries, fresh, problems

pytestmark = pytest.mark.database

REFINE = "refinement.tasks.refine_agent"
LATE = timezone.now() - timedelta(hours=1)
GIVEN_UP = timedelta(seconds=settings.LEASE_SECONDS + 1)


def due(*agents: Agent) -> None:
    for agent in agents:
        change(agent, due_at=LATE, due_reason=DueReason.WEEKLY)


def nobody_waits() -> None:
    Waiting.objects.all().delete()
    queueing.OrmQ.objects.all().delete()


def outcomes(agent: Agent) -> list[tuple[str, str]]:
    rows = RefinementSession.objects.filter(agent=agent).order_by("number")
    return [(row.trigger, row.outcome) for row in rows]


def test_a_sweep_queues_who_is_due_longest_overdue_first(ada: Agent, bob: Agent) -> None:
    due(ada)
    change(bob, due_at=LATE - timedelta(hours=1))
    assert tasks.sweep() == "swept"
    assert waiting() == [(REFINE, (bob.pk,)), (REFINE, (ada.pk,))]


def test_who_waits_is_not_queued_again(ada: Agent, bob: Agent) -> None:
    due(ada)
    tasks.sweep()
    due(bob)
    tasks.sweep()
    backlog.request(ada)
    assert waiting() == [(REFINE, (ada.pk,)), (REFINE, (bob.pk,))]


def in_line() -> set[int]:
    return set(Waiting.objects.values_list("pk", flat=True))


def test_a_worker_that_is_to_end_begins_nothing_and_leaves_the_wake_up_to_others(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    due(ada)
    tasks.sweep()
    monkeypatch.setattr("config.queue._ending", b"\x01")
    queueing.OrmQ.objects.all().delete()
    assert tasks.refine_agent(ada.pk) == "not_due"
    assert in_line() == {ada.pk}
    assert waiting() == [(REFINE, (ada.pk,))]
    assert outcomes(ada) == []


def test_who_is_being_refined_keeps_its_place_while_its_worker_lives(ada: Agent) -> None:
    due(ada)
    tasks.sweep()
    turn = scheduling.take()
    assert turn is not None
    opened(ada)
    tasks.sweep()
    assert in_line() == {ada.pk}
    RefinementSession.objects.update(lease_until=timezone.now() + 2 * GIVEN_UP)
    with time_machine.travel(timezone.now() + GIVEN_UP):
        tasks.sweep()
    assert Waiting.objects.get(pk=ada.pk).taken_at == turn.taken_at


def test_a_sweeps_queries_do_not_grow_with_whom_it_calls(ada: Agent, bob: Agent) -> None:
    with CaptureQueriesContext(connection) as none:
        backlog.sweep()
    crowd = [lifecycle.create("acme", f"a{n}", model="builtin/dedupe", actor=ME)[0] for n in range(30)]
    due(ada, bob, *crowd)
    with CaptureQueriesContext(connection) as many:
        assert backlog.sweep() == 32
    tasks_put = sum("INSERT" in query["sql"] and "django_q" in query["sql"] for query in many)
    assert tasks_put == backlog.AT_ONCE
    assert len(none) == 8  # lost, doubted, due, in line, how deep the queue is; taken, shut, and who could go
    assert len(many) - len(none) <= 5 + 3 * tasks_put  # a row, and the savepoint around it


def test_a_due_agent_is_refined_and_waits_no_more(ada: Agent) -> None:
    steps.remember(ada, "Ann likes green tea in the morning.", "Ann likes green tea in the mornings.")
    due(ada)
    tasks.sweep()
    assert work() == [("refine_agent", "completed")]
    assert not Waiting.objects.exists()
    assert carry_out((REFINE, (ada.pk,)))[1] == "not_due", "though its task be delivered twice"
    assert outcomes(ada) == [("weekly", "completed")]
    assert problems(ada) == []


def test_one_delivered_while_the_first_runs_does_nothing(ada: Agent) -> None:
    due(ada)
    held = opened(ada)
    due(ada)
    before = len(entries(ada))
    assert tasks.refine_agent(ada.pk) == "not_due"
    assert (len(entries(ada)), held.row.outcome) == (before, "open")


def test_who_became_paused_meanwhile_is_not_refined_and_leaves_the_line(ada: Agent) -> None:
    due(ada)
    tasks.sweep()
    change(ada, paused=True)
    assert work() == [("refine_agent", "not_due")]
    assert in_line() == set()
    change(ada, paused=False)
    tasks.sweep()
    change(ada, paused=True)
    tasks.sweep()
    assert in_line() == set()


def test_who_asks_again_after_a_while_is_queued_once_more(ada: Agent) -> None:
    """Its task may have died with a worker, and asking must not be answered by nothing."""
    backlog.request(ada)
    backlog.request(ada)
    assert len(waiting()) == 1
    Waiting.objects.update(since=timezone.now() - timedelta(minutes=2))
    backlog.request(ada)
    assert len(waiting()) == 2
    work()
    assert outcomes(ada) == [("agent", "completed")]


def test_a_write_beyond_the_budget_queues_it_at_once_and_once(ada: Agent) -> None:
    change(ada, budget_tokens=100, target_tokens=60)
    fill(ada, 3, 30)
    assert waiting() == []
    fill(ada, 1, 30, "more")
    fill(ada, 1, 30, "yet more")
    assert waiting() == [(REFINE, (ada.pk,))]
    work()
    assert outcomes(ada)[0][0] == "over_budget"


def test_a_budget_set_below_what_is_there_queues_it_too(ada: Agent) -> None:
    fill(ada, 3, 30)
    lifecycle.change(ada, PERSON, budget_tokens=80, target_tokens=60)
    assert waiting() == [(REFINE, (ada.pk,))]


def test_an_agent_that_stays_over_its_budget_is_not_queued_by_every_write(ada: Agent) -> None:
    """After a session it is left alone for a day, or until it grew by a tenth."""
    change(ada, budget_tokens=100, target_tokens=60)
    fill(ada, 20, 30)
    work()
    fill(ada, 1, 30, "more")
    tasks.sweep()
    assert waiting() == []
    fill(ada, 2, 30, "a tenth")
    assert waiting() == [(REFINE, (ada.pk,))]


def test_what_a_person_took_back_is_not_refined_again_at_once(ada: Agent) -> None:
    """A worker that did it all anew within the second would leave nothing of the rollback."""
    fill(ada, 20, 30)
    change(ada, budget_tokens=600, target_tokens=590)
    loop.refine(ada, trigger="manual")
    twin = "The pier closes at nine in the evening, on every day of the week."
    steps.remember(ada, twin, twin)
    change(ada, budget_tokens=fresh(ada).core_tokens - 10, due_at=None)
    loop.refine(fresh(ada), trigger="manual")
    assert fresh(ada).core_tokens <= fresh(ada).budget_tokens
    nobody_waits()
    session = RefinementSession.objects.filter(agent=ada).latest("number")
    did = history.roll_back(fresh(ada), What.session(session.number), PERSON)
    assert did.rests
    tasks.sweep()
    assert waiting() == []
    after = fresh(ada)
    assert after.core_tokens > after.budget_tokens
    assert after.due_at is not None
    assert timedelta(hours=23) < after.due_at - timezone.now() <= timedelta(hours=24)
    backlog.request(ada)
    assert waiting() == [(REFINE, (ada.pk,))], "unless somebody asks"


def test_growth_ends_the_rest_after_a_rollback(ada: Agent) -> None:
    change(ada, budget_tokens=60, target_tokens=50)
    numbers = steps.remember(ada, *(f"{'word ' * 10}{number}" for number in range(6)))
    operations.discard(fresh(ada), numbers, ME)
    nobody_waits()
    change(ada, due_at=None, quiet_until=None)
    assert history.roll_back(fresh(ada), What.entry(fresh(ada).audit_seq), PERSON).rests
    assert waiting() == []
    fill(ada, 4, 30, "more")
    assert waiting() == [(REFINE, (ada.pk,))]


def test_a_session_that_cannot_be_opened_is_put_off(ada: Agent) -> None:
    """Else it would be tried at every sweep, for ever."""
    steps.remember(ada, "same", "same")
    key = bytes(fresh(ada).wrapped_key)
    change(ada, wrapped_key=key[:-1] + bytes([key[-1] ^ 1]))
    due(ada)
    assert tasks.refine_agent(ada.pk) == "seal_broken"
    after = fresh(ada)
    assert (after.due_reason, after.failures_in_a_row) == (DueReason.RETRY, 1)
    assert after.due_at is not None
    assert after.due_at > timezone.now() + timedelta(minutes=56)
    tasks.sweep()
    assert waiting() == []


def test_a_fault_of_the_program_puts_it_off_too(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise KeyError

    due(ada)
    with monkeypatch.context() as patch:
        patch.setattr(sessions, "open_session", fails)
        assert tasks.refine_agent(ada.pk) == "fault"
    assert fresh(ada).due_reason == DueReason.RETRY


def test_an_erased_agent_is_nothing_to_do(ada: Agent) -> None:
    backlog.request(ada)
    asked = removal_requests.ask_erasure(ada, PERSON, reason="It is asked for.", asked_by="the owner")
    erasure.erase(ada, asked.number, ME)
    assert entries(ada)[-1].operation == Operation.ERASED
    assert work()[0] == ("refine_agent", "not_due")


def test_stale_sessions_are_closed(ada: Agent) -> None:
    held = opened(ada)
    with time_machine.travel(timezone.now() + timedelta(hours=1)):
        assert tasks.close_stale() == "closed"
    assert held.row.outcome == "abandoned"


def test_who_waits_is_woken_for_again_when_the_queue_lost_its_task(ada: Agent) -> None:
    due(ada)
    tasks.sweep()
    queueing.OrmQ.objects.all().delete()
    tasks.close_stale()
    assert waiting() == [(REFINE, (ada.pk,))]


def test_whose_worker_died_stands_in_line_again(ada: Agent) -> None:
    due(ada)
    tasks.sweep()
    assert scheduling.take() is not None
    with time_machine.travel(timezone.now() + GIVEN_UP):
        tasks.sweep()
        assert Waiting.objects.get(pk=ada.pk).taken_at is None
        assert work() == [("refine_agent", "completed")]


def test_a_crowd_of_one_tenant_delays_another_by_one_session(ada: Agent, bob: Agent) -> None:
    """Though all their tasks were queued before."""
    due(*(lifecycle.create("acme", f"a{n}", model="builtin/dedupe", actor=ME)[0] for n in range(40)))
    tasks.sweep()
    before = waiting()
    carry_out(before[0])
    backlog.request(bob)
    carry_out(before[1])
    assert [session.agent_id == bob.pk for session in RefinementSession.objects.order_by("pk")] == [False, True]


def test_a_queue_that_cannot_be_reached_takes_nothing_back(
    ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> int:
        raise QueueUnreachable

    due(ada, bob)
    tasks.sweep()
    monkeypatch.setattr(backlog, "depth", gone)
    assert tasks.refine_agent(ada.pk) == "completed"


def test_a_worker_that_has_refined_somebody_wakes_for_the_next(ada: Agent, bob: Agent) -> None:
    due(ada, bob)
    tasks.sweep()
    queueing.OrmQ.objects.all().delete()
    assert carry_out((REFINE, (ada.pk,)))[1] == "completed"
    assert set(waiting()) == {(REFINE, (bob.pk,))}
