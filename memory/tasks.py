"""What workers are given to do for the agents' side."""

from __future__ import annotations

from datetime import timedelta

import structlog

from config.queue import TELL_STEWARD, put_later, task
from memory import letters

log = structlog.get_logger("palimpsest.mail")

WAITS = tuple(timedelta(minutes=minutes) for minutes in (1, 10, 60, 360))  # before a letter is tried once more


@task
def tell_steward(agent_id: int, seq: int, whose: int, tried: int = 0) -> str:
    """Send a letter, or try again later, a bounded number of times."""
    try:
        return "sent" if letters.send(agent_id, seq, whose) else "no_steward"
    except OSError:  # the mail server's refusals are, too
        log.warning("letter not sent", agent=agent_id, seq=seq, attempt=tried + 1)
    if tried == len(WAITS):
        log.error("letter given up", agent=agent_id, seq=seq)
        return "given_up"
    put_later(TELL_STEWARD, agent_id, seq, whose, tried + 1, wait=WAITS[tried])
    return "put_off"
