"""`schedule.due` over very many agents, one in a hundred of them due: how many queries, how long, and how it grows.

Then the sweep, which puts those that are due in line, fairly by tenant, and wakes workers: one in a hundred agents due,
and all of them; its time, its statements and how far its resident peak lies above what its process held before.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models.functions import Mod
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ

from memory.models import Agent, Tenant
from refinement import backlog, schedule
from refinement.models import Waiting
from tests.bench import child
from tests.bench.agents import analyze
from tests.bench.figures import Figure, at_most, flat

DUE = 100  # one in so many
SHARES = (1, 100)  # in a hundred that are due when it sweeps
MOST_SECONDS, MOST_MEBIBYTES = 1, 4  # of a sweep; the latter, of 100,000 agents beyond one of 10,000
TENANTS = 100
BATCH = 1_000  # rows; PostgreSQL takes 65,535 parameters at most


def run(*, quick: bool) -> Iterator[Figure]:
    tenants = [Tenant.objects.create(slug=f"tenant{number}") for number in range(TENANTS)]
    there, grown = 0, dict[int, float]()
    for count in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        add(tenants, there, count)
        there = count
        analyze()
        with CaptureQueriesContext(connection) as captured:
            found = len(list(schedule.due()))
        assert found == count // DUE
        yield at_most(f"{count:,} agents, {found:,} due: queries", len(captured), "", 1)
        seconds = statistics.median(timed() for _ in range(5))
        yield at_most(f"{count:,} agents, {found:,} due: seconds", seconds, "s", 0.5)
        if quick or count > 1_000:
            yield from sweeps(count, grown)


def sweep(share: int) -> dict[str, Any]:
    """Make so many in a hundred agents due, and sweep: the median of three in seconds, by how many MiB the first one
    raised the peak of this process's memory, how many agents came into line, and how many statements it took."""
    Agent.objects.update(due_at=None)
    backlog.sweep()  # nobody is due: what is loaded on first use is here now
    now = timezone.now()
    in_hundred = Agent.objects.annotate(place=Mod("pk", 100))
    in_hundred.filter(place__lt=share).update(due_at=now - timedelta(hours=1))
    analyze()
    child.forget_peak()
    held, taken = child.mebibytes("VmRSS"), []
    came = grown = 0
    for number in range(3):
        empty_line()
        started = time.perf_counter()
        came = backlog.sweep()
        taken.append(time.perf_counter() - started)
        grown = child.mebibytes("VmHWM") - held if number == 0 else grown
    empty_line()
    with CaptureQueriesContext(connection) as captured:
        backlog.sweep()
    empty_line()
    in_hundred.filter(place__gt=0).update(due_at=now + timedelta(days=1))  # one in a hundred is due, as before
    return {"seconds": statistics.median(taken), "grown": grown, "came": came, "statements": len(captured)}


def empty_line() -> None:
    Waiting.objects.all().delete()
    OrmQ.objects.all().delete()


def sweeps(count: int, before: dict[int, float]) -> Iterator[Figure]:
    """At this number of agents; `before` holds what memory grew by at the number before, by share."""
    for share in SHARES:
        connection.close()
        found = child.call("due_bench", "sweep", share)
        name = f"sweep, {count:,} agents, {'all' if share == 100 else f'{share} %'} due"
        yield at_most(f"{name}: seconds", found["seconds"], "s", MOST_SECONDS)
        yield Figure(f"{name}: statements", found["statements"])
        yield Figure(f"{name}: came into line", found["came"])
        grown = found["grown"]
        yield Figure(f"{name}: resident peak grows by", grown, "MiB")
        if share in before:
            more = grown - before[share]
            yield flat(f"{name}: … beyond that of a tenth as many", more, MOST_MEBIBYTES)
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
                tenant=tenants[place % len(tenants)],
                slug=f"agent{place}",
                model="builtin/dedupe",
                due_at=now + timedelta(hours=-1 if place % DUE == 0 else 1, seconds=place % 3_000),
            )
            for place in range(start, min(last, start + BATCH))
        )
