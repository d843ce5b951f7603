"""Import 10,000 memories (`memory.transfer.formats.jsonl`), beside the same rows by plain SQL in batches."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from audit.trail import Actor
from memory.agents import lifecycle
from memory.transfer.formats import jsonl
from tests.bench import texts
from tests.bench.figures import Figure, at_most, rate
from tests.bench.floor_bench import floor
from tests.bench.writes_bench import size

ME = Actor.operator("bench")
BATCH = 1_000


def run(database: str, *, quick: bool) -> Iterator[Figure]:
    """Ours and the floor's in turns, a whole import at a time, as both run in one transaction."""
    count, turns = (2_000, 1) if quick else (10_000, 3)
    plain = floor()
    empty = size()
    stored = 0
    taken = {"ours": [], "floor": []}
    for turn in range(turns):
        given = list(texts.lines(count, turn))
        contents = [json.loads(line)["content"] for line in given]
        agent, _ = lifecycle.create("acme", f"ada{turn}", model="builtin/dedupe", actor=ME)

        def ours(agent=agent, given=given) -> None:
            jsonl.load(agent, given, ME)

        def theirs(contents=contents) -> None:
            plain.store_batches(contents, BATCH)

        pair = [("ours", ours), ("floor", theirs)]
        for name, act in pair if turn % 2 else pair[::-1]:
            start = time.perf_counter()
            act()
            taken[name].append(time.perf_counter() - start)
        stored += count
    least = {name: sum(times) / len(times) for name, times in taken.items()}
    yield rate("import", database, f"import of {count:,}", count / least["ours"], count / least["floor"], 0.3)
    yield at_most("import", database, "bytes on disk a memory, imported", (size() - empty) / stored, "B", 2_000)
    yield Figure("import", database, "bytes on disk a memory, plain SQL", plain.size() / stored, "B")
