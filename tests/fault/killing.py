"""`python -m tests.fault.killing FOLDER KILLS SEED`: kill sessions by SIGKILL, and see what each leaves behind.

A process of its own, without threads, so that it can fork: each session runs in a child, which kills itself at one
of the points a rehearsal counted: before and after every statement and commit, and in the midst of every call of the
model. Points are taken at random, from each step of a session in turn. The model is at OPENAI_BASE_URL
(`tests.fault.test_kills`). Prints one line of JSON. FOLDER has keys and an empty, migrated database, a file of SQLite,
which is put back for each kill.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

TEXTS = [f"The {thing} stands in the {place}." for thing in ("chair", "table") for place in ("hall", "den", "attic")]
SAME = "The kettle whistles."


class Points:
    """The points of one session at which it may be killed, counted as they are passed."""

    def __init__(self, deadly: int | None) -> None:
        self.deadly = deadly
        self.passed: list[str] = []
        self.step = "start"

    def pass_one(self) -> None:
        self.passed.append(self.step)
        if len(self.passed) == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        self.pass_one()
        result = execute(*arguments)
        self.pass_one()
        return result

    def during(self, step: str, do: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(do)
        def named(*arguments: Any, **options: Any) -> Any:
            before, self.step = self.step, step.format(*arguments[1:])
            try:
                return do(*arguments, **options)
            finally:
                self.step = before

        return named

    def in_the_midst(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            self.passed.append(self.step)
            if len(self.passed) == self.deadly:
                threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return do(*arguments)

        return watched


def session(points: Points) -> None:
    """A whole session, as `manage.py refine` runs it, past the points."""
    from django.core.management import call_command
    from django.db import connection

    from memory.writing import duplicates
    from refinement import knife, loop
    from refinement import session as sessions

    sessions.open_session = points.during("open", sessions.open_session)
    duplicates.remove = points.during("dedupe", duplicates.remove)
    sessions.end = points.during("close", sessions.end)
    knife.Knife.show = points.during("brief", knife.Knife.show)  # type: ignore[method-assign]
    knife.Knife.begin_step = points.during("step", knife.Knife.begin_step)  # type: ignore[method-assign]
    knife.Knife.call = points.during("{0}", knife.Knife.call)  # type: ignore[method-assign]
    loop._Run._ask = points.during("model call", points.in_the_midst(loop._Run._ask))  # type: ignore[method-assign]
    connection.ensure_connection()
    commit = connection._commit
    connection._commit = lambda: points.around(commit)
    with connection.execute_wrapper(points.around):
        call_command("refine", "acme/ada", "--json")


def in_child(do: Callable[[], None]) -> int:
    """Do it in a child; its status as `os.waitpid` has it."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        with Path(os.devnull).open("w") as nowhere:
            sys.stdout = sys.stderr = nowhere
            do()
        os._exit(0)
    finally:
        os._exit(1)


def rehearse(folder: Path) -> list[str]:
    """The steps of a session that nobody kills, one for each point it passes."""
    points = Points(None)

    def run() -> None:
        session(points)
        (folder / "points.json").write_text(json.dumps(points.passed))

    assert in_child(run) == 0
    passed: list[str] = json.loads((folder / "points.json").read_text())
    return passed


def prepare(folder: Path) -> None:
    from audit.trail import Actor
    from memory.agents import lifecycle
    from memory.policy.validation import Draft
    from memory.writing import operations as store

    me = Actor.operator("killing")
    ada, _ = lifecycle.create("acme", "ada", model="openai/scripted", actor=me)
    filler = [f"Filler of some length that nobody touches, {word}." for word in ("one", "two", "three") * 4]
    numbered = [f"{text} {place}" for place, text in enumerate(filler)]
    store.remember(ada, [Draft(text) for text in [*TEXTS, SAME, SAME, SAME, *numbered]], me)
    reset_to(folder, save=True)


def reset_to(folder: Path, *, save: bool = False) -> None:
    """Put the database back to how it was prepared, or save it as that."""
    from django.db import connection

    if save:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    live, saved = folder / "data" / "palimpsest.sqlite3", folder / "saved.sqlite3"
    for suffix in ("-wal", "-shm"):
        Path(f"{live}{suffix}").unlink(missing_ok=True)
    shutil.copyfile(*((live, saved) if save else (saved, live)))


