"""Rollbacks beside the edits they take back, which are discards: made one by one, an entry each, and undone as all
there is since an entry; and made in one entry, and undone as that one."""

import time
from collections.abc import Callable, Iterator
from functools import partial

from django.db import connection

from audit.models import Operation
from memory.models import Agent
from memory.time_machine import replay, rollback
from memory.time_machine.rollback import What
from memory.writing import operations
from tests.bench import trails
from tests.bench.agents import ME, fresh
from tests.bench.figures import Figure, at_most, beside

JUDGED = 10_000  # changes
MOST = 2.0  # seconds, on SQLite
BY_VERBS = 10_000  # edits made one by one through the store; more are made in bulk, and taken to last as long each


def run(*, quick: bool) -> Iterator[Figure]:
    each = 0.0
    for size in (1_000,) if quick else (1_000, 10_000, 100_000):
        agent = trails.grown(f"back{size}", size)
        since = agent.audit_seq
        if size <= BY_VERBS:
            each = taken(partial(discard_each, agent, size)) / size
        else:
            trails.lengthen(agent, ((Operation.DISCARDED, number) for number in range(1, size + 1)))
        one_by_one = each * size
        back = undone(agent, What("since_entry", since), size)
        yield from judged(f"rollback of {size:,} entries, a change each", size, back, one_by_one)
        at_once = taken(partial(operations.discard, agent, range(1, size + 1), ME))
        back = undone(agent, What("entry", fresh(agent).audit_seq), size)
        yield from judged(f"rollback of an entry of {size:,} changes", size, back, one_by_one)
        yield Figure(f"… and making that entry, {size:,}", at_once, "s")
        assert not list(replay.problems(fresh(agent)))


def discard_each(agent: Agent, size: int) -> None:
    for number in range(1, size + 1):
        operations.discard(agent, [number], ME)


def undone(agent: Agent, what: What, size: int) -> float:
    """Seconds a rollback takes, which restores so many memories."""
    row, started = fresh(agent), time.perf_counter()
    figures = rollback.roll_back(row, what, ME)
    seconds = time.perf_counter() - started
    assert figures.restored == size
    return seconds


def judged(what: str, size: int, back: float, one_by_one: float) -> Iterator[Figure]:
    """A rollback beside the same edits one by one, and beside the clock."""
    floor = "one by one" if size <= BY_VERBS else f"{size // BY_VERBS} times {BY_VERBS:,} one by one"
    most = 1 if size == JUDGED else None
    yield beside(f"{what} (floor: made {floor})", back, "s", one_by_one, most=most)
    if size == JUDGED and connection.vendor == "sqlite":
        yield at_most(f"{what}: seconds", back, "s", MOST)


def taken(do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return time.perf_counter() - started
