"""When an agent's next scheduled refinement is due. The dates of agents are spread, so that they do not coincide."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

SHARE = 0.05  # the share of the interval by which a date may be earlier or later
MAX_SPREAD = timedelta(hours=6)


def following(moment: datetime, every: timedelta, agent_id: int) -> datetime:
    """A date about `every` after `moment`. Agents that start at the same time get different dates."""
    return moment + every + spread(every, f"{agent_id}/{moment.timestamp()}")


def spread(span: timedelta, seed: str) -> timedelta:
    """An offset, positive or negative: at most 5 % of the span, at most 6 hours. The same seed gives the same
    offset."""
    most = min(span * SHARE, MAX_SPREAD)
    number = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest(), "big")
    return most * (2 * number / 2**64 - 1)
