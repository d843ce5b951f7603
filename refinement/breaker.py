"""The circuit breaker's arithmetic (30-refinement, Circuit breaker). All figures are tokens of core memory.

The floor is absolute, so that no run of sessions, however long, goes below it; and what a session has cut is the
sum of its own losses, so that memories added meanwhile buy no room.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal

from refinement.errors import FloorReached


def floor(retention: Decimal, target: int, high_water: int) -> int:
    """retention × min(target, the largest core mass there ever was), rounded up."""
    return int((retention * min(target, high_water)).to_integral_value(ROUND_CEILING))


def loss(sources: Iterable[int], result: int = 0) -> int:
    """What an edit takes away: its sources' weight less its result's; an edit that adds weight loses nothing."""
    return max(0, sum(sources) - result)


def check(counted: int, cut: int, floor: int) -> None:
    """Raise FloorReached, with the arithmetic, when cutting `cut` from `counted` would go below the floor."""
    if cut and counted - cut < floor:
        raise FloorReached(
            f"Of this session's {counted:,} tokens the call would cut {cut:,} and leave {counted - cut:,}, below the "
            f"floor of {floor:,}. At most {max(0, counted - floor):,} can still be cut. Nothing was changed."
        )
