"""Read an agent's own memories: single memories, a list of memories, or search results.

While memory is off, nothing can be read. While a category is off, the memories of this category cannot be read.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from memory.errors import Redacted
from memory.models import Agent, Memory
from memory.policy import switches
from memory.search.cache import reader
from memory.search.query import Query
from memory.search.selection import Filters
from memory.silo.silo import Read, Silo
from memory.writing import edits
from memory.writing.operations import refuse


def one(agent: Agent, number: int) -> Read:
    """Return one memory. Raises UnknownMemory, Redacted, MemoryDisabled, CategoryDisabled."""
    [read] = several(agent, [number])
    return read


def several(agent: Agent, numbers: Sequence[int]) -> list[Read]:
    """Return these memories, sorted by number. Raises UnknownMemory, Redacted, MemoryDisabled, CategoryDisabled."""
    switches.require_on(agent)
    found = edits.fetch(agent, sorted(numbers))
    switches.require_readable(agent, found)
    refuse(found, Redacted)
    silo = Silo.for_agent(agent)
    return [Read(memory, silo.open(memory)) for memory in found]


def page(agent: Agent, filters: Filters, *, after: int, limit: int) -> list[Read]:
    """Return at most `limit` memories with numbers above `after`, sorted by number. Redacted memories are left out.
    Raises MemoryDisabled."""
    switches.require_on(agent)
    rows = Memory.objects.of(agent).filter(number__gt=after, redacted_at__isnull=True)
    rows = rows.exclude(switches.hidden(agent)) if switches.closed(agent) else rows
    wanted = {
        "kind": filters.kind,
        "category": filters.category,
        "project": filters.project,
        "origin__gte": filters.since,
        "origin__lte": filters.until,
        "constitutional": filters.constitutional,
        "discarded_at__isnull": None if filters.discarded is None else not filters.discarded,
    }
    rows = rows.filter(**{name: value for name, value in wanted.items() if value is not None})
    silo = Silo.for_agent(agent)
    return [Read(memory, silo.open(memory)) for memory in rows.order_by("number")[:limit]]


def search(
    agent: Agent,
    query: str | Query,
    *,
    filters: Filters,
    limit: int = 10,
    boost: Callable[[datetime], float] | None = None,
) -> list[Read]:
    """Return the memories that match a query, best first. Every text is a valid query. Raises MemoryDisabled.

    `boost` is a function that takes a memory's origin date and returns a factor for the memory's score.
    """
    switches.require_on(agent)
    filters = replace(filters, without=switches.closed(agent) | filters.without)
    with reader(agent) as index:
        hits = index.search(query, filters, boost=boost, limit=limit)
    rows = Memory.objects.of(agent).active().numbered(hit.number for hit in hits) if hits else ()
    by_number = {memory.number: memory for memory in rows}
    silo = Silo.for_agent(agent)
    return [
        Read(by_number[hit.number], silo.open(by_number[hit.number]), hit.score)
        for hit in hits
        if hit.number in by_number
    ]
