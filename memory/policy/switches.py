"""What an agent's switches let through (seed 004, "Implementation Guards"): asked with every edit and every reading.

The master switch is a column of the agent's row; that of each category is in its rules. Nothing here turns one on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from django.db.models import Q

from memory.errors import CategoryDisabled, MemoryDisabled
from memory.models import Agent, Memory, Source
from memory.policy import settings_document

_NONE: frozenset[str] = frozenset()


def rules_of(agent: Agent) -> Mapping[str, Any]:
    """What of the agent's rules differs from the defaults."""
    return _read(agent.rules)[0] if agent.rules else {}


def closed(agent: Agent) -> frozenset[str]:
    """The categories that are switched off."""
    return _read(agent.rules)[1] if agent.rules else _NONE


@lru_cache(maxsize=256)
def _read(text: str) -> tuple[Mapping[str, Any], frozenset[str]]:
    kept = json.loads(text)
    return kept, settings_document.closed_categories(kept)


def require_on(agent: Agent) -> None:
    """Raise MemoryDisabled where the master switch is off."""
    if not agent.memory_enabled:
        raise MemoryDisabled


def hidden(agent: Agent) -> Q:
    """What is not read back: memories of closed categories, but the system's own notices."""
    return Q(category__in=closed(agent)) & ~Q(source=Source.SYSTEM)


def require_readable(agent: Agent, memories: Iterable[Memory]) -> None:
    """Raise CategoryDisabled where one of these is not read back."""
    if closed(agent):
        require_open(agent, (memory.category for memory in memories if memory.source != Source.SYSTEM))


def require_open(agent: Agent, categories: Iterable[str]) -> None:
    """Raise CategoryDisabled where one of these is switched off."""
    off = closed(agent)
    if off:
        for category in categories:
            if category in off:
                raise CategoryDisabled(category)


def require(agent: Agent, category: str) -> None:
    """Raise MemoryDisabled or CategoryDisabled where nothing may be kept in this category: for work that would be in
    vain. What keeps a memory asks again."""
    if not agent.memory_enabled:
        raise MemoryDisabled
    require_open(agent, [category])
