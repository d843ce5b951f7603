"""The cool-down lasts 24 hours after a session or a rollback. During this time, no refinement starts only because core
memory is still over its budget. The cool-down ends earlier if core memory grows by GROWTH_PERCENT."""

from datetime import datetime, timedelta

from memory.models import Agent, DueReason

QUIET = timedelta(hours=24)
GROWTH_PERCENT = 10  # growth that ends the cool-down early


def begin(agent: Agent, at: datetime, tokens: int) -> None:
    """Begin a cool-down. `tokens` is the size of core memory. If a failure caused a longer wait, that wait does not
    change."""
    if agent.failures_in_a_row and agent.quiet_until is not None and agent.quiet_until > at + QUIET:
        return
    agent.quiet_until = at + QUIET
    agent.quiet_below_tokens = -(-tokens * (100 + GROWTH_PERCENT) // 100)  # rounded up
    if agent.due_at is not None and agent.due_reason == DueReason.OVER_BUDGET:
        agent.due_at = max(agent.due_at, agent.quiet_until)


FIELDS = ("quiet_until", "quiet_below_tokens")
