"""Rollbacks: so many changes of one entry taken back, beside making them, and verifying the trail they leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from audit.models import AuditEntry, Change
from audit.trail import Actor
from memory import agents, replay, store, time_machine
from memory.formats import jsonl
from memory.models import Agent
from memory.time_machine import What
from tests.bench import texts
from tests.bench.figures import Figure, at_most

ME = Actor.operator("bench")
MOST = {10_000: 2.0}  # seconds, on SQLite


def run(database: str, *, quick: bool) -> Iterator[Figure]:
    for size in (1_000,) if quick else (1_000, 10_000, 100_000):
        agent, _ = agents.create("acme", f"back{size}", model="builtin/dedupe", actor=ME)
        jsonl.load(agent, texts.lines(size, f"back {size}"), ME)
        made = taken(lambda: store.discard(agent, range(1, size + 1), ME))  # noqa: B023  called at once
        back = taken(lambda: time_machine.roll_back(fresh(agent), What.entry(fresh(agent).audit_seq), ME))  # noqa: B023
        what = f"rollback of {size:,} changes"
        yield (
            at_most("rollback", database, what, back, "s", MOST[size])
            if database == "sqlite" and size in MOST
            else Figure("rollback", database, what, back, "s")
        )
        yield Figure("rollback", database, f"… making them in one edit, {size:,}", made, "s")
        checked = taken(lambda: list(replay.problems(fresh(agent))))  # noqa: B023
        rows = AuditEntry.objects.filter(agent_id=agent.pk).count() + Change.objects.filter(agent_id=agent.pk).count()
        yield Figure("rollback", database, f"verifying {rows:,} entries and changes", rows / checked, "/s")


def fresh(agent: Agent) -> Agent:
    return Agent.objects.select_related("tenant").get(pk=agent.pk)


def taken(do: Callable[[], object]) -> float:
    start = time.perf_counter()
    do()
    return time.perf_counter() - start