def operations() -> list[tuple[str, list[int]]]:
    """What was done to ada, in order, and to which memories."""
    from audit.models import AuditEntry, Change

    touched: dict[int, list[int]] = {}
    for seq, number in Change.objects.order_by("number").values_list("seq", "number"):
        touched.setdefault(seq, []).append(number)
    entries = AuditEntry.objects.order_by("seq").values_list("seq", "operation")
    return [(operation, touched.get(seq, [])) for seq, operation in entries]


def said_ever(number: int) -> set[str]:
    """All a memory says now and said before any entry that changed it."""
    from audit.models import Change
    from memory.models import Agent, Memory
    from memory.silo.silo import Silo
    from memory.writing.edits import fields_of

    silo = Silo.for_agent(Agent.objects.get())
    past = [fields_of(bytes(c.before))["sealed"] for c in Change.objects.filter(number=number) if c.before is not None]
    now = bytes(Memory.objects.get(number=number).sealed)
    return {silo.open_sealed(number, sealed).content for sealed in [*past, now]}


def wrong_after(whole: list[tuple[str, list[int]]], originals: dict[int, set[str]]) -> list[str]:
    """What is not as it should be in the database a killed session left; empty when all is well."""
    import time_machine
    from django.utils import timezone

    from memory.models import Agent, Memory
    from memory.time_machine import replay
    from refinement import loop
    from refinement import session as sessions
    from refinement.models import RefinementSession

    ada = Agent.objects.select_related("tenant").get()
    wrong = [problem.problem for problem in replay.problems(ada)]
    done = operations()
    if done != whole[: len(done)]:
        wrong.append("what was done is not a beginning of what was asked")
    wrong += [f"memory {number} is lost" for number, said in originals.items() if not said <= said_ever(number)]
    if Memory.objects.exclude(superseded_by=None).filter(discarded_at=None).exists():
        wrong.append("a merged memory is still active")
    row = RefinementSession.objects.first()
    edits = [len(numbers) for operation, numbers in done if operation in ("revised", "discarded")]
    edits += [len(numbers) - 1 for operation, numbers in done if operation == "consolidated"]
    if row and row.changes != sum(edits):
        wrong.append("the session counts other edits than the trail")
    with time_machine.travel(timezone.now() + timedelta(hours=1)):
        was_open = row is not None and row.outcome == "open"
        closed = sessions.close_stale()
        if [session.outcome for session in closed] != ["abandoned"] * was_open:
            wrong.append("the session was not closed as abandoned")
        Agent.objects.update(model="builtin/dedupe")
        if loop.refine(Agent.objects.select_related("tenant").get(), trigger="manual").outcome != "completed":
            wrong.append("the next session did not run")
    fresh = Agent.objects.select_related("tenant").get()
    return wrong + [f"afterwards: {problem.problem}" for problem in replay.problems(fresh)]


def choose(steps: list[str], kills: int, seed: int) -> list[int]:
    """Points to kill at, counted from 1: every kind of step in turn, within it at random."""
    dice = random.Random(seed)
    kinds: dict[str, list[int]] = {}
    for place, step in enumerate(steps, 1):
        kinds.setdefault(step, []).append(place)
    pools = [dice.sample(places, len(places)) for places in kinds.values()]
    dice.shuffle(pools)
    chosen: list[int] = []
    while len(chosen) < kills:
        for pool in pools:
            chosen.append(pool[0])
            pool.append(pool.pop(0))
    return chosen[:kills]


def main(folder: Path, kills: int, seed: int) -> None:
    started = time.monotonic()
    import django

    django.setup()
    prepare(folder)
    originals = {number: said_ever(number) for number in range(1, 22)}
    reset_to(folder)
    steps = rehearse(folder)
    whole = operations()
    by_step: Counter[str] = Counter()
    wrong: list[str] = []
    for point in choose(steps, kills, seed):
        reset_to(folder)
        status = in_child(lambda point=point: session(Points(point)))  # type: ignore[misc]
        by_step[steps[point - 1]] += 1
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            wrong.append(f"point {point} was not reached")
        wrong += [f"point {point}, {steps[point - 1]}: {what}" for what in wrong_after(whole, originals)]
    figures = {"kills": kills, "points": len(steps), "by_step": dict(by_step), "wrong": wrong}
    print(json.dumps(figures | {"operations": whole, "seconds": round(time.monotonic() - started, 1)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
