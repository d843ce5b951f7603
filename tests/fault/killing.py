"""Kill refinement sessions with SIGKILL, and check what each leaves behind: `main` for `test_kills.py`.

The process has no threads, so it can fork. Each session runs in a child, which kills itself at one of the points that
a rehearsal counts: before and after every statement and commit, and during every call of the model.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import time_machine
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from audit.models import AuditEntry, Change
from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.time_machine import replay
from memory.writing import duplicates, operations
from memory.writing.edits import fields_of
from refinement import knife, loop
from refinement import session as sessions
from refinement.models import RefinementSession
from tests.commands.calling import ROOT, Installation
from tests.steps import signed_update

TEXTS = [f"The {thing} stands in the {place}." for thing in ("chair", "table") for place in ("hall", "den", "attic")]
DUPLICATE = "The kettle whistles."
Operations = list[tuple[str, list[int]]]


def run_script(name: str, service: Installation, *arguments: object, **environment: str) -> dict[str, Any]:
    """Run a script of this folder on the database of the service. It prints a line of JSON, which this returns."""
    command = [sys.executable, "-m", "tests.fault", name, str(service.folder), *map(str, arguments)]
    env = service.environment | environment
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    print({name: value for name, value in figures.items() if name not in ("problems", "operations")})
    return figures


class Points:
    """Counts the points that a child passes, and kills the child at one of them."""

    def __init__(self, fatal: int | None = None) -> None:
        self.fatal = fatal
        self.passed: list[str] = []
        self.step = "start"

    def add(self, name: str = "") -> bool:
        """Count a point, named after the step if it has no name. Whether the child must die here."""
        self.passed.append(name or self.step)
        return len(self.passed) == self.fatal

    def reach(self, name: str = "") -> None:
        if self.add(name):
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any], before: str = "", after: str = "") -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            self.reach(before)
            result = call(*arguments, **options)
            self.reach(after)
            return result

        return watched


def in_child(work: Callable[[], None], kill_after: float | None = None) -> int:
    """Do the work in a child, which is killed after so many seconds; the status from `os.waitpid`."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]
    try:
        with Path(os.devnull).open("w") as nowhere:
            sys.stdout = sys.stderr = nowhere
            work()
        os._exit(0)
    finally:
        os._exit(1)


def is_killed(status: int) -> bool:
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def rehearse(folder: Path, work: Callable[[Points], None]) -> list[str]:
    """The points that the work passes when nothing kills it."""
    file, points = folder / "points.json", Points()

    def run() -> None:
        work(points)
        file.write_text(json.dumps(points.passed))

    assert in_child(run) == 0
    passed: list[str] = json.loads(file.read_text())
    return passed


def choose(points: list[str], kills: int, seed: int) -> list[int]:
    """Points to kill at, counted from 1: every kind in turn, at random within the kind."""
    dice = random.Random(seed)
    kinds: dict[str, list[int]] = {}
    for place, kind in enumerate(points, 1):
        kinds.setdefault(kind, []).append(place)
    pools = [dice.sample(places, len(places)) for places in kinds.values()]
    dice.shuffle(pools)
    chosen: list[int] = []
    while len(chosen) < kills:
        for pool in pools:
            chosen.append(pool[0])
            pool.append(pool.pop(0))
    return chosen[:kills]


def reset_to(folder: Path, *, save: bool = False) -> None:
    """Restore the saved database, or save the database as it is."""
    if save:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    live, saved = folder / "data" / "palimpsest.sqlite3", folder / "saved.sqlite3"
    for suffix in ("-wal", "-shm"):
        Path(f"{live}{suffix}").unlink(missing_ok=True)
    shutil.copyfile(*((live, saved) if save else (saved, live)))


def get_agent() -> Agent:
    return Agent.objects.select_related("tenant").get()


