"""Leaving an agent alone that is over its budget, when refining it again at once would be for nothing, or against what
a person just did."""

from __future__ import annotations

from datetime import datetime, timedelta

from memory.models import Agent, DueReason

QUIET = timedelta(hours=24)
GROWTH_PERCENT = 10  # … unless it grew by this much


def begin(agent: Agent, at: datetime, tokens: int) -> None:
    """From now on, with core memory of this weight. One that waits longer, after trouble, goes on waiting."""
    if agent.failures_in_a_row and agent.quiet_until is not None and agent.quiet_until > at + QUIET:
        return
    agent.quiet_until = at + QUIET
    agent.quiet_below_tokens = -(-tokens * (100 + GROWTH_PERCENT) // 100)  # rounded up
    if agent.due_at is not None and agent.due_reason == DueReason.OVER_BUDGET:
        agent.due_at = max(agent.due_at, agent.quiet_until)


FIELDS = ("quiet_until", "quiet_below_tokens")
