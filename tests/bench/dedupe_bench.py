"""What `builtin/dedupe` would merge: the demo's ledger, and the LoCoMo ledgers where they are at hand.

    python -m tests.bench.dedupe_bench [--data DIR]

DIR holds `locomo/*.memories.jsonl`; else the environment's PALIMPSEST_DATA, else ../shared/data beside the checkout.
Tokens are the heuristic's (characters / 4, rounded up per memory). Then: how time grows with the number of texts.
"""

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from refinement import specifics
from refinement.similarity import clusters, near_groups

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = ("ledger", "memories", "tokens", "similar", "groups", "merged", "saved", "specifics", "ms")
ROW = "{:<24}" + "{:>10}" * 6 + "{:>14}{:>8}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("PALIMPSEST_DATA") or ROOT.parent / "shared/data")
    data = Path(parser.parse_args(arguments).data)
    print(ROW.format(*HEADINGS))
    report("demo", contents(ROOT / "refinement/demo/ledger.jsonl"))
    ledgers = sorted(data.glob("locomo/*.memories.jsonl"))
    if not ledgers:
        print(f"No LoCoMo ledgers in {data / 'locomo'}: skipped.", file=sys.stderr)
    for ledger in ledgers:
        report(f"locomo {ledger.name.split('.')[0]}", contents(ledger))
    print()
    for count in (2_000, 8_000, 32_000):
        growth(count)


def contents(ledger: Path) -> list[str]:
    """Distinct core memories: equal ones are removed before a session begins."""
    rows = [json.loads(line) for line in ledger.read_text(encoding="utf-8").split("\n") if line]
    return list(dict.fromkeys(row["content"] for row in rows if row.get("kind", "core") == "core"))


def tokens(text: str) -> int:
    return math.ceil(len(text) / 4)


def report(name: str, texts: list[str]) -> None:
    start = time.perf_counter()
    similar, groups = clusters(texts), near_groups(texts)
    spent = time.perf_counter() - start
    saved = sum(tokens(texts[i]) for group in groups for i in group.members if i != group.fullest)
    merged = sum(len(group.members) for group in groups)
    total = sum(map(tokens, texts))
    kept, all_ = specifics_kept(texts, [(group.members, group.fullest) for group in groups])
    shares = f"{kept}/{all_}"
    print(ROW.format(name, len(texts), total, len(similar), len(groups), merged, saved, shares, f"{spent * 1000:.0f}"))


def specifics_kept(texts: list[str], groups: list[tuple[tuple[int, ...], int]]) -> tuple[int, int]:
    """Of the specifics in all merged memories, how many the wording kept has; and how many there are."""
    lost = found = 0
    for members, fullest in groups:
        found += sum(len(specifics.extract(texts[i])) for i in members)
        lost += len(specifics.missing([texts[i] for i in members], texts[fullest]))
    return found - lost, found


def growth(count: int) -> None:
    chance = random.Random(7)
    words = [f"word{i}" for i in range(20_000)]
    texts = [" ".join(chance.choices(words, k=25)) for _ in range(count)]
    start = time.perf_counter()
    clusters(texts)
    middle = time.perf_counter()
    near_groups(texts)
    end = time.perf_counter()
    print(f"{count:>7} texts: similar {middle - start:.2f} s, near duplicates {end - middle:.2f} s")


if __name__ == "__main__":
    main()
