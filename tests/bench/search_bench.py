"""Search: recall on the LoCoMo ledgers, time to build and to answer, beside the database's own full-text search.

That is SQLite's FTS5, or PostgreSQL's `ts_rank_cd`. The folder of the environment's PALIMPSEST_DATA (else
../shared/data beside the checkout) holds `locomo/*.memories.jsonl` and `*.questions.json`.
Recall at k: the share of all questions for which one of the first k memories found shares evidence with the question.
Cold: to index opened memories of 20 words and answer one query; what decryption takes comes on top.
"""

import json
import random
import re
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path

from django.db import connection

from memory.search.holdings import Document
from memory.search.index import Index
from memory.search.words import stop_words
from tests.bench.figures import Figure, at_least, at_most
from tests.bench.places import ledgers

FIRST = (1, 5, 10, 20)
RECALL_TARGET = (51, 73, 79, 84)  # %
# memories → targets in seconds, and in milliseconds
COLD_TARGET = {10_000: 0.1, 100_000: 1.0}
WARM_TARGET = {10_000: 2, 100_000: 20}
QUERIES = 100
BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)

Search = Callable[[str, int], list[int]]
Engine = Callable[[Sequence[str]], Search]


def run(*, quick: bool) -> Iterator[Figure]:
    floor = fts5 if connection.vendor == "sqlite" else postgresql
    if found := ledgers()[: 1 if quick else None]:
        yield from recalls(found, recall(found, palimpsest), recall(found, floor), is_judged=not quick)
    for count in (1_000,) if quick else (1_000, 10_000, 100_000):
        texts, queries = corpus(count)
        (cold, warm), (floor_cold, floor_warm) = (timed(engine, texts, queries) for engine in (palimpsest, floor))
        judged = at_most(f"{count:,} memories: cold", cold, "s", COLD_TARGET.get(count))
        yield replace(judged, floor=floor_cold, ratio=cold / floor_cold)
        ours, floors = 1e3 * statistics.median(warm), 1e3 * statistics.median(floor_warm)
        judged = at_most(f"{count:,} memories: warm, median", ours, "ms", WARM_TARGET.get(count))
        yield replace(judged, floor=floors, ratio=ours / floors)
        ours, floors = (1e3 * statistics.quantiles(each, n=20)[-1] for each in (warm, floor_warm))
        yield Figure(f"{count:,} memories: warm, 95 %", ours, "ms", floors, ours / floors)


def recalls(
    found: Sequence[Path], ours: Sequence[float], floor: Sequence[float], *, is_judged: bool
) -> Iterator[Figure]:
    """The targets are for all the ledgers."""
    for first, target, share, floors in zip(FIRST, RECALL_TARGET, ours, floor, strict=True):
        what = f"recall at {first}, {len(found)} ledgers"
        judged = at_least(what, 100 * share, "%", target if is_judged else None)
        yield replace(judged, floor=100 * floors, ratio=share / floors)


def palimpsest(texts: Sequence[str]) -> Search:
    index = Index("english")
    index.extend(documents(texts))
    return lambda query, limit: [hit.number for hit in index.search(query, limit=limit)]


def documents(texts: Sequence[str]) -> Iterator[Document]:
    for number, text in enumerate(texts):
        yield Document(number, text, (), BEGINNING + timedelta(minutes=number), "core", "", "")


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
    cursor = connection.cursor()
    cursor.execute("DROP TABLE IF EXISTS pg_temp.t")
    cursor.execute("CREATE TEMPORARY TABLE t (number int, vector tsvector)")
    cursor.executemany("INSERT INTO t VALUES (%s, to_tsvector('english', %s))", list(enumerate(texts)))
    cursor.execute("CREATE INDEX ON t USING gin (vector)")
    cursor.execute("ANALYZE t")

    def search(query: str, limit: int) -> list[int]:
        cursor.execute(
            "SELECT number FROM t, to_tsquery('english', %s) q WHERE vector @@ q"
            " ORDER BY ts_rank_cd(vector, q, 1) DESC, number LIMIT %s",
            (" | ".join(re.findall(r"\w+", query)), limit),
        )
        return [number for (number,) in cursor.fetchall()]

    return search


def recall(found: Sequence[Path], engine: Engine) -> list[float]:
    places = [place for ledger in found for place in first_right(ledger, engine)]
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
