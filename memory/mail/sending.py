"""Sending a letter, or trying it again later, a bounded number of times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import structlog

from config.queue import put_later

log = structlog.get_logger("palimpsest.mail")

WAITS = tuple(timedelta(minutes=minutes) for minutes in (1, 10, 60, 360))  # before a letter is tried once more


def post(send: Callable[..., str], name: str, *numbers: int, tried: int) -> str:
    """What became of it, as a code. `numbers`, agent and entry first, are the task's, to be queued again."""
    agent_id, seq, *_ = numbers
    try:
        return send(*numbers)
    except OSError:  # the mail server's refusals are, too
        log.warning("letter not sent", agent=agent_id, seq=seq, attempt=tried + 1)
    if tried == len(WAITS):
        log.error("letter given up", agent=agent_id, seq=seq)
        return "given_up"
    put_later(name, *numbers, tried + 1, wait=WAITS[tried])
    return "put_off"
