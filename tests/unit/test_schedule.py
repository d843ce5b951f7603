"""When agents are due, and the date that a closed session sets."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.utils import timezone
from django_q.models import OrmQ

from config.queue import SWEEP
from memory.agents import due_dates, lifecycle
from memory.models import Agent, DueReason
from memory.writing import edits
from refinement import backlog, dreams, schedule, scheduling
from refinement import session as sessions
from refinement.errors import BackingOff
from refinement.models import Driver, Mode, Outcome, RefinementSession
from tests import queueing
from tests.refining import change, fill, filler, opened
from tests.steps import ME, PERSON, fresh, remember
from tests.unit.test_stores import new

pytestmark = pytest.mark.database

HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)
LATE = timezone.now() - HOUR
GOOD = [Outcome.COMPLETED, Outcome.DECLINED]
BAD = [Outcome.INCOMPLETE, Outcome.FAILED, Outcome.ABANDONED]


def due() -> list[str]:
    return [agent.label for agent in schedule.due()]


def make_due(agent: Agent, at: datetime | None = None, reason: str = DueReason.WEEKLY, **settings: Any) -> None:
    change(agent, due_at=at or LATE, due_reason=reason, **settings)


def about(wait: timedelta) -> timedelta:
    """A wait without its random spread."""
    likely = [HOUR * 2**n for n in range(8)] + [DAY, WEEK]
    spread = {each: min(each * due_dates.SHARE, due_dates.MAX_SPREAD) for each in likely}
    return next((each for each in likely if abs(wait - each) <= spread[each]), wait)


def closed(agent: Agent, outcome: str, **settings: Any) -> tuple[timedelta | None, str]:
    """Close a session. Return in how long the agent is due, and why."""
    held = opened(agent, **settings)
    sessions.close(held.session, outcome)
    after = fresh(agent)
    closed_at = held.row.closed_at
    assert closed_at is not None
    return None if after.due_at is None else about(after.due_at - closed_at), after.due_reason


def test_due_agents_are_listed_longest_overdue_first_without_those_whose_memory_is_off(ada: Agent, bob: Agent) -> None:
    make_due(ada)
    make_due(bob, LATE - HOUR)
    assert due() == ["globex/bob", "acme/ada"]
    make_due(ada, memory_enabled=False)
    assert (due(), schedule.why(fresh(ada))) == (["globex/bob"], "")


def test_a_paused_agent_is_due_only_on_request(ada: Agent) -> None:
    for reason in DueReason.values:
        make_due(ada, reason=reason, paused=True)
        assert due() == (["acme/ada"] if reason == DueReason.MANUAL else [])


def test_an_agent_with_an_open_session_is_due_after_its_lease_ends(ada: Agent) -> None:
    opened(ada)
    make_due(ada)
    assert due() == []
    with time_machine.travel(timezone.now() + HOUR):
        assert due() == ["acme/ada"]


def requested(agent: Agent, driver: str, cut: int = 0) -> int:
    """Run a session that the agent's side requested. Return for how many hours the next request is refused."""
    backlog.request(agent)
    session = sessions.open_session(fresh(agent), trigger=DueReason.AGENT, driver=driver)
    RefinementSession.objects.filter(pk=session.pk).update(lost_tokens=cut, tokens_before=1_000)
    sessions.close(session, Outcome.DECLINED)
    for hours in range(26):
        with time_machine.travel(timezone.now() + hours * HOUR), suppress(BackingOff):
            schedule.require_useful(fresh(agent))
            return hours
    return 26


def test_a_request_is_refused_after_sessions_that_cut_almost_nothing(ada: Agent) -> None:
    """Otherwise one key keeps the model busy for nothing. The schedule and a person are not refused."""
    with time_machine.travel(timezone.now(), tick=False) as clock:
        for driver in Driver.values:
            for hours in (1, 2, 4, 8, 16, 24, 24):
                assert requested(ada, driver, cut=9) == hours
                with pytest.raises(BackingOff, match="less than 1 %"):
                    backlog.request(ada)
                with pytest.raises(BackingOff):
                    sessions.open_session(fresh(ada), trigger=DueReason.AGENT, driver=Driver.RUNTIME)
                clock.shift(hours * HOUR)
            assert requested(ada, driver, cut=10) == 0, "it changed enough"
        assert requested(ada, Driver.RUNTIME) == 1
        with time_machine.travel(timezone.now() - DAY):
            backlog.request(ada)  # the clock was ahead when the session ended
        make_due(ada)
        session = scheduling.open_due(fresh(ada))
        assert session is not None
        sessions.close(session, Outcome.DECLINED)
        backlog.request_for(ada, PERSON)
        assert scheduling.open_due(fresh(ada)) is not None


def test_a_dream_does_not_end_the_wait_for_a_session(ada: Agent) -> None:
    """Otherwise a key could request useless sessions without end, with a dream of a tiny store between two of them."""
    store = new(ada, a="tea")
    with edits.locked(fresh(ada)) as locked:
        waiting = dreams.create(locked, store, (), is_copy=False)
    assert requested(ada, Driver.RUNTIME) == 1
    assert dreams.begin(fresh(ada)) is None
    assert dreams.find(ada, waiting.number).error == "backing_off"
    session = sessions.open_session(fresh(ada), trigger=DueReason.AGENT, mode=Mode.STORE, store=store)
    RefinementSession.objects.filter(pk=session.pk).update(lost_tokens=1, tokens_before=1)
    sessions.close(session, Outcome.COMPLETED)
    schedule.require_useful(fresh(ada), is_dream=True)
    with pytest.raises(BackingOff):
        schedule.require_useful(fresh(ada))


