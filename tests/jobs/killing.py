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
from tests.jobs.ending import refine_all, wrong_with
from tests.jobs.fleet import Fleet, Worker, new_fleet
from tests.jobs.scripted import SlowModel
from tests.model_server import ModelServer

WORKERS = 3
PATIENCE, PATIENCE_A_KILL = 500, 5  # seconds
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

    def go_on(self) -> bool:
        """Make the next kill if it is time; whether all are made."""
        if len(self.made) >= self.kills:
            return True
        if self.model.ended >= len(self.made) * self.sessions // (self.kills + 1):
            self._kill_one()
        return False

    def _kill_one(self) -> None:
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
        """Sessions given up whose own model was being called at a kill; the others were between two calls."""
        given_up = [each for each in self.fleet.do(inside.sessions) if each["reason"] in inside.GIVEN_UP]
        return sum(self._was_in_a_call(each) for each in given_up)

    def _was_in_a_call(self, session: dict[str, Any]) -> bool:
        opened, closed = session["opened_at"].timestamp(), session["closed_at"].timestamp()
        calls = [call for call in self.model.calls if call[0] == session["agent__slug"] and opened < call[1] < closed]
        return bool(calls) and any(calls[-1][1] < at < calls[-1][2] for at, _ in self.made)


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
    model, dice = SlowModel(seed), random.Random(seed)
    with ModelServer(model) as server, new_fleet(folder, OPENAI_BASE_URL=server.openai_url) as fleet:
        fleet.last_word = lambda: dice.choice((signal.SIGTERM, signal.SIGKILL))
        fleet.do(inside.furnish, sessions)
        killer = Killer(fleet, model, dice, kills, sessions)
        started = time.monotonic()
        fleet.start(WORKERS)
        refine_all(fleet, killer.go_on, PATIENCE + PATIENCE_A_KILL * kills)
        told: dict[str, Any] = {"kills": len(killer.made), "seed": seed, "seconds": round(time.monotonic() - started)}
        told |= {"victims": dict(Counter(victim for _, victim in killer.made)), "in_calls": killer.in_calls()}
        wrong = wrong_with(fleet, told)
    wrong += [f"the model's {name} was refused" for name in model.refused]
    return told | {"wrong": wrong + [f"{edit} was made, and lost" for edit in model.done_twice()]}
