"""Rank memories by BM25. A memory gets a small bonus if words of the query are near each other in its text."""

import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from heapq import nlargest
from itertools import pairwise
from math import inf, log

from memory.search.holdings import Holdings

# These values were chosen with the five LoCoMo ledgers (tests/bench/search_bench.py). The exact values matter little:
# if one changes by half, recall at 1, 5, 10 or 20 falls by less than 0.01. K1 and B are lower than the usual 1.2 and
# 0.75, because a memory is a single fact: repetition and length say little. A bonus for recent memories lowered recall
# at 1, so there is no such bonus.
K1 = 0.4
B = 0.3
RELATIVE_WEIGHT = 0.5
NEAR_WEIGHT = 0.5
# These were chosen with tests/bench/survival_bench.py. A superseded memory comes after its successor in any case. A
# demoted memory has no successor, so a core memory that matches nearly as well comes first: it may be the correction.
SUPERSEDED_WEIGHT = 0.98
DEMOTED_WEIGHT = 0.8
NEAR_WORDS = 5

# Nearness reorders only this many of the best memories. The number is fixed, so that a larger limit only adds results.
_REORDERED = 50
# Only this many words of a memory are checked for nearness, and this many places of each word of the query. Without the
# second limit, 64 words can have thousands of places in each of 50 long memories.
_LOOKED_AT = 4_096
_MOST_PLACES = 100

Terms = dict[int, float]


class Ranking:
    """Scores memories by a query's terms. `terms` maps each term to its weight.

    Each term adds one part to the score. The parts are always added in the same order, so that equal memories have
    exactly the same score. Rare terms come first. Equally rare terms are in order of their stems. When the thread has
    used the CPU time `until`, the other terms are left out.
    """

    def __init__(self, holdings: Holdings, terms: Terms, until: float = inf) -> None:
        self._holdings, self._until = holdings, until
        self._numbers = holdings.numbers_with(terms, until)
        self._mean = mean = max(holdings.total_length / max(len(holdings), 1), 1.0)
        self._once = cache(lambda length: _saturated(1, length / mean))  # the part of a term that occurs once
        order = sorted(terms, key=lambda term: (len(self._numbers[term]), holdings.vocabulary.stems[term]))
        self.scales = {term: terms[term] * self._rarity(term) for term in order}

    def _rarity(self, term: int) -> float:
        frequency = len(self._numbers[term])
        return log(1 + (len(self._holdings) - frequency + 0.5) / (frequency + 0.5))

    def best(self, wanted: int, allowed: Collection[int] | None = None) -> list[tuple[float, int]]:
        """Return the best allowed memories as pairs (score, number), best first. The result has at least `wanted`
        memories, unless fewer memories match.

        Memories with equal scores are sorted by number.
        """
        scores = self._scores(wanted, allowed)
        if len(scores) > 4 * wanted:
            floor = _nth(scores, wanted)
            scores = {number: score for number, score in scores.items() if score >= floor}
        return sorted(((score, number) for number, score in scores.items()), key=best_first)

    def _scores(self, wanted: int, allowed: Collection[int] | None) -> dict[int, float]:
        scores: dict[int, float] = {}
        among = allowed
        left = sum(self._bound(term) for term in self.scales)
        for term, scale in self.scales.items():
            if scores and time.thread_time() > self._until:
                break  # the rest of the words are the most common ones
            numbers = self._numbers[term]
            # If the remaining terms cannot bring a new memory among the best, only the best are scored for these terms.
            if wanted <= len(scores) < 2 * len(numbers):
                floor = _nth(scores, wanted)
                if among is scores or left < floor:
                    among = scores = {number: score for number, score in scores.items() if score + left >= floor}
            self._add(scores, term, _within(numbers, among), scale)
            left -= self._bound(term)
        return scores

    def _add(self, scores: dict[int, float], term: int, numbers: Iterable[int], scale: float) -> None:
        lengths, once, known = self._holdings.lengths, self._once, scores.get
        repeats = self._holdings.repeats.get(term, {})
        for number in numbers:
            if number in repeats:
                part = _saturated(repeats[number], lengths[number] / self._mean)
            else:
                part = once(lengths[number])
            scores[number] = known(number, 0.0) + scale * part

    def _bound(self, term: int) -> float:
        """Return an upper limit: no memory gets a higher score for this term. The limit includes a margin for rounding
        errors."""
        most = max(self._holdings.repeats.get(term, {0: 1}).values())
        return self.scales[term] * _saturated(most, 0.0) * 1.000001

    def nearest_first(self, ranked: list[tuple[float, int]], words: list[int]) -> list[tuple[float, int]]:
        """Reorder the best of the ranked memories. A memory moves up if neighbouring words of the query are near each
        other in the memory."""
        pairs = list({frozenset(pair): pair for pair in pairwise(words) if pair[0] != pair[1]}.values())
        if not pairs:
            return ranked
        first = [(score + self._nearness(number, pairs), number) for score, number in ranked[:_REORDERED]]
        return [*sorted(first, key=best_first), *ranked[_REORDERED:]]

    def _nearness(self, number: int, pairs: list[tuple[int, int]]) -> float:
        places = _places(self._holdings.by_number[number].terms[:_LOOKED_AT], pairs)
        return sum(
            NEAR_WEIGHT * min(self._rarity(one), self._rarity(other)) / gap
            for one, other in pairs
            if (gap := _gap(places.get(one, ()), places.get(other, ()))) <= NEAR_WORDS
        )


def _saturated(times: int, relative_length: float) -> float:
    return times * (K1 + 1) / (times + K1 * (1 - B + B * relative_length))


def _within(numbers: list[int], among: Collection[int] | None) -> Iterable[int]:
    if among is None:
        return numbers
    if len(among) * 8 < len(numbers):
        return [number for number in among if _holds(numbers, number)]
    return [number for number in numbers if number in among]


def _holds(numbers: list[int], number: int) -> bool:
    place = bisect_left(numbers, number)
    return place < len(numbers) and numbers[place] == number


def _nth(scores: dict[int, float], wanted: int) -> float:
    return nlargest(wanted, scores.values())[-1]


def best_first(ranked: tuple[float, int]) -> tuple[float, int]:
    return -ranked[0], ranked[1]


def _places(terms: Iterable[int], pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    wanted = {term for pair in pairs for term in pair}
    places: dict[int, list[int]] = {}
    for place, term in enumerate(terms):
        if term in wanted:
            found = places.setdefault(term, [])
            if len(found) < _MOST_PLACES:
                found.append(place)
    return places


def _gap(ones: Sequence[int], others: Sequence[int]) -> float:
    """Return the smallest distance between a place in `ones` and a place in `others`. Both lists are sorted."""
    if not ones or not others:
        return inf
    return min(abs(one - others[place]) for one in ones for place in _neighbours(others, one))


def _neighbours(places: Sequence[int], one: int) -> tuple[int, int]:
    place = bisect_left(places, one)
    return max(place - 1, 0), min(place, len(places) - 1)