@pytest.mark.parametrize("outcome", GOOD)
def test_after_a_session_the_next_is_due_in_a_week(ada: Agent, outcome: str) -> None:
    assert closed(ada, outcome) == (WEEK, DueReason.WEEKLY)
    assert closed(ada, outcome, refine_every=DAY) == (DAY, DueReason.WEEKLY)
    assert closed(ada, outcome, refine_every=None)[0] is None
    assert fresh(ada).last_refined_at == RefinementSession.objects.latest("pk").closed_at


@pytest.mark.parametrize("outcome", BAD)
def test_after_a_bad_session_the_next_is_due_in_an_hour(ada: Agent, outcome: str) -> None:
    assert closed(ada, outcome) == (HOUR, DueReason.RETRY)
    closed(ada, Outcome.COMPLETED)
    assert closed(ada, outcome, refine_every=None) == (HOUR, DueReason.RETRY), "also without a cadence"


def test_after_failures_the_cooldown_doubles_up_to_seven_days(ada: Agent) -> None:
    waits = [closed(ada, Outcome.FAILED)[0] for _ in range(12)]
    assert waits == [HOUR * 2**n for n in range(8)] + [WEEK] * 4


def test_a_new_model_is_tried_at_once_unless_the_agents_own_key_named_it(ada: Agent) -> None:
    for actor, at_once in ((ME, False), (PERSON, True)):
        assert closed(ada, Outcome.FAILED)[1] == DueReason.RETRY
        lifecycle.change(fresh(ada), actor, model=f"ollama/{actor.kind}")
        assert (due(), fresh(ada).failures_in_a_row == 0) == (["acme/ada"] * at_once, at_once)
    fill(ada, 2, 100)
    assert closed(ada, Outcome.COMPLETED, budget_tokens=100, target_tokens=100) == (DAY, DueReason.OVER_BUDGET)
    assert due() == [], "it could not make core memory small enough"
    OrmQ.objects.all().delete()
    lifecycle.change(fresh(ada), PERSON, model="builtin/archive")
    assert due() == ["acme/ada"]
    assert queueing.waiting() == [(SWEEP, ())]


def test_growth_does_not_make_a_retry_earlier(ada: Agent) -> None:
    closed(ada, Outcome.FAILED, budget_tokens=100, target_tokens=100)
    before = fresh(ada).due_at
    fill(ada, 3, 100)
    assert fresh(ada).due_at == before


def test_a_write_that_takes_an_agent_over_its_budget_makes_it_due(ada: Agent) -> None:
    change(ada, budget_tokens=100, target_tokens=100)
    fill(ada, 1, 100)
    assert schedule.why(fresh(ada)) == ""
    fill(ada, 1, 1, "more")
    assert schedule.why(fresh(ada)) == DueReason.OVER_BUDGET


def test_an_agent_still_over_its_budget_waits_a_day_or_until_it_grows_by_a_tenth(ada: Agent) -> None:
    fill(ada, 2, 100)
    assert closed(ada, Outcome.COMPLETED, budget_tokens=100, target_tokens=100) == (DAY, DueReason.OVER_BUDGET)
    remember(ada, filler(19, "little"))
    assert schedule.why(fresh(ada)) == ""
    remember(ada, filler(2, "more"))
    assert schedule.why(fresh(ada)) == DueReason.OVER_BUDGET


def test_a_cadence_shorter_than_a_day_applies_during_the_quiet_day(ada: Agent) -> None:
    fill(ada, 2, 100)
    settings = {"budget_tokens": 100, "target_tokens": 100, "refine_every": HOUR}
    assert closed(ada, Outcome.COMPLETED, **settings) == (HOUR, DueReason.WEEKLY)


def lost(agent: Agent, driver: str = Driver.SERVER) -> timedelta:
    """Abandon a session. Return in how long the agent is due."""
    session = sessions.open_session(fresh(agent), trigger="weekly", driver=driver)
    with time_machine.travel(timezone.now() + timedelta(seconds=settings.LEASE_SECONDS + 1)):
        sessions.close_stale()
        due_at = fresh(agent).due_at
        assert due_at is not None
        session.refresh_from_db()
        assert session.closed_at is not None
        return about(due_at - session.closed_at)


def test_a_dead_workers_agent_is_taken_over_at_once_and_later_the_second_time(ada: Agent, bob: Agent) -> None:
    assert [lost(ada) for _ in range(3)] == [timedelta(), 2 * HOUR, 4 * HOUR]
    assert lost(bob, Driver.RUNTIME) == HOUR, "the service does not take over from a runtime"


def test_a_new_cadence_moves_the_date_only_of_agents_that_wait_for_it(ada: Agent) -> None:
    lifecycle.change(ada, PERSON, refine_every=DAY)
    due_at = fresh(ada).due_at
    assert due_at is not None
    assert about(due_at - ada.created_at) == DAY
    lifecycle.change(ada, PERSON, refine_every=None)
    assert fresh(ada).due_at is None
    make_due(ada, reason=DueReason.OVER_BUDGET)
    lifecycle.change(ada, PERSON, refine_every=WEEK)
    assert schedule.why(fresh(ada)) == DueReason.OVER_BUDGET
