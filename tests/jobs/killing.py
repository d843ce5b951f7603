"""A fleet refines agents while its workers are killed, and what came of it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.jobs import inside
from tests.jobs.fleet import Fleet, Worker, fleet
from tests.jobs.scripted import SlowModel
from tests.model_server import ModelServer

WORKERS = 3
PATIENCE = 600  # seconds for all of it
# What is killed, and how often of all: a process that works, one of the others, the whole worker at once.
VICTIMS = {"works": 4, "first": 1, "guards": 1, "files": 1, "fetches": 1, "group": 3}
MOMENTS = ("any", "call", "edit")


@dataclass
class Killer:
    """Kills at moments spread over the work: any, in the midst of a model's call, or just after one, when edits are
    made."""

    fleet: Fleet
    model: SlowModel
    dice: random.Random
    kills: int
    sessions: int
    made: list[tuple[float, str]] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return len(self.made) >= self.kills

    def is_due(self) -> bool:
        return not self.is_done and self.model.ended >= len(self.made) * self.sessions // (self.kills + 1)

    def kill(self) -> None:
        self._wait_for(self.dice.choice(MOMENTS))
        ready = [worker for worker in self.fleet.workers if worker.process.poll() is None and worker.is_ready]
        if not ready:
            return
        victim = self.dice.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        if _kill(self.dice.choice(ready), victim, self.dice):
            self.made.append((time.time(), victim))

    def _wait_for(self, moment: str) -> None:
        if moment == "any":
            time.sleep(self.dice.uniform(0, 0.5))
            return
        self.model.asked.clear()
        if self.model.asked.wait(2):
            _, _, end = self.model.calls[-1]
            left = max(0.0, end - time.time())
            time.sleep(self.dice.uniform(0, left) if moment == "call" else left + self.dice.uniform(0, 0.1))

    def in_calls(self) -> int:
        """Kills while a model was being called."""
        return sum(any(begin < at < end for _, begin, end in self.model.calls) for at, _ in self.made)


def _kill(worker: Worker, victim: str, dice: random.Random) -> bool:
    """Whether there was something to kill."""
    if victim == "group":
        worker.signal_group(signal.SIGKILL)
        return True
    pids = worker.parts()[victim]
    if pids:
        os.kill(dice.choice(pids), signal.SIGKILL)
    return bool(pids)


def run(folder: Path, kills: int, sessions: int, seed: int) -> dict[str, Any]:
    """Refine so many agents, killing so often: figures, and what is wrong in words."""
    model = SlowModel(seed)
    with ModelServer(model) as server, fleet(folder, OPENAI_BASE_URL=server.openai_url) as service:
        service.do(inside.furnish, sessions)
        killer = Killer(service, model, random.Random(seed), kills, sessions)
        started = time.monotonic()
        service.start(WORKERS)
        wrong = _work(service, killer)
        seconds = round(time.monotonic() - started, 1)
        wrong += _after(service)
        told = service.do(inside.told)
        wrong += told.pop("wrong") + [f"the model's {name} was refused" for name in model.failed]
        verified = service.installation.manage("verify_audit", "--all", **service.environment)
        wrong += [] if verified.code == 0 else verified.out.splitlines()
    counts = {"victims": dict(Counter(victim for _, victim in killer.made)), "in_calls": killer.in_calls()}
    return {"kills": len(killer.made), **told, **counts, "seconds": seconds, "seed": seed, "wrong": wrong}


def _work(service: Fleet, killer: Killer) -> list[str]:
    """Until every agent has been refined and every kill made."""
    until, next_look = time.monotonic() + PATIENCE, 0.0
    while time.monotonic() < until:
        service.tend(killer.dice.choice((signal.SIGTERM, signal.SIGKILL)))
        if time.monotonic() > next_look:
            next_look = time.monotonic() + 1
            service.do(inside.look_round)
            service.do(inside.have_waited)
            now = service.do(inside.standing)
            if killer.is_done and now["refined"] == now["agents"] and not now["due"] and not now["open"]:
                return []
        if killer.is_due():
            killer.kill()
        time.sleep(0.05)
    return [f"not done after {PATIENCE} seconds: {service.do(inside.standing)}"]


def _after(service: Fleet) -> list[str]:
    """Nothing waits any more, the workers end when they are asked to, and no word of a memory is in their logs."""
    wrong = []
    try:
        service.until(lambda: not any(service.do(inside.standing)[what] for what in ("waiting", "queued")), 30, True)
    except TimeoutError:
        wrong.append(f"something waits for ever: {service.do(inside.standing)}")
    service.until(lambda: all(worker.is_ready for worker in service.workers), 30, True)
    wrong += [f"a worker ended with code {code}" for code in service.stop() if code]
    return wrong + [f"a memory's words are in {log}" for log in service.leaks()]
