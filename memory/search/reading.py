"""Read an agent's own memories: single memories, a list of memories, or search results.

While memory is off, nothing can be read. While a category is off, the memories of this category cannot be read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from audit.bulk import in_parts
from memory.errors import Redacted
from memory.models import Agent, Kind, Layer, Memory
from memory.policy import switches
from memory.search import embedding, lineages
from memory.search.cache import reader
from memory.search.query import Query, parse
from memory.search.selection import Filters
from memory.silo.silo import Read, Silo
from memory.time_machine import lineage
from memory.writing import edits
from memory.writing.operations import refuse

MAX_SOURCES, MAX_SOURCE_BYTES = 1_000, 4_000_000  # as many as one merge can have
CANDIDATES = 3  # times the wanted results, because some repeat others


class Found(list[Read]):
    """Results of a search, best first. If `searched_since` is not None, earlier memories beneath were not searched.
    `by_meaning` says whether memories with a similar meaning were searched for."""

    searched_since: datetime | None = None
    by_meaning: bool = False


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


def lineage_of(agent: Agent, number: int) -> tuple[list[Read], Read | None]:
    """Return what a memory was made from, and what replaced it. Memories that cannot be read are left out. Of the
    sources, the first MAX_SOURCES are returned, with at most MAX_SOURCE_BYTES."""
    [memory] = edits.fetch(agent, [number])
    sources, silo = lineage.sources(agent, [number]), Silo.for_agent(agent)
    rows = Memory.objects.of(agent).filter(redacted_at__isnull=True).exclude(switches.hidden(agent))
    found = rows.numbered(sources).order_by("number").fitting(MAX_SOURCES, MAX_SOURCE_BYTES)
    successor = rows.filter(number=memory.superseded_by or 0).first()
    return [Read(row, silo.open(row)) for row in found], Read(successor, silo.open(successor)) if successor else None


def page(agent: Agent, filters: Filters, *, after: int, limit: int) -> Iterator[Read]:
    """Return at most `limit` memories with numbers above `after`, sorted by number. Redacted memories are left out.
    Raises MemoryDisabled."""
    switches.require_on(agent)
    rows = Memory.objects.of(agent).filter(redacted_at__isnull=True)
    if layers := filters.layers or {None: (), True: [Layer.DISCARDED], False: Kind.values}[filters.discarded]:
        rows = rows.in_layers(layers)
    rows = rows.exclude(switches.hidden(agent)) if switches.closed(agent) else rows
    wanted = {
        "kind": filters.kind,
        "category": filters.category,
        "project": filters.project,
        "origin__gte": filters.since,
        "origin__lte": filters.until,
        "constitutional": filters.constitutional,
    }
    rows = rows.filter(**{name: value for name, value in wanted.items() if value is not None})
    silo = Silo.for_agent(agent)
    return (Read(memory, silo.open(memory)) for memory in in_parts(rows, after=after, limit=limit))


def search(
    agent: Agent,
    query: str | Query,
    *,
    filters: Filters,
    limit: int = 10,
    boost: Callable[[datetime], float] | None = None,
    repetitions: bool = True,
) -> Found:
    """Return the memories that match a query, best first. Every text is a valid query. Raises MemoryDisabled.

    A superseded memory comes after the memory that superseded it. A memory beneath is left out if an active core memory
    has the same content. If a quoted phrase matches nothing, its words are searched for. If the agent has an embedder,
    memories with a similar meaning match too. `boost` is a function that
    takes a memory's origin date and returns a factor for the memory's score. Without `repetitions`, a memory that
    repeats another result of its lineage is left out.
    """
    switches.require_on(agent)
    filters = replace(filters, without=switches.closed(agent) | filters.without)
    parsed = parse(query) if isinstance(query, str) else query
    vector = embedding.vector_of(agent, parsed)
    embedder = embedding.serving(agent) if vector else ""
    with reader(agent, filters.since, filters.until, embedder=embedder) as index:
        is_all = repetitions or not index.sources
        most = limit if is_all else CANDIDATES * limit
        hits = lineages.find(index, parsed, filters, vector=vector, boost=boost, limit=most)
        if not is_all:
            hits = lineages.without_repetitions(index, hits, parsed, filters)
        hits = lineages.with_successors(index, hits, filters, limit)
        searched_since = index.searched_since
    rows = Memory.objects.of(agent).kept().numbered(hit.number for hit in hits) if hits else ()
    by_number = {memory.number: memory for memory in rows}
    beneath = [memory.digest for memory in by_number.values() if memory.layer == Layer.BENEATH]
    core = Memory.objects.of(agent).active().core().filter(digest__among=beneath) if beneath else Memory.objects.none()
    equal = set(map(bytes, core.values_list("digest", flat=True)))
    shown = {n: m for n, m in by_number.items() if m.layer != Layer.BENEATH or bytes(m.digest) not in equal}
    silo = Silo.for_agent(agent)
    found = Found(
        Read(shown[hit.number], silo.open(shown[hit.number]), hit.score, hit.successor, hit.is_match)
        for hit in hits
        if hit.number in shown
    )
    found.searched_since, found.by_meaning = searched_since, vector is not None
    return found
