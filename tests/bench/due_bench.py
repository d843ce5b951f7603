"""`schedule.due` over very many agents, one in a hundred of them due: how many queries, how long, and how it grows.

Then the sweep, which puts those that are due in line, fairly by tenant, and wakes workers: one in a hundred agents due,
and all of them; its time, its statements and how far its resident peak lies above what its process held before.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from memory.models import Agent, Tenant
from refinement import schedule
from tests.bench.figures import Figure, at_most
from tests.bench.places import ROOT

DUE = 100  # one in so many
SHARES = (1, 100)  # in a hundred that are due when it sweeps
MOST_SECONDS, MOST_MEBIBYTES = 1, 4  # of a sweep; the latter, of 100,000 agents beyond one of 10,000
TENANTS = 100
BATCH = 1_000  # rows; PostgreSQL takes 65,535 parameters at most


def run(database: str, *, quick: bool) -> Iterator[Figure]:
    tenants = [Tenant.objects.create(slug=f"tenant{number}") for number in range(TENANTS)]
    there, grown = 0, dict[int, float]()
    for count in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        add(tenants, there, count)
        there = count
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE memory_agent")
        with CaptureQueriesContext(connection) as captured:
            found = len(list(schedule.due()))
        assert found == count // DUE
        yield at_most("due", database, f"{count:,} agents, {found:,} due: queries", len(captured), "", 1)
        seconds = statistics.median(timed() for _ in range(5))
        yield at_most("due", database, f"{count:,} agents, {found:,} due: seconds", seconds, "s", 0.5)
        if quick or count > 1_000:
            yield from sweeps(database, count, grown)


def swept(share: int) -> dict[str, Any]:
    """What a sweep takes, in a process of its own."""
    connection.close()
    command = [sys.executable, "-m", "tests.bench.sweeping", str(share)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def sweeps(database: str, count: int, before: dict[int, float]) -> Iterator[Figure]:
    """At this number of agents; `before` holds what memory grew by at the number before, by share."""
    for share in SHARES:
        found = swept(share)
        name = f"sweep, {count:,} agents, {'all' if share == 100 else f'{share} %'} due"
        yield at_most("due", database, f"{name}: seconds", found["seconds"], "s", MOST_SECONDS)
        yield Figure("due", database, f"{name}: statements", found["statements"])
        yield Figure("due", database, f"{name}: came into line", found["came"])
        grown = found["grown"]
        yield Figure("due", database, f"{name}: resident peak grows by", grown, "MiB")
        if share in before:
            more, target = grown - before[share], f"≤ {MOST_MEBIBYTES} MiB (flat)"
            what = f"{name}: … beyond that of a tenth as many"
            yield Figure("due", database, what, more, "MiB", target=target, met=more <= MOST_MEBIBYTES)
        before[share] = grown


def timed() -> float:
    start = time.perf_counter()
    list(schedule.due())
    return time.perf_counter() - start


def add(tenants: Sequence[Tenant], first: int, last: int) -> None:
    now = timezone.now()
    for start in range(first, last, BATCH):
        Agent.objects.bulk_create(
            Agent(
                tenant=tenants[place % TENANTS],
                slug=f"agent{place}",
                model="builtin/dedupe",
                due_at=now + timedelta(hours=-1 if place % DUE == 0 else 1, seconds=place % 3_000),
            )
            for place in range(start, min(last, start + BATCH))
        )
