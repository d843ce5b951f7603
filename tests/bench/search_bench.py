"""Search: recall on the LoCoMo ledgers, time to build and to answer, beside SQLite's FTS5 in the same run.

    python -m tests.bench.search_bench [--data DIR]

DIR holds `locomo/*.memories.jsonl` and `*.questions.json`; else the environment's PALIMPSEST_DATA, else
../shared/data beside the checkout. With BENCH_PG_DSN, PostgreSQL's `ts_rank_cd` runs too (in temporary tables).
Recall at k: the share of all questions for which one of the first k memories found shares evidence with the question.
Cold: to index opened memories of 20 words and answer one query; what decryption takes comes on top.
"""

import argparse
import json
import os
import random
import re
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path

from memory.search import Document, Index
from memory.search.stopwords import stop_words

ROOT = Path(__file__).resolve().parents[2]
FIRST = (1, 5, 10, 20)
RECALL_TARGET = (0.51, 0.73, 0.79, 0.84)
# memories → targets in seconds
COLD_TARGET = {10_000: 0.1, 100_000: 1.0}
WARM_TARGET = {10_000: 0.002, 100_000: 0.020}
QUERIES = 100
BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)

Search = Callable[[str, int], list[int]]
Engine = Callable[[Sequence[str]], Search]


def palimpsest(texts: Sequence[str]) -> Search:
    index = Index()
    index.extend(
        Document(number, text, (), BEGINNING + timedelta(minutes=number), "core", "", "")
        for number, text in enumerate(texts)
    )
    return lambda query, limit: [hit.number for hit in index.search(query, limit=limit)]


def fts5(texts: Sequence[str]) -> Search:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE t USING fts5(content, tokenize='porter unicode61')")
    database.executemany("INSERT INTO t (rowid, content) VALUES (?, ?)", enumerate(texts))

    def search(query: str, limit: int) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        rows = database.execute("SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t), rowid LIMIT ?", (words, limit))
        return [number for (number,) in rows]

    return search


def postgresql(texts: Sequence[str]) -> Search:
    import psycopg

    connection = psycopg.connect(os.environ["BENCH_PG_DSN"], autocommit=True)
    connection.execute("DROP TABLE IF EXISTS pg_temp.t")
    connection.execute("CREATE TEMPORARY TABLE t (number int, vector tsvector)")
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, to_tsvector('english', %s))", list(enumerate(texts)))
    connection.execute("CREATE INDEX ON t USING gin (vector)")
    connection.execute("ANALYZE t")

    def search(query: str, limit: int) -> list[int]:
        rows = connection.execute(
            "SELECT number FROM t, to_tsquery('english', %s) q WHERE vector @@ q"
            " ORDER BY ts_rank_cd(vector, q, 1) DESC, number LIMIT %s",
            (" | ".join(re.findall(r"\w+", query)), limit),
        )
        return [number for (number,) in rows]

    return search


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("PALIMPSEST_DATA") or ROOT.parent / "shared/data")
    data = Path(parser.parse_args(arguments).data)
    engines: dict[str, Engine] = {"palimpsest": palimpsest, "fts5": fts5}
    if os.environ.get("BENCH_PG_DSN"):
        engines["postgresql"] = postgresql
    report_recall(data / "locomo", engines)
    report_speed(engines)


def report_recall(folder: Path, engines: dict[str, Engine]) -> None:
    ledgers = sorted(folder.glob("*.memories.jsonl"))
    if not ledgers:
        print(f"Recall: no LoCoMo ledgers in {folder}: skipped.")
        return
    print(f"{'recall at':<14}" + "".join(f"{k:>8}" for k in FIRST))
    print(f"{'to reach':<14}" + "".join(f"{target:>8.2f}" for target in RECALL_TARGET))
    for name, engine in engines.items():
        print(f"{name:<14}" + "".join(f"{share:>8.3f}" for share in recall(ledgers, engine)))


def recall(ledgers: Sequence[Path], engine: Engine) -> list[float]:
    places = [place for ledger in ledgers for place in first_right(ledger, engine)]
    return [sum(place < k for place in places) / len(places) for k in FIRST]


def first_right(ledger: Path, engine: Engine) -> Iterator[int]:
    """For every question with evidence, at which place (from 0) the first right memory stands."""
    memories = [json.loads(line) for line in ledger.read_text(encoding="utf-8").split("\n") if line]
    questions = json.loads(ledger.with_name(ledger.name.replace("memories.jsonl", "questions.json")).read_text("utf-8"))
    search = engine([memory["content"] for memory in memories])
    for question in questions:
        if wanted := set(question["evidence"]):
            found = search(question["question"], FIRST[-1])
            right = (place for place, number in enumerate(found) if wanted & set(memories[number]["evidence"]))
            yield next(right, FIRST[-1])


def report_speed(engines: dict[str, Engine]) -> None:
    print(
        f"\n{'engine':<14}{'memories':>10}{'cold s':>10}{'to reach':>10}{'median ms':>12}{'to reach':>10}{'p95 ms':>10}"
    )
    for count in (1_000, 10_000, 100_000):
        texts, queries = corpus(count)
        for name, engine in engines.items():
            cold, warm = timed(engine, texts, queries)
            print(
                f"{name:<14}{count:>10,}{cold:>10.3f}{COLD_TARGET.get(count, float('nan')):>10.1f}"
                f"{statistics.median(warm) * 1e3:>12.2f}{WARM_TARGET.get(count, float('nan')) * 1e3:>10.0f}"
                f"{statistics.quantiles(warm, n=20)[-1] * 1e3:>10.2f}"
            )


def timed(engine: Engine, texts: Sequence[str], queries: Sequence[str]) -> tuple[float, list[float]]:
    """Seconds cold (best of three: other work on the machine only ever adds) and warm (each query once)."""
    colds = []
    for _ in range(3):
        start = time.perf_counter()
        search = engine(texts)
        search(queries[0], 10)
        colds.append(time.perf_counter() - start)
    return min(colds), [seconds(search, query) for query in queries]


def seconds(search: Search, query: str) -> float:
    start = time.perf_counter()
    search(query, 10)
    return time.perf_counter() - start


def corpus(count: int) -> tuple[list[str], list[str]]:
    """Memories of 20 words, four in ten of them stop words, the others by Zipf's law from 50,000; questions on them."""
    chance = random.Random(7)
    common = sorted(stop_words("english"))
    words = invented_words(chance, 50_000)
    shares = list(accumulate(1 / (rank + 5) for rank in range(len(words))))
    texts = []
    for _ in range(count):
        said = chance.choices(words, cum_weights=shares, k=12) + chance.choices(common, k=8)
        chance.shuffle(said)
        texts.append(" ".join(said).capitalize() + ".")
    return texts, ["What " + " ".join(chance.sample(chance.choice(texts).split(), 8)) + "?" for _ in range(QUERIES)]


def invented_words(chance: random.Random, count: int) -> list[str]:
    words: dict[str, None] = {}
    while len(words) < count:
        syllables = (chance.choice("bcdfghklmnprstvw") + chance.choice("aeiou") for _ in range(chance.randint(2, 4)))
        words["".join(syllables) + chance.choice(["", "", "n", "r", "s", "ing", "ed"])] = None
    return list(words)


if __name__ == "__main__":
    main()
