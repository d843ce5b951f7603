"""The system clock is set forward or back by hours while agents are refined or wait."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django_q.models import OrmQ

from config import queue
from memory.models import Agent, DueReason
from refinement import schedule, scheduling, tasks
from refinement import session as sessions
from refinement.models import Outcome, RefinementSession
from tests import queueing
from tests.refining import change, entries, fill, opened, sound

pytestmark = pytest.mark.database

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
FORWARD, BACK = NOON + timedelta(hours=5), NOON - timedelta(hours=5)
TWENTY_MINUTES = timedelta(minutes=20)
Clock = time_machine.Traveller


@pytest.fixture
def clock(ada: Agent) -> Iterator[Clock]:
    """It is noon. The agent has memories and is due."""
    fill(ada, 10, 20)
    with time_machine.travel(NOON) as clock:
        Agent.objects.exclude(pk=ada.pk).update(due_at=None)
        change(ada, due_at=NOON, due_reason=DueReason.WEEKLY)
        yield clock


def outcomes(agent: Agent) -> list[str]:
    return list(RefinementSession.objects.filter(agent=agent).order_by("number").values_list("outcome", flat=True))


def sweep() -> list[str]:
    """The results of the tasks that a sweep queues."""
    tasks.sweep()
    return [code for _, code in queueing.work()]


def test_set_forward_an_open_session_is_taken_over_and_its_driver_is_refused(ada: Agent, clock: Clock) -> None:
    held = opened(ada)
    assert held.call("demote_memory", id=1)["ok"]
    clock.move_to(FORWARD)
    tasks.close_stale()
    assert "completed" in sweep()
    assert held.call("demote_memory", id=2)["code"] == "session_ended"
    assert (outcomes(ada), sound(ada)) == (["abandoned", "completed"], True)


def test_set_back_a_session_continues_to_its_end(ada: Agent, clock: Clock) -> None:
    held = opened(ada)
    clock.move_to(BACK)
    held.knife.begin_step()
    assert held.call("demote_memory", id=1)["ok"]
    assert held.call("complete_refinement", summary="Done.")["ok"]
    assert not schedule.due().exists()
    assert (outcomes(ada), sound(ada)) == (["completed"], True)


def test_set_back_a_session_whose_lease_is_too_long_is_taken_over_at_once(ada: Agent, clock: Clock) -> None:
    opened(ada)
    clock.move_to(BACK)
    assert not RefinementSession.objects.get().is_held()
    tasks.close_stale()
    assert "completed" in [code for _, code in queueing.work()]
    assert outcomes(ada) == ["abandoned", "completed"]


def test_set_back_a_step_renews_the_lease_by_the_new_time(ada: Agent, clock: Clock) -> None:
    held = opened(ada)
    clock.move_to(BACK)
    held.knife.begin_step()
    clock.move_to(BACK + TWENTY_MINUTES)
    assert [closed.outcome for closed in sessions.close_stale()] == [Outcome.ABANDONED]


def test_set_forward_and_back_each_agent_is_refined_once(ada: Agent, bob: Agent, clock: Clock) -> None:
    change(bob, due_at=NOON + timedelta(hours=2.5), due_reason=DueReason.WEEKLY)
    clock.move_to(FORWARD)
    assert sweep().count("completed") == 2
    for moment in (NOON, NOON + timedelta(hours=10)):
        clock.move_to(moment)
        assert sweep() == []
    assert outcomes(ada) == outcomes(bob) == ["completed"]


def test_set_back_a_waiting_agent_is_refined_when_it_is_due_again(ada: Agent, clock: Clock) -> None:
    tasks.sweep()
    clock.move_to(BACK)
    assert {code for _, code in queueing.work()} == {"not_due"}
    clock.move_to(NOON + TWENTY_MINUTES)
    assert "completed" in sweep()


def test_set_back_a_dead_workers_turn_is_repeated_when_the_clock_passes_it(ada: Agent, clock: Clock) -> None:
    tasks.sweep()
    OrmQ.objects.all().delete()
    assert scheduling.take() is not None
    clock.move_to(BACK)
    assert sweep() == []
    clock.move_to(NOON + TWENTY_MINUTES)
    assert "completed" in sweep()


@pytest.mark.django_db(transaction=True)  # Django closes a connection that is hours old
def test_set_back_workers_continue_to_sweep(ada: Agent, clock: Clock) -> None:
    queue.keep_schedules()
    clock.move_to(FORWARD)
    queue.queue_due(queue._broker())
    OrmQ.objects.all().delete()
    clock.move_to(NOON + TWENTY_MINUTES)
    queue.queue_due(queue._broker())
    assert queue.SWEEP in [name for name, _ in queueing.waiting()]


def test_a_ledger_stays_valid_when_the_clock_is_set(ada: Agent, clock: Clock) -> None:
    held = opened(ada)
    for moment in (NOON + TWENTY_MINUTES / 3, BACK):
        clock.move_to(moment)
        assert held.call("demote_memory", id=entries(ada)[0].memory.number)["ok"]
    assert (held.row.demoted, sound(ada)) == (2, True)
