"""Verifying long trails, an entry a change: entries a second, and how far the memory it takes grows with the trail."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from django.db import connection, transaction

from audit import guards
from audit.models import AuditEntry
from memory.models import Agent
from memory.time_machine import replay
from tests.bench import child, trails
from tests.bench.agents import analyze, created, fresh
from tests.bench.figures import Figure, at_least, flat

MEMORIES = 10_000  # at most; a tenth of the entries
FLAT = 4  # MiB that the longest trail may take more than that of 10,000
LEAST = {1_000_000: 20_000}  # entries a second, on SQLite


def run(*, quick: bool) -> Iterator[Figure]:
    grown: dict[int, float] = {}
    for size in (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        agent = of_entries(size)
        found = child.call("verify_bench", "verify", agent.pk)
        assert not found["problems"], found["problems"]
        least = LEAST.get(size) if connection.vendor == "sqlite" else None
        yield at_least(f"verifying {size:,} entries", size / found["seconds"], "/s", least)
        grown[size] = found["grown"]
        yield Figure(f"… and its resident peak grows by, {size:,}", grown[size], "MiB")
        assert altered_is_found(agent, size // 2)
    longest, shorter = max(grown), 1_000 if quick else 10_000
    yield flat(f"verifying {longest:,}: peak beyond that of {shorter:,}", grown[longest] - grown[shorter], FLAT)


def of_entries(size: int) -> Agent:
    """An agent whose trail has exactly so many entries."""
    memories = min(MEMORIES, size // 10)
    agent = trails.grown(f"long{size}", memories)
    trails.lengthen(agent, trails.toggles(memories, size - agent.audit_seq))
    analyze()
    return fresh(agent)


def verify(agent_id: int) -> dict[str, Any]:
    """Of an agent's trail: the problems, how many seconds it took to look for them, and by how many MiB it raised the
    peak of this process's memory."""
    small = created(f"small{os.getpid()}")
    assert not list(replay.problems_of(small.pk))  # what is loaded on first use is here now
    child.forget_peak()
    held, started = child.mebibytes("VmRSS"), time.perf_counter()
    problems = [f"{problem.seq}: {problem.problem}" for problem in replay.problems_of(agent_id)]
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "grown": child.mebibytes("VmHWM") - held, "problems": problems}


def altered_is_found(agent: Agent, seq: int) -> bool:
    """Whether one entry altered past the triggers is the first thing that is found."""
    with transaction.atomic(), connection.cursor() as cursor:
        for name, table in guards.triggers():
            cursor.execute(f"DROP TRIGGER {name}" + (f" ON {table}" if connection.vendor == "postgresql" else ""))
        assert AuditEntry.objects.filter(agent_id=agent.pk, seq=seq).update(actor_label="nobody") == 1
        guards.restore_triggers()
    with closing(replay.problems_of(agent.pk)) as problems:
        problem = next(problems)
    return (problem.seq, problem.problem.split(":")[0]) == (seq, "altered")
