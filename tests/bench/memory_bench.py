"""How much memory an import takes: peak resident size of the process (`ru_maxrss`) beyond what it had after a first
import of 1,000, each number of memories in an agent of its own and the numbers rising, so that a peak is a new one."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from audit.trail import Actor
from memory.agents import lifecycle
from memory.transfer.formats import jsonl
from tests.bench import texts
from tests.bench.figures import Figure

ME = Actor.operator("bench")
MOST = 16  # MiB that 50,000 may take more than 2,000: less than their text alone


def run(database: str, *, quick: bool) -> Iterator[Figure]:
    counts = (1_000, 2_000, 5_000) if quick else (1_000, 2_000, 10_000, 50_000)
    peaks = []
    for count in counts:
        agent, _ = lifecycle.create("acme", f"ada{count}", model="builtin/dedupe", actor=ME)
        jsonl.load(agent, texts.lines(count, count), ME)
        peaks.append(peak())
    for count, reached in zip(counts[1:-1], peaks[1:-1], strict=True):
        yield Figure("memory", database, f"import of {count:,}: resident peak grows by", reached - peaks[0], "MiB")
    last = peaks[-1]
    what = f"import of {counts[-1]:,}: resident peak grows by"
    yield Figure("memory", database, what, last - peaks[0], "MiB")
    grown = last - peaks[1]
    what = f"… and beyond that of {counts[1]:,} by"
    yield Figure("memory", database, what, grown, "MiB", target=f"≤ {MOST} MiB (flat)", met=grown <= MOST)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kilobytes on Linux
