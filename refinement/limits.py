"""The limits of one session. Each is set by the agent, else by its tenant, else it is the default here.

The last is the circuit breaker (30-refinement), in tokens of core memory. Its floor is absolute, so no run of sessions,
however long, goes below it. What a session has cut is the sum of its own losses, so memories that are added meanwhile
allow no more cuts.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

from django.utils import timezone

from memory.models import Agent
from refinement.errors import FloorReached, LimitReached
from refinement.models import RefinementSession

DEFAULTS = {
    "max_steps": 30,
    "max_searches": 20,
    "max_failed_calls": 20,
    "max_seconds": 15 * 60,
    "max_model_tokens": 400_000,
}
MIN_DEFAULT_CHANGES = 100  # or half the core memories, when that is more
MAX_PROTECTIONS = 5
MAX_FLOOR_REFUSALS = 3  # in a row
MAX_CALLS_PER_REPLY = 200


def of(agent: Agent) -> dict[str, int]:
    """The limits of the agent's next session, by field name."""
    defaults = DEFAULTS | {"max_changes": max(MIN_DEFAULT_CHANGES, agent.core_count // 2)}
    own = {name: getattr(agent, name) for name in defaults}
    of_tenant = {name: getattr(agent.tenant, name) for name in defaults}
    return defaults | _set(of_tenant) | _set(own)


def _set(values: dict[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in values.items() if value is not None}


def within(session: RefinementSession, what: str) -> None:
    """Raise LimitReached if the session has used all that it may use of `what`."""
    allowed = getattr(session, f"max_{what}")
    if getattr(session, what) >= allowed:
        raise LimitReached(what, allowed)


def in_time(session: RefinementSession) -> None:
    """Raise LimitReached if the session has run for longer than it may."""
    if (timezone.now() - session.opened_at).total_seconds() > session.max_seconds:
        raise LimitReached("seconds", session.max_seconds)


def floor(retention: Decimal, target: int, high_water: int) -> int:
    """retention × min(target, the largest core mass there ever was), rounded up."""
    return int((retention * min(target, high_water)).to_integral_value(ROUND_CEILING))


def above_floor(counted: int, cut: int, floor: int) -> None:
    """Raise FloorReached, with the arithmetic, when cutting `cut` from `counted` would go below the floor."""
    if cut and counted - cut < floor:
        raise FloorReached(
            f"Of this session's {counted:,} tokens the call would cut {cut:,} and leave {counted - cut:,}, below the "
            f"floor of {floor:,}. At most {max(0, counted - floor):,} can still be cut. Nothing was changed."
        )
