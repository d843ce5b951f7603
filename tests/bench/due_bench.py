"""`schedule.due` over very many agents, one in a hundred of them due: how many queries, how long, and how it grows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import timedelta

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from memory.models import Agent, Tenant
from refinement import schedule
from tests.bench.figures import Figure, at_most

DUE = 100  # one in so many
BATCH = 1_000  # rows; PostgreSQL takes 65,535 parameters at most


def run(database: str, *, quick: bool) -> Iterator[Figure]:
    tenant = Tenant.objects.create(slug="acme")
    there = 0
    for count in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        add(tenant, there, count)
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


def timed() -> float:
    start = time.perf_counter()
    list(schedule.due())
    return time.perf_counter() - start


def add(tenant: Tenant, first: int, last: int) -> None:
    now = timezone.now()
    for start in range(first, last, BATCH):
        Agent.objects.bulk_create(
            Agent(
                tenant=tenant,
                slug=f"agent{place}",
                model="builtin/dedupe",
                due_at=now + timedelta(hours=-1 if place % DUE == 0 else 1, seconds=place % 3_000),
            )
            for place in range(start, min(last, start + BATCH))
        )
