"""Import 10,000 memories (`memory.transfer.formats.jsonl`), beside the same rows by plain SQL in batches."""

import json
import time
from collections.abc import Iterator

from memory.transfer import importing
from tests.bench import texts
from tests.bench.agents import ME, created
from tests.bench.figures import Figure, at_most, beside
from tests.bench.floor_bench import floor
from tests.bench.writes_bench import size

BATCH = 1_000


def run(*, quick: bool) -> Iterator[Figure]:
    """Ours and the floor's in turns, a whole import at a time, as both run in one transaction."""
    count, turns = (2_000, 1) if quick else (10_000, 3)
    plain = floor()
    empty = size()
    stored = 0
    taken = {"ours": [], "floor": []}
    for turn in range(turns):
        given = list(texts.lines(count, turn))
        contents = [json.loads(line)["content"] for line in given]
        agent = created(f"ada{turn}")

        def ours(agent=agent, given=given) -> None:
            importing.check_lines(given).store(agent, ME)

        def theirs(contents=contents) -> None:
            plain.store_batches(contents, BATCH)

        pair = [("ours", ours), ("floor", theirs)]
        for name, act in pair if turn % 2 else pair[::-1]:
            start = time.perf_counter()
            act()
            taken[name].append(time.perf_counter() - start)
        stored += count
    least = {name: sum(times) / len(times) for name, times in taken.items()}
    yield beside(f"import of {count:,}", count / least["ours"], "/s", count / least["floor"], least=0.3)
    yield at_most("bytes on disk a memory, imported", (size() - empty) / stored, "B", 2_000)
    yield Figure("bytes on disk a memory, plain SQL", plain.size() / stored, "B")
