"""Build the block of memories for an agent's prompt. The block has the core memories first, and then the journal of the
last days.

If the block exceeds `max_tokens`, the oldest journal memories are left out first, and then the oldest core memories.
Constitutional memories are never left out. The last line of the block says how many memories and tokens are left out.
Memories of the categories credentials, keys and sensitive are never in the block.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_

from django.conf import settings
from django.db.models import Count, Q, Sum
from django.utils import timezone

from config.wording import several
from memory.errors import MemoryDisabled
from memory.models import Agent, Kind, Memory
from memory.models.memories import MemoryQuerySet
from memory.policy import switches
from memory.policy.categories import UNREFINED
from memory.policy.projects import seen_from
from memory.policy.validation import checked_project
from memory.silo.silo import Opened, Silo

PAGE = 64  # memories of the first page that is read

Line = tuple[Memory, Opened]


@dataclass(frozen=True, slots=True, repr=False)
class Context:
    """The block: the memories in it, oldest first, and the number of memories and tokens that are left out."""

    core: tuple[Line, ...]
    journal: tuple[Line, ...]
    tokens: int
    left_out: int
    left_out_tokens: int
    beneath: int = 0

    def as_text(self) -> str:
        """Return the block as text for a prompt."""
        lists = {"# What you remember": self.core, "# Your last days": self.journal}
        parts = ["\n".join([title, *(line(*each) for each in found)]) for title, found in lists.items() if found]
        if self.left_out:
            parts.append(left_out(self.left_out, self.left_out_tokens))
        if self.beneath:
            verb, them = ("is", "it") if self.beneath == 1 else ("are", "them")
            count = several(self.beneath, "older memory", "older memories")
            parts.append(f"({count} {verb} beneath; search finds {them}.)")
        return "\n\n".join(parts) + "\n" if parts else ""


def line(memory: Memory, opened: Opened, mark: str = "") -> str:
    """Return the line for a memory. It begins with `mark`, and with the date of a journal memory, or with the first and
    the last date of a memory that was merged from memories of several days."""
    first, last = memory.origin.date(), (memory.origin_latest or memory.origin).date()
    dates = f"{first} to {last}: " if first != last else f"{first}: " if memory.kind == Kind.JOURNAL else ""
    return f"- {mark}{dates}{indented(opened)}"


def indented(opened: Opened) -> str:
    """Return a memory's content. All lines after the first are indented, so that no line looks like a new memory."""
    return "\n  ".join(opened.content.splitlines())


def left_out(memories: int, tokens: int) -> str:
    """Return the last line of a block. This line says how many memories and tokens are left out."""
    verb = "is" if memories == 1 else "are"
    return f"({several(memories, 'memory', 'memories')} of {tokens:,} tokens {verb} left out here.)"


def etag(agent: Agent, *, max_tokens: int | None, form: str, project: str | None = None) -> str:
    """Return the ETag of a block. The ETag changes with each audit entry of the agent, and when the journal of the
    block begins on another day. No database query is needed."""
    since = _journal_since().date()
    state = f"{agent.pk}/{agent.audit_seq}/{agent.memory_enabled}/{since}/{max_tokens}/{form}"
    state += "" if project is None else f"/{project}"
    return f'"{hashlib.sha256(state.encode()).hexdigest()[:32]}"'


def read(agent: Agent, *, max_tokens: int | None = None, project: str | None = None) -> Context:
    """Return the block of memories for a prompt. Only the agent's side may read it. With `project`, the block has only
    memories that are visible from that project.

    Raises Invalid. If memory is off, raises MemoryDisabled instead of returning an empty block.
    """
    if not agent.memory_enabled:
        raise MemoryDisabled
    hidden = Q(category__in=UNREFINED) | switches.hidden(agent)
    hidden = hidden if project is None else hidden | _of_others(agent, project)
    memories = Memory.objects.of(agent).active().order_by("-origin", "-number")
    visible, days = memories.exclude(hidden), Q(kind=Kind.JOURNAL, origin__gte=_journal_since())
    if max_tokens is None:
        kept, gone = list(visible.filter(Q(kind=Kind.CORE) | Q(constitutional=True) | days)), (0, 0)
    else:
        others = visible.filter(constitutional=False)
        constitutional = visible.filter(constitutional=True) if agent.constitutional_count else ()
        kept = _within(constitutional, (others.core(), others.filter(days)), max_tokens)
        gone = _left_out(agent, memories.core().filter(hidden), others.filter(days), kept)
    silo = Silo.for_agent(agent)
    lines = [(memory, silo.open(memory)) for memory in sorted(kept, key=lambda memory: (memory.origin, memory.number))]
    return Context(
        tuple(line for line in lines if line[0].kind == Kind.CORE),
        tuple(line for line in lines if line[0].kind == Kind.JOURNAL),
        sum(memory.tokens for memory in kept),
        *gone,
        beneath=agent.beneath_count,
    )


def _of_others(agent: Agent, project: str) -> Q:
    """Return a filter for the memories that are not visible from a project."""
    seen = seen_from(switches.rules_of(agent), checked_project(project, is_known=True)) or {}
    others = (Q(category=category) & ~Q(project__in=projects) for category, projects in seen.items())
    return reduce(or_, others, Q(pk__in=[]))


def _journal_since() -> datetime:
    """Return the moment at which the journal of a block begins. This moment is always midnight, so it changes only once
    a day."""
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=settings.CONTEXT_JOURNAL_DAYS)


def _within(constitutional: Iterable[Memory], others: Iterable[MemoryQuerySet], max_tokens: int) -> list[Memory]:
    """Return all constitutional memories, and the first of the other memories that fit into the remaining tokens.

    The rows are read in pages, so the cost depends on the result, not on the number of stored memories.
    """
    kept = list(constitutional)
    room = max_tokens - sum(memory.tokens for memory in kept)
    for rows in others:
        start, end = 0, PAGE
        while page := list(rows[start:end]):
            for memory in page:
                if memory.tokens > room:
                    return kept
                room -= memory.tokens
                kept.append(memory)
            start, end = end, 3 * end
    return kept


def _left_out(agent: Agent, hidden: MemoryQuerySet, journal: MemoryQuerySet, kept: Sequence[Memory]) -> tuple[int, int]:
    """Return the number of memories that are left out, and of their tokens. The agent's counters have all core
    memories. `hidden` has the core memories that cannot be in the block."""
    size = {"count": Count("pk"), "tokens": Sum("tokens", default=0)}
    without, days = hidden.aggregate(**size), journal.aggregate(**size)
    counted = [memory for memory in kept if memory.kind == Kind.CORE or not memory.constitutional]
    memories = agent.core_count + agent.instruction_count - without["count"] + days["count"] - len(counted)
    tokens = agent.core_tokens + agent.instruction_tokens - without["tokens"] + days["tokens"]
    tokens -= sum(memory.tokens for memory in counted)
    return max(0, memories), max(0, tokens)  # another process may have stored a memory since `agent` was read
