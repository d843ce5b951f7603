"""`remember`, one durable transaction each, beside plain SQL; in turns, so that drift of the machine cancels."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection

from audit.trail import Actor
from memory.models import Agent
from memory.policy.validation import Draft
from memory.writing import operations
from tests.bench import texts
from tests.bench.agents import created
from tests.bench.figures import Figure, at_most, beside
from tests.bench.floor_bench import floor, relation_sizes

ME = Actor.agent("bench")
CHUNK = 50
# Without the one row of the agent, whose dead versions autovacuum takes away.
OURS = ("memory_memory", "audit_auditentry", "audit_change")


def run(*, quick: bool) -> Iterator[Figure]:
    """Rate of durable single writes in an empty agent, and again in one that has thousands; then bytes."""
    agent = created("ada")
    plain = floor()
    sizes = (300,) if quick else (1_000, 3_000)
    empty = size()
    for count in sizes:
        before = agent.next_number if agent.next_number > 1 else 0
        ours, theirs = in_turns(remember_each(agent), plain.store, texts.many(count, before))
        agent.refresh_from_db()
        what = f"remember, {count:,} one by one, {before:,} there before"
        yield beside(what, count / ours, "/s", count / theirs, least=0.3)
    bytes_each = (size() - empty) / (agent.next_number - 1)
    yield at_most("bytes on disk a memory, remembered one by one", bytes_each, "B", 2_000)


def remember_each(agent: Agent) -> Callable[[str], object]:
    return lambda text: operations.remember(agent, [Draft(text, origin=ORIGIN)], ME)


ORIGIN = datetime(2025, 3, 1, 9, 30, tzinfo=UTC)


def in_turns(
    ours: Callable[[str], object], theirs: Callable[[str], object], given: Sequence[str]
) -> tuple[float, float]:
    """Seconds of each over all the texts, a chunk ours and a chunk theirs, the first of them changing each time."""
    spent = {ours: 0.0, theirs: 0.0}
    for place in range(0, len(given), CHUNK):
        for act in (ours, theirs) if place // CHUNK % 2 else (theirs, ours):
            start = time.perf_counter()
            for text in given[place : place + CHUNK]:
                act(text)
            spent[act] += time.perf_counter() - start
    return spent[ours], spent[theirs]


def size() -> int:
    """Bytes the service's database takes, its write-ahead log folded in; nothing is vacuumed."""
    if connection.vendor == "postgresql":
        return relation_sizes(OURS)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(settings.DATABASES["default"]["NAME"]).stat().st_size
