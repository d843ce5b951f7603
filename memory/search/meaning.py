"""Ranks memories by their words and by their meaning.

The score of a memory is the sum of two parts. The first is its share of the best score that words can reach. The second
is the cosine of its vector with the query's vector. The search then continues with a vector between the query's and
those of the best memories.

With the five LoCoMo ledgers and all-MiniLM-L6-v2, recall at 1, 5, 10 and 20 was .56/.74/.80/.87 by words alone,
.57/.77/.84/.90 with reciprocal rank fusion, .58/.80/.86/.91 with the sum, and .57/.80/.85/.92 with the second search
(tests/bench/recall_bench.py). Other values from 0.7 to 1.3 for WEIGHT and FEEDBACK change recall by at most 0.005.
"""

from array import array
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from memory.search.holdings import Holdings
from memory.search.query import Query
from memory.search.ranking import best_first
from memory.search.selection import Filters, select
from memory.search.vectors import Floats, Vectors, best

WEIGHT = 1.0
FEEDBACK, FEEDBACK_MEMORIES = 0.85, 5  # how much the best memories change the query's vector
# A memory that only its vector finds needs this cosine. Unrelated texts have about 0 (memory/search/vectors.py).
LEAST_COSINE = 0.15
LOOK = 200  # at so many of the best memories, by words and by vectors

Ranked = list[tuple[float, int]]


class Fusion(NamedTuple):
    """One search. `by_words` has the allowed memories that words found, each with its share of the best score."""

    holdings: Holdings
    vectors: Vectors
    query: Query
    filters: Filters
    by_words: Mapping[int, float]

    def ranked(self, vector: "array[float]") -> Ranked:
        """Return the allowed memories as pairs (score, number), best first. `vector` is the query's vector."""
        own = self.vectors.cosines(vector)
        ranked = self._ranked(own, own)
        first = [number for _, number in ranked[:FEEDBACK_MEMORIES] if self.vectors.row(number) >= 0]
        if first and len(own):
            ranked = self._ranked(self.vectors.cosines(self.vectors.moved(vector, first, FEEDBACK)), own)
        return ranked

    def _ranked(self, cosines: Floats, own: Floats) -> Ranked:
        """`own` has the cosines with the query's own vector."""
        found = dict(self.by_words)
        for number in {*self._nearest(cosines), *self.by_words}:
            row = self.vectors.row(number)
            is_current = 0 <= row < len(own) and self._is_current(number, row)
            if is_current and (number in self.by_words or own[row] >= LEAST_COSINE):
                found[number] = self.by_words.get(number, 0.0) + WEIGHT * float(cosines[row])
        return sorted(((score, number) for number, score in found.items()), key=best_first)

    def _is_current(self, number: int, row: int) -> bool:
        """Whether the vector is from the memory's present text."""
        digests = self.holdings.digests
        return bool(self.vectors.digests[row] == (digests[number] if number < len(digests) else 0))

    def _nearest(self, cosines: Floats) -> list[int]:
        """Return the allowed memories with the best cosines. Most filters allow most memories. So the function first
        filters only the best ones, because this is faster."""
        numbers, by_number = self.vectors.numbers, self.holdings.by_number
        if not self.query.restricts:
            allow = self.filters.allowing()
            found = [number for number in numbers[best(cosines, LOOK)].tolist() if number in by_number]
            allowed = [number for number in found if allow(by_number[number])]
            if len(allowed) == len(found) or len(allowed) >= LOOK // 4:
                return allowed
        selected = select(self.holdings, self.query, self.filters, None) or ()
        rows = np.array([row for number in selected if 0 <= (row := self.vectors.row(number)) < len(cosines)], int)
        nearest: list[int] = numbers[rows[best(cosines[rows], LOOK)]].tolist()
        return nearest
