"""Clocks that are set, by hours, while agents are refined and while they wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django_q.models import OrmQ

from config import queue
from memory.models import Agent, DueReason
from refinement import providers, schedule, scheduling, tasks
from refinement import session as sessions
from refinement.models import Outcome, RefinementSession
from tests import queueing
from tests.refining import change, entries, fill, opened, sound

pytestmark = pytest.mark.database

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOURS = timedelta(hours=5)
AFTER = timedelta(minutes=20)


@pytest.fixture
def clock(ada: Agent) -> Any:
    """At noon; ada has memories, and is due."""
    fill(ada, 10, 20)
    with time_machine.travel(NOON) as clock:
        change(ada, due_at=NOON, due_reason=DueReason.WEEKLY)
        yield clock


def outcomes(agent: Agent) -> list[str]:
    return list(RefinementSession.objects.filter(agent=agent).order_by("number").values_list("outcome", flat=True))


def swept() -> list[str]:
    """What became of the tasks that a sweep brings about."""
    tasks.sweep()
    return [code for _, code in queueing.work()]


def test_set_forward_an_open_session_is_taken_over_and_its_driver_can_do_nothing_more(ada: Agent, clock: Any) -> None:
    held = opened(ada)
    assert held.call("delete_memory", id=1)["ok"]
    clock.move_to(NOON + HOURS)
    tasks.close_stale()
    assert "completed" in swept()
    assert held.call("delete_memory", id=2)["code"] == "session_ended"
    assert outcomes(ada) == ["abandoned", "completed"]
    assert sound(ada)


def test_set_back_a_session_goes_on_to_its_end(ada: Agent, clock: Any) -> None:
    held = opened(ada)
    clock.move_to(NOON - HOURS)
    held.knife.begin_step()
    assert held.call("delete_memory", id=1)["ok"]
    assert held.call("complete_refinement", summary="Done.")["ok"]
    assert outcomes(ada) == ["completed"]
    assert not schedule.due().exists()
    assert sound(ada)


def test_set_back_a_session_whose_driver_is_gone_is_taken_over_when_the_clock_has_caught_up(
    ada: Agent, clock: Any
) -> None:
    opened(ada)
    clock.move_to(NOON - HOURS)
    tasks.close_stale()
    assert swept() == []
    clock.move_to(NOON + AFTER)
    tasks.close_stale()
    assert "completed" in swept()
    assert outcomes(ada) == ["abandoned", "completed"]


def test_set_back_while_it_drives_the_lease_is_renewed_by_the_clock_as_it_is(ada: Agent, clock: Any) -> None:
    held = opened(ada)
    clock.move_to(NOON - HOURS)
    held.knife.begin_step()
    clock.move_to(NOON - HOURS + AFTER)
    assert [ended.outcome for ended in sessions.close_stale()] == [Outcome.ABANDONED]


def test_set_forward_and_back_each_agent_is_refined_once(ada: Agent, bob: Agent, clock: Any) -> None:
    change(bob, due_at=NOON + HOURS / 2, due_reason=DueReason.WEEKLY)
    clock.move_to(NOON + HOURS)
    assert swept().count("completed") == 2
    for moment in (NOON, NOON - HOURS, NOON + 2 * HOURS):
        clock.move_to(moment)
        assert swept() == []
    assert outcomes(ada) == outcomes(bob) == ["completed"]


def test_set_back_who_stands_in_line_is_refined(ada: Agent, clock: Any) -> None:
    """It was due before; by the clock as it is it is not."""
    tasks.sweep()
    clock.move_to(NOON - HOURS)
    assert {code for _, code in queueing.work()} == {"not_due"}
    clock.move_to(NOON + AFTER)
    assert "completed" in swept()


def test_set_back_a_turn_whose_worker_died_is_given_again_when_the_clock_has_caught_up(ada: Agent, clock: Any) -> None:
    tasks.sweep()
    OrmQ.objects.all().delete()
    assert scheduling.take() is not None
    clock.move_to(NOON - HOURS)
    assert swept() == []
    clock.move_to(NOON + AFTER)
    assert "completed" in swept()


def test_set_back_a_provider_that_was_down_is_called_again_in_minutes(ada: Agent, clock: Any) -> None:
    clock.move_to(NOON + HOURS)
    for _ in range(providers.FAILURES):
        providers.Availability("openai/any").failed(is_unreachable=True)
    assert set(providers.closed()) == {"openai", "openai/any"}
    clock.move_to(NOON + AFTER)
    assert providers.closed() == {}


@pytest.mark.django_db(transaction=True)  # a connection that is hours old is closed
def test_set_back_workers_go_on_looking_who_is_due(ada: Agent, clock: Any) -> None:
    queue.keep_schedules()
    clock.move_to(NOON + HOURS)
    queue.queue_due(queue._broker())
    OrmQ.objects.all().delete()
    clock.move_to(NOON + AFTER)
    queue.queue_due(queue._broker())
    assert queue.SWEEP in [name for name, _ in queueing.waiting()]


def test_a_ledger_shown_before_the_clock_was_set_still_holds(ada: Agent, clock: Any) -> None:
    held = opened(ada)
    for moment in (NOON + AFTER / 3, NOON - HOURS):
        clock.move_to(moment)
        number = entries(ada)[0].memory.number
        assert held.call("delete_memory", id=number)["ok"]
    assert held.row.deleted == 2
    assert sound(ada)
