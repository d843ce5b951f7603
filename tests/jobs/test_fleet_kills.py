"""Workers are killed with SIGKILL while they refine agents: no edit is lost or doubled, every agent is refined.

A few kills in every run; `python -m tests.jobs.repeat 20` for the figures in docs/internals/reliability.md.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.jobs import inside
from tests.jobs.ending import find_problems, refine_all
from tests.jobs.fleet import Fleet, Worker, new_fleet
from tests.jobs.scripted import SlowModel
from tests.model_server import ModelServer

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]
KILLS, SESSIONS, SEED = (int(os.environ.get(*each)) for each in (("KILLS", "10"), ("SESSIONS", "30"), ("SEED", "1")))
WORKERS = 3
SECONDS, SECONDS_PER_KILL = 500, 5
# What is killed, and how often: a process that works, one of the others, the whole worker at once.
VICTIMS = {"works": 4, "first": 1, "guards": 1, "files": 1, "fetches": 1, "group": 3}
MOMENTS = ("any", "call", "edit")


@dataclass
class Killer:
    """Kills at random moments: any moment, during a call of the model, or after one, when edits are made."""

    fleet: Fleet
    model: SlowModel
    rng: random.Random
    made: list[tuple[float, str]] = field(default_factory=list)

    def __call__(self) -> bool:
        """Make the next kill if it is time. Returns whether all kills are made."""
        if len(self.made) < KILLS and self.model.ended >= len(self.made) * SESSIONS // (KILLS + 1):
            self._kill_one()
            return False
        return len(self.made) >= KILLS

    def _kill_one(self) -> None:
        self._wait_for(self.rng.choice(MOMENTS))
        ready = [worker for worker in self.fleet.workers if worker.process.poll() is None and worker.is_ready]
        if not ready:
            return
        victim = self.rng.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        if self._kill(self.rng.choice(ready), victim):
            self.made.append((time.time(), victim))

    def _wait_for(self, moment: str) -> None:
        if moment == "any":
            time.sleep(self.rng.uniform(0, 0.5))
            return
        self.model.called.clear()
        if self.model.called.wait(2):
            _, _, end = self.model.calls[-1]
            left = max(0.0, end - time.time())
            time.sleep(self.rng.uniform(0, left) if moment == "call" else left + self.rng.uniform(0, 0.1))

    def _kill(self, worker: Worker, victim: str) -> bool:
        """Returns whether there was a process to kill."""
        if victim == "group":
            worker.signal_group(signal.SIGKILL)
            return True
        pids = worker.parts()[victim]
        if pids:
            os.kill(self.rng.choice(pids), signal.SIGKILL)
        return bool(pids)

    def during_calls(self) -> int:
        """The sessions that were given up because of a kill during a call of their model."""
        given_up = [each for each in self.fleet.do(inside.sessions) if each["reason"] in inside.GIVEN_UP]
        return sum(self._was_in_a_call(each) for each in given_up)

    def _was_in_a_call(self, session: dict[str, Any]) -> bool:
        opened, closed = session["opened_at"].timestamp(), session["closed_at"].timestamp()
        calls = [call for call in self.model.calls if call[0] == session["agent__slug"] and opened < call[1] < closed]
        return bool(calls) and any(calls[-1][1] < at < calls[-1][2] for at, _ in self.made)


@pytest.mark.usefixtures("databases")
def test_killed_workers_lose_and_double_nothing_and_others_take_over(tmp_path: Path) -> None:
    model, rng = SlowModel(SEED), random.Random(SEED)
    with ModelServer(model) as server, new_fleet(tmp_path, OPENAI_BASE_URL=server.openai_url) as fleet:
        fleet.choose_signal = lambda: rng.choice((signal.SIGTERM, signal.SIGKILL))
        fleet.do(inside.create_agents, SESSIONS)
        killer, start = Killer(fleet, model, rng), time.monotonic()
        fleet.start(WORKERS)
        refine_all(fleet, killer, SECONDS + SECONDS_PER_KILL * KILLS)
        report: dict[str, Any] = {"kills": len(killer.made), "seed": SEED, "seconds": round(time.monotonic() - start)}
        report |= {"victims": Counter(victim for _, victim in killer.made), "in_calls": killer.during_calls()}
        figures, problems = find_problems(fleet)
    report |= figures
    print(json.dumps(report))
    assert (problems, model.refused, model.accepted_twice()) == ([], [], [])
    assert (report["lost"], report["doubled"], report["edits"]) == (0, 0, 7 * SESSIONS)
    assert report["outcomes"]["completed"] >= SESSIONS
    assert report["kills"] == KILLS
    assert report["takeovers"] > 0
