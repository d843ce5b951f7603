"""Checks an agent's switches. Every edit and every read of memories calls these checks.

The master switch is a column of the agent's row. The switches of the categories are in the agent's memory rules. No
function of this module turns a switch on.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from django.db.models import Q

from memory.errors import CategoryDisabled, Invalid, MemoryDisabled
from memory.models import Agent, Memory, Source
from memory.policy import settings_document
from memory.policy.categories import SCOPES


def rules_of(agent: Agent) -> Mapping[str, Any]:
    """Return the agent's settings that differ from the defaults."""
    return _read(agent.rules)[0] if agent.rules else {}


def closed(agent: Agent) -> frozenset[str]:
    """Return the categories that are off for this agent."""
    return _read(agent.rules)[1] if agent.rules else frozenset()


@lru_cache(maxsize=256)
def _read(text: str) -> tuple[Mapping[str, Any], frozenset[str]]:
    try:
        kept = settings_document.read(text)
    except Invalid:  # SQL has stored this text, so all categories are off
        return {}, frozenset(SCOPES)
    return kept, settings_document.closed_categories(kept)


def require_on(agent: Agent) -> None:
    """Raise MemoryDisabled if the master switch is off."""
    if not agent.memory_enabled:
        raise MemoryDisabled


def require_same(now: Agent | None, before: Agent | None) -> None:
    """Raise MemoryDisabled or CategoryDisabled if memory or a category was switched off since `before` was read."""
    if now is not None and before is not None:
        if before.memory_enabled:
            require_on(now)
        if off := closed(now) - closed(before):
            raise CategoryDisabled(min(off))


def hidden(agent: Agent) -> Q:
    """Return a filter for memories that cannot be read because their category is off. The service's notices can always
    be read."""
    return Q(category__in=closed(agent)) & ~Q(source=Source.SYSTEM)


def require_readable(agent: Agent, memories: Iterable[Memory]) -> None:
    """Raise CategoryDisabled if one of these memories cannot be read."""
    require_open(agent, (memory.category for memory in memories if memory.source != Source.SYSTEM))


def require_open(agent: Agent, categories: Iterable[str]) -> None:
    """Raise CategoryDisabled if one of these categories is off."""
    if off := closed(agent):
        for category in categories:
            if category in off:
                raise CategoryDisabled(category)


def require(agent: Agent, category: str) -> None:
    """Raise MemoryDisabled or CategoryDisabled if no memory of this category can be stored. Call this before expensive
    work. The write path checks the switches again."""
    require_on(agent)
    require_open(agent, [category])
