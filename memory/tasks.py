"""The background tasks of this app. They send letters to stewards."""

from __future__ import annotations

from config.queue import ASK_STEWARD, TELL_STEWARD, task
from memory.mail import letters, link_letters


@task
def tell_steward(agent_id: int, seq: int, whose: int, tried: int = 0) -> str:
    """Send the steward a letter about a change."""
    return letters.post(letters.send, TELL_STEWARD, agent_id, seq, whose, tried=tried)


@task
def ask_steward(agent_id: int, seq: int, tried: int = 0) -> str:
    """Send the steward a consent link. Each attempt creates a new link, so no token is stored."""
    return letters.post(link_letters.send, ASK_STEWARD, agent_id, seq, tried=tried)
