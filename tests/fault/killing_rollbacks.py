"""`python -m tests.fault.killing_rollbacks WHAT FOLDER KILLS CHANGES SEED`: kill by SIGKILL, at any moment.

WHAT is `rollback`, of one entry of so many changes, or `redaction`, of so many memories. A process of its own, so that
it can fork: each is done in a child, which is killed after a random part of the time that a whole one takes. Before
each, the database of FOLDER (tests.fault.killing) is put back. Prints one line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fault.killing import in_child, reset_to

if TYPE_CHECKING:
    from memory.models import Agent

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def prepare(folder: Path, changes: int) -> None:
    from audit.trail import Actor
    from memory.agents import lifecycle
    from memory.consent import removal_requests
    from memory.policy.validation import Draft
    from memory.writing import operations

    me = Actor.operator("killing")
    agent, _ = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=me)
    operations.remember(agent, [Draft(f"The {n}th chair stands in the hall.") for n in range(changes)], me)
    operations.discard(agent, range(1, changes + 1), me)
    removal_requests.ask_redaction(
        agent, range(1, min(changes, removal_requests.MAX_MEMORIES) + 1), me, reason="a test"
    )
    reset_to(folder, save=True)


def roll_back() -> None:
    from audit.trail import Actor
    from memory.time_machine import rollback
    from memory.time_machine.rollback import What

    rollback.roll_back(ada(), What.entry(ada().audit_seq - 1), Actor.operator("killing"))


def redact() -> None:
    from audit.trail import Actor
    from memory.consent import redaction

    redaction.redact(ada(), ada().audit_seq, Actor.agent())


def ada() -> Agent:
    from memory.models import Agent

    return Agent.objects.select_related("tenant").get()


def state() -> str:
    """A digest of every memory's whole state and of all that the trail keeps of it, but for times of redactions."""
    from audit.models import Change
    from memory.models import Memory
    from memory.writing.edits import snapshot

    whole = hashlib.sha256()
    for memory in Memory.objects.order_by("number").iterator(2_000):
        memory.redacted_at = memory.redacted_at and EPOCH
        whole.update(memory.number.to_bytes(8, "big") + snapshot(memory))
    for change in Change.objects.filter(seq__lte=4).order_by("pk").values_list("before", "after").iterator(2_000):
        whole.update(b"/".join(bytes(each) for each in change if each is not None))
    return whole.hexdigest()


def killed_after(seconds: float, do: Callable[[], None]) -> bool:
    """Do it in a child that is killed after so long. Whether it was killed before its end."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            do()
            os._exit(0)
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def main(what: str, folder: Path, kills: int, changes: int, seed: int) -> None:
    started = time.monotonic()
    import django

    django.setup()
    from memory.time_machine import replay

    do = {"rollback": roll_back, "redaction": redact}[what]
    prepare(folder, changes)
    before = state()
    reset_to(folder)
    began = time.monotonic()
    assert in_child(do) == 0
    takes = time.monotonic() - began
    after = state()
    assert before != after
    dice, outcomes, wrong = random.Random(seed), Counter[str](), []
    while outcomes["nothing"] + outcomes["all"] < kills:
        reset_to(folder)
        if not killed_after(dice.uniform(0, takes * 1.05), do):
            outcomes["over before"] += 1
            continue
        now = state()
        outcomes["nothing" if now == before else "all"] += 1
        if now not in (before, after):
            wrong.append("some of it was done")
        wrong += [problem.problem for problem in replay.problems(ada())]
        if now == before:
            do()
            if state() != after:
                wrong.append("afterwards it could not be done")
    figures = {"outcomes": dict(outcomes), "wrong": wrong, "takes_seconds": round(takes, 2)}
    print(json.dumps(figures | {"seconds": round(time.monotonic() - started, 1)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6]))
