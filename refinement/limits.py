"""The limits of a session. The agent's setting has priority. Without it, the setting of the tenant applies. Without
that, the default here applies.

The limit of the circuit breaker is the floor, a number of core tokens. Cuts do not lower the floor. So several sessions
together cannot go below the floor. Memories that are added during a session do not allow the session more cuts.
"""

from datetime import timedelta
from decimal import ROUND_CEILING, Decimal

from memory.models import Agent

DEFAULTS = {
    "max_steps": 100,
    "max_searches": 20,
    "max_failed_calls": 20,
    "max_seconds": 15 * 60,
    "max_model_tokens": 400_000,
}
MIN_DEFAULT_CHANGES = 100
CHANGES_PER_MEMORY = 2  # a merge changes each of its sources, and its text may need a correction
MAX_PROTECTIONS = 5
MAX_FLOOR_REFUSALS = 3  # in a row
DELETED_IN_SESSION, DELETED_IN_30_DAYS = 15, 30  # percent of core tokens that the agent may delete
MAX_CALLS_PER_REPLY = 200
CUT_DAYS = timedelta(days=30)


def of(agent: Agent, memories: int | None = None) -> dict[str, int]:
    """The limits of the agent's next session, by field name. `memories` is the number of memories in the session's
    ledger. Without it, the number of core memories counts."""
    count = agent.core_count if memories is None else memories
    limits = DEFAULTS | {"max_changes": max(MIN_DEFAULT_CHANGES, CHANGES_PER_MEMORY * count)}
    for owner in (agent.tenant, agent):
        limits |= {name: value for name in limits if (value := getattr(owner, name)) is not None}
    return limits


def floor(retention: Decimal, target: int, high_water: int) -> int:
    """The floor: retention × min(target, the largest number of core tokens so far), rounded up."""
    return int((retention * min(target, high_water)).to_integral_value(ROUND_CEILING))
