"""The vectors of one agent's memories, for search by meaning.

A vector is kept as int8, so 100,000 vectors of 384 dimensions take 38 MB. Only the direction of a vector counts.

All texts of one agent have something in common, such as a name or a style. So their vectors have a common part, and
this part says nothing. It is the centre of all vectors, and is subtracted. Then the vectors of two unrelated texts have
a cosine near 0, with every embedder. With the five LoCoMo ledgers, this raised recall at 20 of vectors alone by 0.02.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import simsimd
from numpy.typing import NDArray

Floats = NDArray[np.float32]
_FIRST_ROWS, _GROWTH = 64, 1.1
# The centre counts this many zero vectors too, so that few memories do not define it.
_ZEROS = 10
_CHANGED = 0.1  # the share of changed vectors after which the centre is computed again
_ROWS = 1_024  # rows that are float32 at the same time
_BYTES_PER_ROW = 28  # besides the vector


def packed(values: Iterable[float]) -> bytes:
    """Return a vector as int8. Raises ValueError if it has no direction: if a value is not finite, or all are 0."""
    vector = np.fromiter(values, np.float64)
    most = float(np.abs(vector).max(initial=0.0))
    if not 0 < most < np.inf:
        raise ValueError("the vector has no direction")
    return np.rint(vector * (127 / most)).astype(np.int8).tobytes()


class Vectors:
    """Numbered vectors. Vectors with another number of dimensions than the first one are ignored.

    There is room for `expected` vectors. More are possible, but then the RAM is fragmented.
    """

    def __init__(self, expected: int = 0) -> None:
        self._first_rows = max(_FIRST_ROWS, expected)
        self._count = 0
        self._rows = np.zeros(0, np.int32)  # number → row + 1; 0: no vector
        self.numbers = np.zeros(0, np.int64)
        self.digests = np.zeros(0, np.uint64)  # of the texts that the vectors are from
        self._matrix = np.zeros((0, 0), np.int8)
        self._lengths = self._spreads = np.zeros(0, np.float32)
        self._centre = np.zeros(0, np.float32)
        self._changed = np.zeros(0, np.bool_)  # rows whose spread is not computed

    def __len__(self) -> int:
        return self._count

    @property
    def bytes_used(self) -> int:
        return len(self.numbers) * (self._matrix.shape[1] + _BYTES_PER_ROW)

    def put(self, number: int, digest: int, vector: bytes) -> None:
        """Add a vector, or replace the one with the same number. `digest` is of the text that it is from."""
        if not self._count:
            self._matrix = np.zeros((0, len(vector)), np.int8)
        if len(vector) != self._matrix.shape[1]:
            return
        if number >= len(self._rows):
            self._rows = _larger(self._rows, max(self._first_rows, int(number * _GROWTH) + 1))
        if (row := self.row(number)) < 0:
            row, self._count = self._count, self._count + 1
            self._rows[number] = self._count
        if row == len(self.numbers):
            self._grow()
        values = np.frombuffer(vector, np.int8)
        self.numbers[row], self.digests[row], self._matrix[row] = number, digest, values
        self._lengths[row] = max(float(np.linalg.norm(values.astype(np.float32))), 1.0)
        self._changed[row] = True

    def _grow(self) -> None:
        rows = max(self._first_rows, int(len(self.numbers) * _GROWTH) + 1)
        for name in ("numbers", "digests", "_matrix", "_lengths", "_spreads", "_changed"):
            setattr(self, name, _larger(getattr(self, name), rows))

    def row(self, number: int) -> int:
        """Return the row of a memory's vector, or -1."""
        return int(self._rows[number]) - 1 if number < len(self._rows) else -1

    def cosines(self, query: "array[float]") -> Floats:
        """Return the cosine of each row with a query, without the common part. Rows are in the order of `numbers`.
        Return an empty array if the query has another number of dimensions."""
        count = len(self)
        if len(query) != self._matrix.shape[1] or not count:
            return np.zeros(0, np.float32)
        self._compute_spreads()
        sought = _unit(query) - self._centre
        sought /= max(float(np.linalg.norm(sought)), 1e-6)
        scale = max(float(np.abs(sought).max()), 1e-6) / 127
        small = np.rint(sought / scale).astype(np.int8)
        products = np.asarray(simsimd.cdist(small[np.newaxis], self._matrix[:count], "dot"), np.float32)[0]
        found: Floats = products * np.float32(scale) / self._lengths[:count] - self._centre @ sought
        found *= self._spreads[:count]
        return found

    def moved(self, query: "array[float]", numbers: Sequence[int], weight: float) -> "array[float]":
        """Return a query's vector, moved towards the vectors of these memories."""
        rows = np.array([self.row(number) for number in numbers])
        towards = self._units(rows).mean(axis=0) - self._centre
        return array("f", (_unit(query) + weight * towards).astype(np.float32).tobytes())

    def _compute_spreads(self) -> None:
        """Compute 1 / |vector - centre| of the changed rows. If many have changed, compute the centre again."""
        count = len(self)
        if np.count_nonzero(self._changed) > _CHANGED * count:
            total = np.zeros(self._matrix.shape[1], np.float32)
            for part in _parts(np.arange(count)):
                total += self._units(part).sum(axis=0)
            self._centre, self._changed[:count] = total / np.float32(count + _ZEROS), True
        for part in _parts(np.flatnonzero(self._changed)):
            self._spreads[part] = 1 / np.maximum(np.linalg.norm(self._units(part) - self._centre, axis=1), 1e-6)
        self._changed[:] = False

    def _units(self, rows: NDArray[np.int64]) -> Floats:
        return self._matrix[rows].astype(np.float32) / self._lengths[rows, np.newaxis]


def _unit(query: "array[float]") -> Floats:
    """Return a query's vector with the length 1. The squares of float32 can be too small or too large for float32."""
    exact = np.frombuffer(query, np.float32).astype(np.float64)
    return (exact / max(float(np.linalg.norm(exact)), 1e-99)).astype(np.float32)


def _larger(old: Any, rows: int) -> Any:
    new = np.zeros((rows, *old.shape[1:]), old.dtype)
    new[: len(old)] = old
    return new


def _parts(rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]


def best(scores: Floats, wanted: int) -> NDArray[np.intp]:
    """Return the rows with the best scores, best first. Rows with equal scores are in their order."""
    rows = np.arange(len(scores))
    if len(scores) > wanted:
        least = np.partition(scores, len(scores) - wanted)[len(scores) - wanted]
        rows = np.flatnonzero(scores >= least)
    return rows[np.argsort(-scores[rows], kind="stable")][:wanted]
