"""Sessions a second with 1, 2 and 4 worker processes, by a model that answers at once: what the service itself takes.

Real `manage.py worker`s, the queue in Redis on PostgreSQL (a server of the bench's own) and in the database on SQLite.
**The floor** is the same sessions one after the other in one process, without a queue: what is lost to taking turns is
the distance to it with one worker process, and with more it is what the machine and the database leave of their gain.
"""

import logging
import os
import time
from collections.abc import Iterator

from django.utils import timezone

from memory.models import Agent
from refinement import loop
from tests.bench import fleet
from tests.bench.figures import Figure, beside

PROCESSES = (1, 2, 4)
WARMING = 2  # sessions a process


def run(*, quick: bool) -> Iterator[Figure]:
    count = 40 if quick else 200
    fleet.agents_to_refine(count)
    with fleet.model() as (model, address):
        floor = alone(address, count // 4)
        yield Figure("one process without a queue: sessions", floor, "/s")
        for processes in PROCESSES:
            yield from measured(processes, count, floor, model, address)


def alone(address: str, count: int) -> float:
    """Sessions a second by this very process, which says nothing of each."""
    fleet.use(address)
    logging.disable(logging.INFO)
    agents = list(Agent.objects.select_related("tenant").order_by("pk")[: count + WARMING])
    for agent in agents[:WARMING]:
        loop.refine(agent, trigger="manual")
    started = time.perf_counter()
    for agent in agents[WARMING:]:
        assert loop.refine(agent, trigger="manual").outcome == "completed"
    return count / (time.perf_counter() - started)


def measured(processes: int, count: int, floor: float, model: fleet.Started, address: str) -> Iterator[Figure]:
    fleet.forget_queue()
    with fleet.workers(processes, address) as worker:
        refined(WARMING * processes)
        size = fleet.database_bytes()
        since, before = timezone.now(), (fleet.busy(), worker.processor(), model.processor())
        refined(count)
        after = (fleet.busy(), worker.processor(), model.processor())
        _, held = worker.mebibytes()
        fleet.rest()
    work = fleet.Work(since)
    everything, workers, models = (b - a for a, b in zip(before, after, strict=True))
    assert work.completed == work.count, f"{work.count - work.completed} sessions went otherwise than they should"
    name = f"{processes} worker process{'es' if processes > 1 else ''}"

    yield beside(f"{name}: sessions", work.rate, "/s", floor)
    yield Figure(f"{name}: own time a session, open to closed", work.own * 1e3, "ms")
    turns = processes * work.seconds / work.count - work.open_seconds / work.count
    yield Figure(f"{name}: … and between two sessions of a process", turns * 1e3, "ms")
    yield Figure(f"{name}: processor a session, of the workers", workers / work.count * 1e3, "ms")
    yield Figure(f"{name}: … of the model, which is none of the service", models / work.count * 1e3, "ms")
    rest = everything - workers - models
    yield Figure(f"{name}: … of all else: database, queue, this bench", rest / work.count * 1e3, "ms")
    if size:
        grown = fleet.database_bytes() - size
        yield Figure(f"{name}: the database grows, a session", grown / work.count / 1024, "KiB")
    yield Figure(f"{name}: memory of the worker, all its processes", held, "MiB")
    cores = (os.cpu_count() or 1) * work.seconds
    yield Figure(f"{name}: of the machine's processors in use", 100 * everything / cores, "%")


def refined(count: int) -> None:
    """Have so many sessions begun and ended."""
    wanted = fleet.ended() + count
    fleet.make_due(count)
    fleet.until(lambda: fleet.ended() >= wanted)
