"""When an agent's next refinement by schedule is due: not in the same second as a thousand others'."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

SHARE = 0.05  # of the interval, before or after
FARTHEST = timedelta(hours=6)


def following(moment: datetime, every: timedelta, agent_id: int) -> datetime:
    """The date that follows `moment` by about `every`. Agents that begin together drift apart with each date."""
    return moment + every + spread(every, f"{agent_id}/{moment.timestamp()}")


def spread(span: timedelta, seed: str) -> timedelta:
    """Up to a twentieth of the span, 6 hours at most, before or after; the same for the same seed."""
    most = min(span * SHARE, FARTHEST)
    number = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest(), "big")
    return most * (2 * number / 2**64 - 1)
