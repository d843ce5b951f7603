"""What API clients wait for their writes while agents are refined, beside what they wait while none is.

50 clients write (`POST /memories` over HTTP to gunicorn, two processes), each once a second at a time of its own, and
what each waits is counted from the moment its turn came: a server that falls behind is not spared the requests it
delayed. Beside each fifth write a client asks for `/healthz`, which touches no database: what that takes is the
machine's, the loopback's and gunicorn's, and no write can take less. The spells with refinement and those without take
turns in one run, the same servers and workers up all the while.

Clients, web, workers, model and database share this machine's processors. A model that answers at once keeps four
worker processes at work without a pause, which no real one does; with one that takes two seconds a call they mostly
wait for it. Both are measured, the second in one round; then the clients write one after the other as fast as they are
answered. Agents are due by their date alone: nobody is refined between, however much is written. With
BENCH_WORKER_NICE=10 the workers yield to the others, as under `nice -n 10`.
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django.utils import timezone

from tests.bench import figures, fleet, load, texts, thinking
from tests.bench.figures import Figure
from tests.bench.load import AlreadyExists, Wanted, request
from tests.bench.serving import served

CLIENTS = 50
PROCESSES = 4
MOST = 3  # times what 99 of 100 writes keep within without refinement
ALIVE_EVERY = 5  # writes, a request that does nothing
MODELS = {"at once": "tidy", f"in {thinking.SECONDS:g} s": "tests.bench.thinking:thoughtful"}
LEAST = 5  # sessions in a spell, or nothing was measured


@dataclass
class Spells:
    """What was taken in all spells of one sort."""

    writes: AlreadyExists = field(default_factory=AlreadyExists)
    alive: AlreadyExists = field(default_factory=AlreadyExists)
    sessions: int = 0
    seconds: float = 0.0
    workers: float = 0.0
    machine: float = 0.0


def run(*, quick: bool) -> Iterator[Figure]:
    logging.disable(logging.INFO)
    seconds, most = (8, 1) if quick else (15, 3)
    keys = fleet.agents_to_refine(300 if quick else 600)
    for answers, script in MODELS.items():
        # Those that are written to grow, and with this model a session of theirs would take as long as a spell.
        rounds, beyond = (most, 0) if answers == "at once" else (1, CLIENTS)
        fleet.forget_queue()
        with (
            fleet.model(script) as (_, address),
            fleet.workers(PROCESSES, address) as worker,
            served("config.wsgi", API_RATE="999999999") as port,
        ):
            warm(port, keys)
            for every in (1.0, 0.0) if answers == "at once" else (1.0,):
                quiet, busy = Spells(), Spells()
                for number in range(rounds):
                    for spells in (quiet, busy) if number % 2 else (busy, quiet):
                        spell(port, keys, worker, spells, every, seconds, refining=spells is busy, beyond=beyond)
                yield from told(f"model {answers}, {paced(every)}", quiet, busy)


def paced(every: float) -> str:
    return f"a write a client every {every:g} s" if every else "clients write without a pause"


def warm(port: int, keys: Sequence[str]) -> None:
    """Both web processes have opened every silo that is written to."""
    for _ in range(3):
        load.run(
            port, [write(key, place) for place, key in enumerate(keys[:CLIENTS])], AlreadyExists(), clients=CLIENTS
        )


def spell(
    port: int,
    keys: Sequence[str],
    worker: fleet.Started,
    spells: Spells,
    every: float,
    seconds: float,
    *,
    refining: bool,
    beyond: int,
) -> None:
    """Some seconds of writes to the first agents, with all of them, and many others, refined meanwhile, or nobody."""
    wanted = [asked(key, place, every, seconds) for place, key in enumerate(keys[:CLIENTS])]
    if refining:
        fleet.make_due(len(keys), beyond)
        fleet.until(fleet.is_refining)
    since, before = timezone.now(), (fleet.busy(), worker.processor(), time.perf_counter())
    load.run_paced(port, wanted, every, seconds, spells.writes, spells.alive)
    machine, workers, clock = (
        b - a for a, b in zip(before, (fleet.busy(), worker.processor(), time.perf_counter()), strict=True)
    )
    spells.sessions += fleet.ended_since(since)
    spells.workers += workers
    spells.machine += machine
    spells.seconds += clock
    assert not refining or fleet.are_left(), "the agents to refine ran out"
    fleet.rest()


def asked(key: str, place: int, every: float, seconds: float) -> list[Wanted]:
    """What one client asks for, one thing after another; more than it comes to."""
    count = int(seconds / every) + 1 if every else int(seconds * 10)
    wanted = []
    for number, text in enumerate(texts.many(count, f"beside {place} {time.time_ns()}")):
        wanted.append(post(key, text))
        if (place + number) % ALIVE_EVERY == 0:
            wanted.append(request("GET", "/healthz", ""))
    return wanted


def write(key: str, seed: int) -> Wanted:
    return post(key, texts.many(1, f"beside warm {seed} {time.time_ns()}")[0])


def post(key: str, text: str) -> Wanted:
    return request("POST", "/api/v1/memories", key, {"content": text, "tags": ["bench"]}, 201)


def told(name: str, quiet: Spells, busy: Spells) -> Iterator[Figure]:
    """Ours is with refinement, the floor without it."""
    assert busy.sessions >= LEAST, f"only {busy.sessions} sessions were refined beside"

    def waited(
        what: str, share: float, ours: AlreadyExists, without: AlreadyExists, most: float | None = None
    ) -> Figure:
        mine, theirs = ours.percentile(share) * 1e3, without.percentile(share) * 1e3
        return figures.beside(f"{name}: {what}", mine, "ms", theirs, most=most)

    yield waited("99 % of writes wait at most", 0.99, busy.writes, quiet.writes, MOST)
    yield waited("half of writes", 0.5, busy.writes, quiet.writes)
    yield waited("… of requests that do nothing, 99 %", 0.99, busy.alive, quiet.alive)
    yield waited("… of requests that do nothing, half", 0.5, busy.alive, quiet.alive)
    yield figures.beside(f"{name}: writes answered", busy.writes.rate, "/s", quiet.writes.rate)
    yield Figure(f"{name}: sessions refined meanwhile", busy.sessions / busy.seconds, "/s")
    cores = os.cpu_count() or 1
    busy_share, quiet_share = (100 * spells.machine / spells.seconds / cores for spells in (busy, quiet))
    yield figures.beside(f"{name}: processors in use", busy_share, "%", quiet_share)
    yield Figure(f"{name}: … by the workers", 100 * busy.workers / busy.seconds / cores, "%")
