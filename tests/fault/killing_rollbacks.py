"""Kill rollbacks and redactions with SIGKILL after a random part of the time that they take: `main` for
`test_rollback_kills.py`."""

import hashlib
import json
import random
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from audit.models import Change
from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import redaction, requests
from memory.models import Memory
from memory.policy.validation import Draft
from memory.time_machine import replay, rollback
from memory.writing import operations
from memory.writing.edits import snapshot
from tests.fault.killing import get_agent, in_child, is_killed, reset_to

ME = Actor.operator("killing")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def prepare(folder: Path, changes: int) -> None:
    agent, _ = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=ME)
    operations.remember(agent, [Draft(f"The {n}th chair stands in the hall.") for n in range(changes)], ME)
    operations.discard(agent, range(1, changes + 1), ME)
    redacted = range(1, min(changes, requests.MAX_MEMORIES) + 1)
    requests.ask_redaction(agent, redacted, ME, reason="a test")
    reset_to(folder, save=True)


def roll_back() -> None:
    rollback.roll_back(get_agent(), rollback.What("entry", get_agent().audit_seq - 1), ME)


def redact() -> None:
    redaction.redact(get_agent(), get_agent().audit_seq, Actor.agent())


def digest() -> str:
    """A digest of every memory and of what the trail keeps of it, without the times of redactions."""
    whole = hashlib.sha256()
    for memory in Memory.objects.order_by("number").iterator(2_000):
        memory.redacted_at = memory.redacted_at and EPOCH
        whole.update(memory.number.to_bytes(8, "big") + snapshot(memory))
    for change in Change.objects.filter(seq__lte=4).order_by("pk").values_list("before", "after").iterator(2_000):
        whole.update(b"/".join(bytes(each) for each in change if each is not None))
    return whole.hexdigest()


def main(where: str, what: str, kills: str, changes: str, seed: str) -> None:
    started, folder = time.monotonic(), Path(where)
    work = {"rollback": roll_back, "redaction": redact}[what]
    prepare(folder, int(changes))
    before = digest()
    reset_to(folder)
    began = time.monotonic()
    assert in_child(work) == 0
    takes = time.monotonic() - began
    after = digest()
    assert before != after
    dice, outcomes, problems = random.Random(int(seed)), Counter[str](), []
    while outcomes["nothing"] + outcomes["all"] < int(kills):
        reset_to(folder)
        status = in_child(work, kill_after=dice.uniform(0, takes * 1.05))
        if not is_killed(status):
            assert status == 0
            outcomes["over before"] += 1
            continue
        now = digest()
        outcomes["nothing" if now == before else "all"] += 1
        if now not in (before, after):
            problems.append("a part is done")
        problems += [problem.problem for problem in replay.problems(get_agent())]
        if now == before:
            work()
            if digest() != after:
                problems.append("afterwards the work cannot be done")
    figures = {"outcomes": dict(outcomes), "problems": problems, "takes_seconds": round(takes, 2)}
    print(json.dumps(figures | {"seconds": round(time.monotonic() - started, 1)}))
