"""`remember`, one durable transaction each, beside plain SQL; in turns, so that drift of the machine cancels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent
from memory.policy.validation import Draft
from memory.writing import operations
from tests.bench import texts
from tests.bench.figures import Figure, at_most, rate
from tests.bench.floor_bench import floor, relation_sizes

ME = Actor.agent("bench")
CHUNK = 50
# Without the one row of the agent, whose dead versions autovacuum takes away.
OURS = ("memory_memory", "audit_auditentry", "audit_change")


def run(database: str, *, quick: bool) -> Iterator[Figure]:
    """Rate of durable single writes in an empty agent, and again in one that has thousands; then bytes."""
    agent, _ = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=ME)
    plain = floor()
    sizes = (300,) if quick else (1_000, 3_000)
    empty = size()
    for count in sizes:
        before = agent.next_number if agent.next_number > 1 else 0
        ours, theirs = in_turns(remember_each(agent), store_each(plain.store), texts.many(count, before))
        agent.refresh_from_db()
        what = f"remember, {count:,} one by one, {before:,} there before"
        yield rate("writes", database, what, count / ours, count / theirs, 0.3)
    bytes_each = (size() - empty) / (agent.next_number - 1)
    yield at_most("writes", database, "bytes on disk a memory, remembered one by one", bytes_each, "B", 2_000)


def remember_each(agent: Agent) -> Callable[[Sequence[str]], None]:
    def remember(chunk: Sequence[str]) -> None:
        for text in chunk:
            operations.remember(agent, [Draft(text, origin=ORIGIN)], ME)

    return remember


ORIGIN = datetime(2025, 3, 1, 9, 30, tzinfo=UTC)


def store_each(put: Callable[[str], None]) -> Callable[[Sequence[str]], None]:
    def run(chunk: Sequence[str]) -> None:
        for text in chunk:
            put(text)

    return run


def in_turns(
    ours: Callable[[Sequence[str]], None],
    theirs: Callable[[Sequence[str]], None],
    given: Sequence[str],
    chunk: int = CHUNK,
) -> tuple[float, float]:
    """Seconds of each over all the texts, a chunk ours and a chunk theirs, the first of them changing each time."""
    spent = {ours: 0.0, theirs: 0.0}
    for place in range(0, len(given), chunk):
        part = given[place : place + chunk]
        order = (ours, theirs) if place // chunk % 2 else (theirs, ours)
        for act in order:
            start = time.perf_counter()
            act(part)
            spent[act] += time.perf_counter() - start
    return spent[ours], spent[theirs]


def size() -> int:
    """Bytes the service's database takes, its write-ahead log folded in; nothing is vacuumed."""
    if connection.vendor == "postgresql":
        return relation_sizes(OURS)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(settings.DATABASES["default"]["NAME"]).stat().st_size
