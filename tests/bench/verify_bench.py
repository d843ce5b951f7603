"""Verifying long trails, an entry a change: entries a second, and how far the memory it takes grows with the trail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from django.db import connection, transaction

from audit import guards
from audit.models import AuditEntry
from memory.models import Agent
from memory.time_machine import replay
from tests.bench import places, trails
from tests.bench.figures import Figure, at_least

MEMORIES = 10_000  # at most; a tenth of the entries
FLAT = 4  # MiB that the longest trail may take more than that of 10,000
LEAST = {1_000_000: 20_000}  # entries a second, on SQLite


def run(database: str, *, quick: bool) -> Iterator[Figure]:
    grown: dict[int, float] = {}
    for size in (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        agent = of_entries(size)
        found = verified(agent)
        assert not found["problems"], found["problems"]
        yield speed(database, size, size / found["seconds"])
        grown[size] = found["grown"]
        yield Figure("verify", database, f"… and its resident peak grows by, {size:,}", grown[size], "MiB")
        assert altered_is_found(agent, size // 2)
    longest, shorter = max(grown), 1_000 if quick else 10_000
    beyond = grown[longest] - grown[shorter]
    what = f"verifying {longest:,}: peak beyond that of {shorter:,}"
    yield Figure("verify", database, what, beyond, "MiB", target=f"≤ {FLAT} MiB (flat)", met=beyond <= FLAT)


def of_entries(size: int) -> Agent:
    """An agent whose trail has exactly so many entries."""
    memories = min(MEMORIES, size // 10)
    agent = trails.grown(f"long{size}", memories)
    trails.lengthen(agent, trails.toggles(memories, size - agent.audit_seq))
    if connection.vendor == "postgresql":  # as autovacuum does soon after
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    return trails.fresh(agent)


def verified(agent: Agent) -> dict[str, Any]:
    """What a process of its own says of this agent's trail."""
    command = [sys.executable, "-m", "tests.bench.verifying", str(agent.pk)]
    done = subprocess.run(command, cwd=places.ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def speed(database: str, size: int, entries: float) -> Figure:
    what = f"verifying {size:,} entries"
    if database == "sqlite" and size in LEAST:
        return at_least("verify", database, what, entries, "/s", LEAST[size])
    return Figure("verify", database, what, entries, "/s")


def altered_is_found(agent: Agent, seq: int) -> bool:
    """Whether one entry altered past the triggers is the first thing that is found."""
    with transaction.atomic(), connection.cursor() as cursor:
        for name, table in guards.triggers():
            cursor.execute(f"DROP TRIGGER {name}" + (f" ON {table}" if connection.vendor == "postgresql" else ""))
        assert AuditEntry.objects.filter(agent_id=agent.pk, seq=seq).update(actor_label="nobody") == 1
        guards.put_back()
    with closing(replay.problems_of(agent.pk)) as problems:
        problem = next(problems)
    return (problem.seq, problem.problem.split(":")[0]) == (seq, "altered")
