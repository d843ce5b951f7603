"""The vault: memories stored with and without one, its indexes written anew, what differs found and mended.

Stored one by one, as agents do, and then in batches of one edit each, as an import does. Beside the rate with a vault
stands the rate without, in the same run: they take turns, so that whatever else the machine does slows both. A batch
has no target: without files a memory of it takes less time than one file's way to the disk.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent
from memory.policy.validation import Draft
from memory.vault import repair
from memory.writing import operations
from tests.bench import texts
from tests.bench.figures import Figure, at_most, rate

ME = Actor.operator("bench")
BATCH = 1_000
TURNS = 10
AT_LEAST = 0.3
REBUILT_IN = 10  # seconds
MORE_MEMORY = 20  # MB, over what half as many files took


def run(database: str, *, quick: bool) -> Iterator[Figure]:
    many = 1_000 if quick else 10_000
    root = Path(tempfile.mkdtemp(dir=settings.VAR_DIR))
    settings.VAULT_ROOTS = [str(root)]
    try:
        off, on = _agent("off", ""), _agent("on", str(root / "on"))
        without, with_files = _in_turns(off, on, many, 1)
        yield rate("vault", database, f"{many:,} memories stored one by one", with_files, without, AT_LEAST)
        yield from _rebuilt(database, on, many)
        without, with_files = _in_turns(off, on, many, BATCH)
        ratio = with_files / without
        yield Figure("vault", database, f"{many:,} more, {BATCH:,} at a time", with_files, "/s", without, ratio)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _agent(name: str, vault: str) -> Agent:
    return lifecycle.create("acme", name, model="builtin/dedupe", actor=ME, vault_path=vault)[0]


def _in_turns(off: Agent, on: Agent, many: int, batch: int) -> tuple[float, float]:
    """Memories a second, of each."""
    drafts = [Draft(text, category="technical") for text in texts.many(many)]
    took = {off.pk: 0.0, on.pk: 0.0}
    for start in range(0, many, many // TURNS):
        for agent in (off, on):
            took[agent.pk] += _stored(agent, drafts[start : start + many // TURNS], batch)
    return many / took[off.pk], many / took[on.pk]


def _stored(agent: Agent, drafts: list[Draft], batch: int) -> float:
    """In how many seconds."""
    started = time.perf_counter()
    for start in range(0, len(drafts), batch):
        operations.remember(agent, drafts[start : start + batch], ME)
    return time.perf_counter() - started


def _rebuilt(database: str, agent: Agent, files: int) -> Iterator[Figure]:
    before = _peak()
    started = time.perf_counter()
    done = repair.repair(agent)
    seconds = time.perf_counter() - started
    assert (done.repaired, done.indexed, done.left) == (0, files, ())
    yield at_most("vault", database, f"{files:,} files compared, indexes written anew", seconds, "s", REBUILT_IN)
    yield at_most(
        "vault", database, "… memory it took above what storing them had", _peak() - before, "MB", MORE_MEMORY
    )
    folder = Path(agent.vault_path) / "common"
    shutil.rmtree(folder)
    started = time.perf_counter()
    assert repair.repair(agent).repaired == files
    seconds = time.perf_counter() - started
    yield Figure("vault", database, f"{files:,} files that were gone written again", files / seconds, "/s")


def _peak() -> float:
    """Megabytes of this process, at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000 * (1 if os.uname().sysname == "Linux" else 0.001)
