"""What of an agent's content is kept elsewhere than in its memories and its trail, and has to go with them.

The rooms above this one say so themselves when the service starts: a refinement session's sealed words are theirs.
"""

from __future__ import annotations

from collections.abc import Callable

from memory.models import Agent

Forget = Callable[[Agent, str], None]
_forget: list[Forget] = []


def register(forget: Forget) -> None:
    """Add what removes something: called with the locked agent and why, before a redaction or an erasure, in its
    transaction."""
    if forget not in _forget:
        _forget.append(forget)


def forget(agent: Agent, why: str) -> None:
    for each in _forget:
        each(agent, why)
