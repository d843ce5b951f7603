"""Build the block of memories for an agent's prompt. The block has the core memories first, and then the journal of the
last days.

If the block exceeds `max_tokens`, the oldest journal memories are left out first, and then the oldest core memories.
Constitutional memories are never left out. The last line of the block says how many memories and tokens are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from config.wording import several
from memory.errors import MemoryDisabled
from memory.models import Agent, Kind, Memory
from memory.policy import switches
from memory.policy.projects import seen_from
from memory.policy.validation import checked_project
from memory.silo.silo import Opened, Silo

Line = tuple[Memory, Opened]


@dataclass(frozen=True, slots=True, repr=False)
class Context:
    """The block: the memories in it, oldest first, and the number of memories and tokens that are left out."""

    core: tuple[Line, ...]
    journal: tuple[Line, ...]
    tokens: int
    left_out: int
    left_out_tokens: int

    def as_text(self) -> str:
        """Return the block as text for a prompt."""
        parts = []
        if self.core:
            parts.append("# What you remember\n" + "\n".join(f"- {indented(opened)}" for _, opened in self.core))
        if self.journal:
            days = (f"- {memory.origin:%Y-%m-%d}: {indented(opened)}" for memory, opened in self.journal)
            parts.append("# Your last days\n" + "\n".join(days))
        if self.left_out:
            parts.append(left_out(self.left_out, self.left_out_tokens))
        return "\n\n".join(parts) + "\n" if parts else ""


def indented(opened: Opened) -> str:
    """Return a memory's content. All lines after the first are indented, so that no line looks like a new memory."""
    return "\n  ".join(opened.content.splitlines())


def left_out(memories: int, tokens: int) -> str:
    """Return the last line of a block. This line says how many memories and tokens are left out."""
    verb = "is" if memories == 1 else "are"
    return f"({several(memories, 'memory', 'memories')} of {tokens:,} tokens {verb} left out here.)"


def etag(
    agent: Agent, *, max_tokens: int | None, form: str, project: str | None = None, now: datetime | None = None
) -> str:
    """Return the ETag of a block. The ETag changes with each audit entry of the agent, and when the journal of the
    block begins on another day. No database query is needed."""
    since = _journal_since(now or timezone.now()).date()
    state = f"{agent.pk}/{agent.audit_seq}/{agent.memory_enabled}/{since}/{max_tokens}/{form}"
    state += "" if project is None else f"/{project}"
    return f'"{hashlib.sha256(state.encode()).hexdigest()[:32]}"'


def read(
    agent: Agent, *, max_tokens: int | None = None, project: str | None = None, now: datetime | None = None
) -> Context:
    """Return the block of memories for a prompt. Only the agent's side may read it. With `project`, the block has only
    memories that are visible from that project.

    Raises Invalid. If memory is off, raises MemoryDisabled instead of returning an empty block.
    """
    if not agent.memory_enabled:
        raise MemoryDisabled
    memories = Memory.objects.of(agent).active()
    recent = Q(kind=Kind.JOURNAL) & (Q(origin__gte=_journal_since(now or timezone.now())) | Q(constitutional=True))
    visible = memories.exclude(switches.hidden(agent)) if switches.closed(agent) else memories
    visible = visible.exclude(_of_others(agent, project)) if project is not None else visible
    found = list(visible.filter(Q(kind=Kind.CORE) | recent).order_by("origin", "number"))
    kept = _within(found, max_tokens)
    silo = Silo.for_agent(agent)
    lines = [(memory, silo.open(memory)) for memory in kept]
    gone = sum(memory.tokens for memory in found) - sum(memory.tokens for memory in kept)
    return Context(
        core=tuple(line for line in lines if line[0].kind == Kind.CORE),
        journal=tuple(line for line in lines if line[0].kind == Kind.JOURNAL),
        tokens=sum(memory.tokens for memory in kept),
        left_out=len(found) - len(kept),
        left_out_tokens=gone,
    )


def _of_others(agent: Agent, project: str) -> Q:
    """Return a filter for the memories that are not visible from a project."""
    seen = seen_from(switches.rules_of(agent), checked_project(project, is_known=True)) or {}
    others = (Q(category=category) & ~Q(project__in=projects) for category, projects in seen.items())
    return reduce(or_, others, Q(pk__in=[]))


def _journal_since(now: datetime) -> datetime:
    """Return the moment at which the journal of a block begins. This moment is always midnight, so it changes only once
    a day."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=settings.CONTEXT_JOURNAL_DAYS)


def _within(memories: Sequence[Memory], max_tokens: int | None) -> list[Memory]:
    """Return the memories that fit into `max_tokens`. The order of the memories does not change.

    All constitutional memories are returned. The remaining tokens are used for the newest core memories, then for the
    newest journal memories.
    """
    if max_tokens is None:
        return list(memories)
    room = max_tokens - sum(memory.tokens for memory in memories if memory.constitutional)
    kept = {memory.number for memory in memories if memory.constitutional}
    for kind in (Kind.CORE, Kind.JOURNAL):
        for memory in reversed(memories):
            if memory.kind == kind and not memory.constitutional:
                if memory.tokens > room:
                    return [each for each in memories if each.number in kept]
                room -= memory.tokens
                kept.add(memory.number)
    return [memory for memory in memories if memory.number in kept]
