"""The ledger: the memories that an agent refines. A large ledger is divided into batches.

A line with a date is followed by the memories of this day. Each memory is one line of JSON: `[id, "text"]`, or
`[id, "text", {...}]` if it has flags, tags or an unusual category. JSON escapes the text of the memory, so the text
cannot look like another line.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from itertools import groupby

from django.conf import settings
from django.db.models import Count, Sum

from config.wording import LINE_ENDS
from memory.models import Agent, Layer, Memory
from memory.models.memories import MemoryQuerySet
from memory.policy import switches, tokens
from memory.policy.categories import UNREFINED, default_category
from memory.recording import usage
from memory.silo.silo import Opened, Silo
from refinement import dates, similarity


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """A memory, its content, and how often a search returned it."""

    memory: Memory
    opened: Opened
    recalled: int = 0

    @property
    def day(self) -> date:
        """The date of its origin, in UTC."""
        return self.memory.origin.astimezone(UTC).date()

    def line(self) -> str:
        details = self.details()
        return one_line([self.memory.number, self.opened.content, *([details] if details else [])])

    def record(self) -> dict[str, object]:
        """The memory as a JSON object, for search results and errors."""
        found = {"id": self.memory.number, "origin": self.day.isoformat()}
        return found | self.details() | {"content": self.opened.content}

    def details(self) -> dict[str, object]:
        """The flags, tags and numbers that are set."""
        memory = self.memory
        found: dict[str, object] = {
            "constitutional": memory.constitutional,
            "category": memory.category if memory.category != default_category(memory.project) else "",
            "project": memory.project,
            "tags": list(self.opened.tags),
            "path": self.opened.path if memory.store is not None and memory.layer == Layer.BENEATH else "",
            "layer": memory.layer if memory.layer != Layer.CORE else "",
            "superseded_by": memory.superseded_by,
            "recalled": self.recalled,
        }
        found |= dates.ledger_fields(memory, self.opened.content)
        return {name: value for name, value in found.items() if value}


def one_line(value: object) -> str:
    """A value as JSON on one line. U+0085, U+2028 and U+2029 are escaped, because some programs end a line there."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(LINE_ENDS)


def refinable(agent: Agent, store: int | None = None) -> MemoryQuerySet:
    """The agent's active core memories, or the memories of a memory store that are beneath. Imported instructions and
    categories that are not refined now are left out."""
    rows = Memory.objects.of(agent)
    rows = rows.active().core() if store is None else rows.kept().filter(store=store, beneath_at__isnull=False)
    return rows.filter(is_instruction=False).exclude(category__in=left_out(agent))


def size(agent: Agent, store: int | None) -> tuple[int, int]:
    """The tokens and the number of core memories, or of the memories in a memory store that a dream can refine."""
    if store is None:
        return agent.core_tokens, agent.core_count
    sums = refinable(agent, store).aggregate(tokens=Sum("tokens", default=0), count=Count("pk"))
    return sums["tokens"], sums["count"]


def left_out(agent: Agent) -> frozenset[str]:
    """The categories that are never refined, and those that are switched off."""
    return UNREFINED | switches.closed(agent)


def read(agent: Agent, numbers: Sequence[int] | None = None, *, store: int | None = None) -> list[Entry]:
    """The ledger, with the oldest memory first. With `numbers`, the result has only these memories, if they are
    still in the ledger. With `store`, it is the ledger of a memory store."""
    silo = Silo.for_agent(agent)
    rows = refinable(agent, store) if numbers is None else refinable(agent, store).numbered(numbers)
    memories, recalled = rows.order_by("origin", "number"), usage.times(agent, numbers)
    return [Entry(memory, silo.open(memory), recalled.get(memory.number, 0)) for memory in memories]


def batch_tokens(context_tokens: int | None) -> int:
    """The largest size of a batch, for a model with this context. Rules, calls and results need the other half of the
    context."""
    most: int = settings.BATCH_TOKENS
    return most if context_tokens is None else min(most, context_tokens // 2)


def batches(entries: Sequence[Entry], context_tokens: int | None = None) -> list[list[Entry]]:
    """The ledger in batches that have at most `batch_tokens` tokens as they are sent. A larger memory is a batch of its
    own.

    If everything fits, there is one batch. Otherwise, groups of similar memories come first. The other memories follow
    by date.
    """
    room = most = batch_tokens(context_tokens)
    if tokens.count(text(entries)) <= room:
        return [list(entries)] if entries else []
    filled: list[list[Entry]] = [[]]
    for group in _grouped(entries):
        for entry in group:
            size = tokens.count(text([entry]) + "\n")
            if size > room and filled[-1]:
                filled.append([])
                room = most
            filled[-1].append(entry)
            room -= size
    return filled


def text(entries: Iterable[Entry]) -> str:
    lines: list[str] = []
    for day, memories in groupby(entries, key=lambda entry: entry.day):
        lines += [day.isoformat(), *(entry.line() for entry in memories)]
    return "\n".join(lines)


def similar(entries: Sequence[Entry]) -> str:
    """The numbers of memories with similar texts that can be merged, for the briefing: "[6,38] [9,42,149]"."""
    open_to_edits = [entry for entry in entries if not entry.memory.constitutional]
    found = similarity.clusters([entry.opened.content for entry in open_to_edits])
    return " ".join(one_line([open_to_edits[place].memory.number for place in each]) for each in found)


def _grouped(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Groups of similar memories. After these, each remaining memory is a group of its own."""
    clusters = similarity.clusters([entry.opened.content for entry in entries])
    clustered = {place for cluster in clusters for place in cluster}
    rest = [[entry] for place, entry in enumerate(entries) if place not in clustered]
    return [[entries[place] for place in cluster] for cluster in clusters] + rest
