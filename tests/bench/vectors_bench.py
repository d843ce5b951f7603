"""Search by words and by meaning among 100,000 memories: time and RAM, without the query's own embedding.

The texts are those of the search bench, with random vectors of 384 dimensions that have a common part. Beside it, in
the same run: words alone, a product of float32 in numpy, and the index of USearch (`pip install usearch`).
"""

import gc
import statistics
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from memory.search.index import Index
from memory.search.vectors import Vectors, best
from tests.bench.child import mebibytes
from tests.bench.figures import Figure, at_most, beside
from tests.bench.search_bench import corpus, documents

DIMENSIONS = 384
TIME_TARGET, RAM_TARGET = 25, 120  # ms and MB, at 100,000
FOUND = 20


def run(*, quick: bool) -> Iterator[Figure]:
    for count in (1_000,) if quick else (10_000, 100_000):
        yield from _of_size(count)


def _of_size(count: int) -> Iterator[Figure]:
    texts, queries = corpus(count)
    small, sought = _vectors(count), _vectors(len(queries), seed=2).astype(np.float32)
    is_judged = count == 100_000
    gc.collect()
    before = mebibytes("VmRSS")
    index = Index("english")
    index.extend(documents(texts))
    index.vectors = Vectors(count)
    for number, vector in enumerate(small):
        index.vectors.put(number, 0, vector.tobytes())
    both = _median(queries, sought, lambda query, vector: index.search(query, vector=vector, limit=FOUND))
    gc.collect()
    used = (mebibytes("VmRSS") - before) * 1.048576
    words = _median(queries, sought, lambda query, _: index.search(query, limit=FOUND))
    what = f"{count:,} memories: words and meaning"
    judged = at_most(f"{what}, median", both, "ms", TIME_TARGET if is_judged else None)
    yield replace(judged, floor=words, ratio=both / words)
    yield at_most(f"{what}, RAM", used, "MB", RAM_TARGET if is_judged else None)
    vectors = index.vectors
    ours = _median(queries, sought, lambda _, vector: best(vectors.cosines(vector), FOUND))
    yield from _others(count, small, queries, sought, ours)


def _others(count: int, small: Any, queries: Sequence[str], sought: Any, ours: float) -> Iterator[Figure]:
    large = small.astype(np.float32)
    large /= np.linalg.norm(large, axis=1, keepdims=True)
    plain = _median(queries, sought, lambda _, vector: best(large @ np.frombuffer(vector, np.float32), FOUND))
    yield beside(f"{count:,} vectors alone, beside numpy (float32)", ours, "ms", plain)
    yield Figure(f"{count:,} vectors alone, RAM beside numpy (float32)", small.nbytes / 1e6, "MB", large.nbytes / 1e6)
    try:
        from usearch.index import Index as Other
    except ImportError:
        print("USearch is not installed: skipped.")
        return
    other = Other(ndim=DIMENSIONS, metric="cos", dtype="i8")
    other.add(np.arange(count), large)
    for kind in ("exact", "approximate"):

        def theirs(_: str, vector: "array[float]", is_exact: bool = kind == "exact") -> object:
            return other.search(np.frombuffer(vector, np.float32), FOUND, exact=is_exact)

        yield beside(f"{count:,} vectors alone, beside USearch ({kind})", ours, "ms", _median(queries, sought, theirs))
    yield Figure(f"{count:,} vectors alone, RAM beside USearch", small.nbytes / 1e6, "MB", other.memory_usage / 1e6)


def _vectors(count: int, seed: int = 1) -> Any:
    chance = np.random.default_rng(seed)
    found = chance.normal(size=(count, DIMENSIONS)).astype(np.float32)
    found += np.random.default_rng(0).normal(size=DIMENSIONS).astype(np.float32) / 2
    return np.rint(found * (127 / np.abs(found).max(axis=1, keepdims=True))).astype(np.int8)


def _median(queries: Sequence[str], sought: Any, search: Callable[[str, "array[float]"], object]) -> float:
    """Milliseconds. The first search, which builds what others use, does not count."""
    given = [array("f", vector.tobytes()) for vector in sought]
    search(queries[0], given[0])
    times = []
    for query, vector in zip(queries, given, strict=True):
        start = time.perf_counter()
        search(query, vector)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)
