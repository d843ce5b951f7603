"""When an agent's next scheduled refinement is due. The dates differ, so that the agents start at different times."""

import hashlib
from datetime import datetime, timedelta

SHARE = 0.05  # a date may be earlier or later by this share of the interval
MAX_SPREAD = timedelta(hours=6)


def following(moment: datetime, every: timedelta, agent_id: int) -> datetime:
    """Return the date `moment + every`, moved by a small offset. The offset differs between agents."""
    return moment + every + spread(every, f"{agent_id}/{moment.timestamp()}")


def spread(span: timedelta, seed: str) -> timedelta:
    """Return a positive or negative offset of at most 5 % of `span` and at most 6 hours. The same `seed` always gives
    the same offset."""
    most = min(span * SHARE, MAX_SPREAD)
    number = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest(), "big")
    return most * (2 * number / 2**64 - 1)
