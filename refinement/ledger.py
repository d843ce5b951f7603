"""The ledger: the memories that an agent refines, as JSON Lines. A large ledger is divided into batches.

Each line is one memory. JSON escapes the text of the memory, so the text cannot look like another line.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from config.wording import LINE_ENDS
from memory.models import Agent, Layer, Memory
from memory.models.memories import MemoryQuerySet
from memory.policy import switches
from memory.policy.categories import UNREFINED
from memory.recording import usage
from memory.silo.silo import Opened, Silo
from refinement import dates, similarity


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """A memory, its content, and how often a search returned it."""

    memory: Memory
    opened: Opened
    recalled: int = 0

    def line(self) -> str:
        return one_line(self.record())

    def record(self) -> dict[str, object]:
        """The memory as a JSON object. Search results and errors show memories in the same form."""
        memory = self.memory
        record: dict[str, object] = {
            "id": memory.number,
            "origin": moment(memory.origin),
            "created_at": moment(memory.created_at),
            "tokens": memory.tokens,
            "tags": list(self.opened.tags),
            "constitutional": memory.constitutional,
            "category": memory.category,
        }
        if memory.project:
            record["project"] = memory.project
        if memory.layer != Layer.CORE:
            record["layer"] = memory.layer
        if memory.superseded_by:
            record["superseded_by"] = memory.superseded_by
        if self.recalled:
            record["recalled"] = self.recalled
        return record | dates.ledger_fields(memory, self.opened.content) | {"content": self.opened.content}


def one_line(record: dict[str, object]) -> str:
    """A record as JSON on one line. U+0085, U+2028 and U+2029 are escaped, because some programs end a line there."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).translate(LINE_ENDS)


def moment(at: datetime) -> str:
    """A UTC time in ISO 8601, with Z at the end."""
    return at.isoformat().replace("+00:00", "Z")


def refinable(agent: Agent) -> MemoryQuerySet:
    """The agent's active core memories, except imported instructions and categories that are not refined now."""
    return Memory.objects.of(agent).active().core().filter(is_instruction=False).exclude(category__in=left_out(agent))


def left_out(agent: Agent) -> frozenset[str]:
    """The categories that are never refined, and those that are switched off."""
    return UNREFINED | switches.closed(agent)


def read(agent: Agent, numbers: Sequence[int] | None = None) -> list[Entry]:
    """The ledger, with the oldest memory first. With `numbers`, the result has only these memories, if they are
    still in the ledger."""
    silo = Silo.for_agent(agent)
    rows = refinable(agent) if numbers is None else refinable(agent).numbered(numbers)
    memories, recalled = rows.order_by("origin", "number"), usage.times(agent, numbers)
    return [Entry(memory, silo.open(memory), recalled.get(memory.number, 0)) for memory in memories]


def batches(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The ledger in batches of at most BATCH_TOKENS tokens. A larger memory is a batch of its own.

    If everything fits, there is one batch. Otherwise, groups of similar memories come first. The other memories follow
    by date.
    """
    room = settings.BATCH_TOKENS
    if sum(entry.memory.tokens for entry in entries) <= room:
        return [list(entries)] if entries else []
    filled: list[list[Entry]] = [[]]
    for group in _grouped(entries):
        for entry in group:
            if entry.memory.tokens > room and filled[-1]:
                filled.append([])
                room = settings.BATCH_TOKENS
            filled[-1].append(entry)
            room -= entry.memory.tokens
    return filled


def text(entries: Iterable[Entry]) -> str:
    return "\n".join(entry.line() for entry in entries)


def _grouped(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Groups of similar memories. After these, each remaining memory is a group of its own."""
    clusters = similarity.clusters([entry.opened.content for entry in entries])
    clustered = {place for cluster in clusters for place in cluster}
    rest = [[entry] for place, entry in enumerate(entries) if place not in clustered]
    return [[entries[place] for place in cluster] for cluster in clusters] + rest