def refine(points: Points) -> None:
    """Refine as `manage.py refine` does, and count the points."""

    def during(step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def named(*arguments: Any, **options: Any) -> Any:
            before, points.step = points.step, step.format(*arguments[1:])
            try:
                return call(*arguments, **options)
            finally:
                points.step = before

        return named

    def killed_midway(call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            if points.add():
                threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return call(*arguments)

        return watched

    sessions.open_session = during("open", sessions.open_session)
    duplicates.remove = during("dedupe", duplicates.remove)
    sessions.end = during("close", sessions.end)
    knife.Knife.show = during("brief", knife.Knife.show)
    knife.Knife.begin_step = during("step", knife.Knife.begin_step)
    knife.Knife.call = during("{0}", knife.Knife.call)
    loop._Run._ask = during("model call", killed_midway(loop._Run._ask))
    connection.ensure_connection()
    connection._commit = points.around(connection._commit)
    with connection.execute_wrapper(lambda execute, *arguments: points.around(execute)(*arguments)):
        call_command("refine", "acme/ada", "--json")


def prepare(folder: Path) -> None:
    me = Actor.operator("killing")
    ada, _ = lifecycle.create("acme", "ada", model="openai/scripted", actor=me)
    filler = [f"Filler of some length that nobody touches, {word}." for word in ("one", "two", "three") * 4]
    numbered = [f"{text} {place}" for place, text in enumerate(filler)]
    operations.remember(ada, [Draft(text) for text in [*TEXTS, *[DUPLICATE] * 3, *numbered]], me)
    reset_to(folder, save=True)


def list_operations() -> Operations:
    """The operations on the agent, in order, and the memories that each changed."""
    changed: dict[int, list[int]] = {}
    for seq, number in Change.objects.order_by("number").values_list("seq", "number"):
        changed.setdefault(seq, []).append(number)
    entries = AuditEntry.objects.order_by("seq").values_list("seq", "operation")
    return [(operation, changed.get(seq, [])) for seq, operation in entries]


def contents_ever(number: int) -> set[str]:
    """The content of a memory now, and before each entry that changed it."""
    silo = Silo.for_agent(Agent.objects.get())
    past = [fields_of(bytes(c.before))["sealed"] for c in Change.objects.filter(number=number) if c.before is not None]
    now = bytes(Memory.objects.get(number=number).sealed)
    return {silo.open_sealed(number, sealed).content for sealed in [*past, now]}


def problems_after(complete: Operations, originals: dict[int, set[str]]) -> list[str]:
    """The problems in the database that a killed session leaves."""
    found = [problem.problem for problem in replay.problems(get_agent())]
    done = list_operations()
    if done != complete[: len(done)]:
        found.append("the operations are not the first of a complete session")
    found += [
        f"memory {number} is lost" for number, content in originals.items() if not content <= contents_ever(number)
    ]
    if Memory.objects.exclude(superseded_by=None).active().exists():
        found.append("a merged memory is still active")
    row = RefinementSession.objects.first()
    edits = [1 for operation, _ in done if operation in ("revised", "discarded", "demoted")]
    edits += [len(numbers) - 1 for operation, numbers in done if operation == "consolidated"]
    if row and row.changes != sum(edits):
        found.append("the session counts other edits than the trail")
    with time_machine.travel(timezone.now() + timedelta(hours=1)):
        was_open = row is not None and row.outcome == "open"
        if [session.outcome for session in sessions.close_stale()] != ["abandoned"] * was_open:
            found.append("the session is not closed as abandoned")
        signed_update(Agent.objects.all(), model="builtin/dedupe")
        if loop.refine(get_agent(), trigger="manual").outcome != "completed":
            found.append("the next session does not run")
    return found + [f"afterwards: {problem.problem}" for problem in replay.problems(get_agent())]


def main(where: str, kills: str, seed: str) -> None:
    started, folder = time.monotonic(), Path(where)
    prepare(folder)
    originals = {number: contents_ever(number) for number in range(1, 22)}
    reset_to(folder)
    steps = rehearse(folder, refine)
    complete = list_operations()
    by_step: Counter[str] = Counter()
    problems: list[str] = []
    for point in choose(steps, int(kills), int(seed)):
        reset_to(folder)
        by_step[steps[point - 1]] += 1
        if not is_killed(in_child(lambda point=point: refine(Points(point)))):
            problems.append(f"point {point} is not reached")
        problems += [f"point {point}, {steps[point - 1]}: {each}" for each in problems_after(complete, originals)]
    figures = {"kills": sum(by_step.values()), "points": len(steps), "by_step": dict(by_step), "problems": problems}
    print(json.dumps(figures | {"operations": complete, "seconds": round(time.monotonic() - started, 1)}))
