"""Due dates are spread, so that many agents are not due at the same time."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from memory.agents import due_dates
from memory.agents.lifecycle import MAX_INTERVAL, MIN_INTERVAL

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
WEEK = timedelta(days=7)


def test_few_of_a_thousand_agents_are_due_in_the_same_minute() -> None:
    dates = [due_dates.following(NOW, WEEK, agent) for agent in range(1_000)]
    by_minute = [sum(abs(date - other) < timedelta(minutes=1) for other in dates) for date in dates]
    assert max(by_minute) <= 15, "of 720 minutes"
    assert abs(sum((date - NOW - WEEK for date in dates), timedelta()) / 1_000) < timedelta(minutes=30), "on average"


@given(st.timedeltas(MIN_INTERVAL, MAX_INTERVAL), st.integers(1, 2**40))
def test_the_spread_is_bounded(every: timedelta, agent: int) -> None:
    wait = due_dates.following(NOW, every, agent) - NOW
    assert abs(wait - every) <= min(every * due_dates.SHARE, due_dates.MAX_SPREAD)
