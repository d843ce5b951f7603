"""The limits of one session. Each is set by the agent, else by its tenant, else it is the default here."""

from __future__ import annotations

from django.utils import timezone

from memory.models import Agent
from refinement.errors import LimitReached
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
