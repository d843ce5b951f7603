"""The vault: memories stored with and without one, its indexes written anew, what differs found and mended.

Stored one by one, as agents do, and then in batches of one edit each, as an import does. Beside the rate with a vault
stands the rate without, in the same run: they take turns, so that whatever else the machine does slows both. A batch
has no target: without files a memory of it takes less time than one file's way to the disk.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from memory.models import Agent
from memory.policy.validation import Draft
from memory.vault import comparing
from memory.writing import operations
from tests.bench import texts
from tests.bench.agents import ME, created
from tests.bench.child import mebibytes
from tests.bench.figures import Figure, at_most, beside

BATCH = 1_000
TURNS = 10
AT_LEAST = 0.3
REBUILT_IN = 10  # seconds
MORE_MEMORY = 20  # MB, over what half as many files took


def run(*, quick: bool) -> Iterator[Figure]:
    many = 1_000 if quick else 10_000
    root = Path(tempfile.mkdtemp(dir=settings.VAR_DIR))
    settings.VAULT_ROOTS = [str(root)]
    try:
        off, on = created("off", vault_path=""), created("on", vault_path=str(root / "on"))
        without, with_files = _in_turns(off, on, many, 1)
        yield beside(f"{many:,} memories stored one by one", with_files, "/s", without, least=AT_LEAST)
        yield from _rebuilt(on, many)
        without, with_files = _in_turns(off, on, many, BATCH)
        yield beside(f"{many:,} more, {BATCH:,} at a time", with_files, "/s", without)
    finally:
        shutil.rmtree(root, ignore_errors=True)


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


def _rebuilt(agent: Agent, files: int) -> Iterator[Figure]:
    before = mebibytes("VmHWM")
    started = time.perf_counter()
    done = comparing.repair(agent)
    seconds = time.perf_counter() - started
    assert (done.repaired, done.indexed, done.left) == (0, files, ())
    yield at_most(f"{files:,} files compared, indexes written anew", seconds, "s", REBUILT_IN)
    grown = (mebibytes("VmHWM") - before) * 1.048576
    yield at_most("… memory it took above what storing them had", grown, "MB", MORE_MEMORY)
    folder = Path(agent.vault_path) / "common"
    shutil.rmtree(folder)
    started = time.perf_counter()
    assert comparing.repair(agent).repaired == files
    seconds = time.perf_counter() - started
    yield Figure(f"{files:,} files that were gone written again", files / seconds, "/s")
