"""What `builtin/dedupe` would merge: the demo's ledger, and the LoCoMo ledgers where they are at hand.

Tokens are the heuristic's (characters / 4, rounded up per memory). Then: how time grows with the number of texts.
"""

import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

from refinement.similarity import clusters, near_groups
from tests.bench.figures import Figure
from tests.bench.places import ROOT, ledgers


def run(*, quick: bool) -> Iterator[Figure]:
    yield from merged("demo", contents(ROOT / "refinement/demo/ledger.jsonl"))
    for ledger in [] if quick else ledgers():
        yield from merged(f"LoCoMo {ledger.name.split('.')[0]}", contents(ledger))
    for count in (2_000,) if quick else (2_000, 8_000, 32_000):
        yield from growth(count)


def contents(ledger: Path) -> list[str]:
    """Distinct core memories: equal ones are removed before a session begins."""
    rows = [json.loads(line) for line in ledger.read_text(encoding="utf-8").split("\n") if line]
    return list(dict.fromkeys(row["content"] for row in rows if row.get("kind", "core") == "core"))


def tokens(text: str) -> int:
    return math.ceil(len(text) / 4)


def merged(name: str, texts: list[str]) -> Iterator[Figure]:
    start = time.perf_counter()
    similar, groups = clusters(texts), near_groups(texts)
    spent = time.perf_counter() - start
    yield Figure(f"{name}: memories", len(texts))
    yield Figure(f"{name}: tokens", sum(map(tokens, texts)))
    yield Figure(f"{name}: clusters of similar memories", len(similar))
    yield Figure(f"{name}: groups of near duplicates", len(groups))
    yield Figure(f"{name}: merged", sum(len(group.members) for group in groups))
    saved = sum(tokens(texts[i]) for group in groups for i in group.members if i != group.fullest)
    yield Figure(f"{name}: tokens saved", saved)
    yield Figure(f"{name}: whole run", spent * 1e3, "ms")


def growth(count: int) -> Iterator[Figure]:
    chance = random.Random(7)
    words = [f"word{i}" for i in range(20_000)]
    texts = [" ".join(chance.choices(words, k=25)) for _ in range(count)]
    for what, work in (("similar", clusters), ("near duplicates", near_groups)):
        start = time.perf_counter()
        work(texts)
        yield Figure(f"{count:,} texts: {what}", time.perf_counter() - start, "s")
