"""The search index of one silo's active memories."""

from array import array
from collections.abc import Callable, Iterator
from datetime import datetime
from heapq import nsmallest
from itertools import accumulate
from math import inf
from typing import NamedTuple

from memory.models import Layer
from memory.search.holdings import Holdings
from memory.search.query import Query, parse
from memory.search.ranking import DEMOTED_WEIGHT, RELATIVE_WEIGHT, SUPERSEDED_WEIGHT, Ranking, Terms, best_first
from memory.search.selection import EVERYTHING, Filters, readings, select
from memory.search.words import split, without_tails

# At most this many distinct words of a query are used for ranking. If there are more, the rarest words are used.
WORD_LIMIT = 64
# A single CJK character can mean thousands of terms. This is the most work for all such characters of a query. A term
# costs `_TERM` and one for each memory that has it. So these characters can mean 20,000 terms, if these are rare.
MOST_WORK = 1_000_000
_TERM = 50
_FIRST_LOOK = 50
_BOOSTED = 30
_LOOK_WITH_VECTORS = 200
# Filters remove some results. So at first, additional results are ranked: this number, or half the number of wanted
# results if that is more.
_SPARE = 16


class Hit(NamedTuple):
    """A result. `successor` is the memory that superseded it. If `is_match` is false, the query did not find it, and it
    is a result only because it is a successor."""

    number: int
    score: float
    successor: int | None = None
    is_match: bool = True


class Index(Holdings):
    """A full-text index of numbered documents.

    The stems in an index are unencrypted content. So an index is never stored or pickled. The words of a removed
    document do not stay in the index.

    If `searched_since` is not None, the index has no memories beneath with an earlier origin date.

    Searches may run concurrently. `extend` and `remove` need exclusive access.
    """

    searched_since: datetime | None = None

    def keep_newest(self, most: int) -> None:
        """Remove the oldest memories beneath, until the index has at most `most` memories."""
        if len(self) > most:
            beneath = [(h.origin, n) for n, h in self.by_number.items() if h.layer == Layer.BENEATH]
            for origin, number in nsmallest(len(self) - most, beneath):
                self.remove(number)
                self.searched_since = max(origin, self.searched_since or origin)

    def __reduce__(self) -> str:
        raise TypeError("A search index contains unencrypted content, so it cannot be pickled")

    def search(
        self,
        query: str | Query,
        filters: Filters = EVERYTHING,
        *,
        vector: "array[float] | None" = None,
        boost: Callable[[datetime], float] | None = None,
        limit: int = 10,
    ) -> list[Hit]:
        """Return the documents that match a query, best first. Documents with equal scores are sorted by number.

        Words are combined with OR. A document that contains more of the words has a higher score. A document must
        contain each `"phrase"` and must have each `tag:NAME`. A `-` before a word, a phrase or a tag excludes documents
        with this word, phrase or tag. All other text is taken literally. No query raises an error. A query without
        words and phrases lists all allowed documents, newest first, with score 0. A query that has only punctuation
        finds nothing.

        `vector` is the query's vector. With it, memories with a similar meaning are found too.

        `boost` is a function that takes the origin date of a document and returns a factor. The score of the document
        is multiplied by this factor. This happens only for the best results: `3 * limit` of them, or 30 if that is
        more. The score of a memory beneath is always lowered a little.
        """
        if limit < 1:
            return []
        parsed = parse(query) if isinstance(query, str) else query
        if not (parsed.text or any(map(str.strip, parsed.phrases))):
            return self._listed(parsed, filters, limit)
        looked_at = max(limit, _FIRST_LOOK) if boost is None else max(3 * limit, _BOOSTED)
        looked_at = max(looked_at, _LOOK_WITH_VECTORS) if vector else looked_at
        words = self._words(parsed)
        terms = self._terms(words)
        ranking = Ranking(self, terms, inf if parsed.until is None else parsed.until)
        ranked = self._best(ranking, parsed, filters, looked_at) if terms else []
        exact = [term for found in words.values() if len(found) == 1 for term in found]
        ordered = ranking.nearest_first(ranked, exact)
        if vector and self.vectors:
            from memory.search import meaning

            # The score of a memory that has each word of the query once.
            whole = sum(scale for term, scale in ranking.scales.items() if terms[term] == 1.0) or 1.0
            shares = {number: score / whole for score, number in ordered}
            ordered = meaning.Fusion(self, self.vectors, parsed, filters, shares).ranked(vector)
        weighed = [(score * self._weight(number, boost), number) for score, number in ordered]
        return [Hit(number, score) for score, number in nsmallest(limit, weighed, key=best_first)]

    def successor(self, number: int) -> int | None:
        """Return the memory that superseded a memory, directly or through others. It may be beneath itself, if it was
        demoted. Return None if no memory did, or if it was discarded. SQL, or the rollback of a single entry, can make
        a cycle of memories. Then each memory is visited once."""
        found, seen = None, {number}
        while (number := self.by_number[number].superseded_by or 0) in self.by_number and number not in seen:
            seen.add(number)
            found = number
        return found

    def origins(self, number: int) -> Iterator[int]:
        """Yield the sources of a memory, their sources, and so on, each once."""
        seen, waiting = {number}, [number]
        while waiting:
            for source in self.sources.get(waiting.pop(), set()) - seen:
                seen.add(source)
                waiting.append(source)
                yield source

    def matched(self, query: Query) -> set[int]:
        """Return the terms of a query that are used for ranking, without related words."""
        return set().union(*self._words(query).values())

    def _listed(self, query: Query, filters: Filters, limit: int) -> list[Hit]:
        by_number = self.by_number
        allowed = select(self, query, filters, None)
        numbers = sorted(by_number if allowed is None else allowed)
        # The sort is stable, so memories with equal dates stay sorted by number.
        numbers.sort(key=lambda number: by_number[number].origin, reverse=True)
        return [Hit(number, 0.0) for number in numbers[:limit]]

    def _weight(self, number: int, boost: Callable[[datetime], float] | None) -> float:
        holding, weight = self.by_number[number], 1.0
        if holding.layer == Layer.BENEATH:
            weight = SUPERSEDED_WEIGHT if holding.superseded_by in self.by_number else DEMOTED_WEIGHT
        return weight * (boost(holding.origin) if boost else 1.0)

    def _best(self, ranking: Ranking, query: Query, filters: Filters, wanted: int) -> list[tuple[float, int]]:
        """Return the best allowed memories as pairs (score, number). The result has at least `wanted` memories, unless
        fewer memories match.

        Most filters allow most memories. So the function first ranks all memories and then filters only the best ones,
        because this is faster.
        """
        if filters.any() and not query.restricts:
            most = wanted + max(_SPARE, wanted // 2)
            best = ranking.best(most)
            allow = filters.allowing()
            allowed = [(score, number) for score, number in best if allow(self.by_number[number])]
            if len(allowed) >= wanted or len(best) < most:
                return allowed
        return ranking.best(wanted, select(self, query, filters, ranking.scales))

    def _words(self, query: Query) -> dict[str, frozenset[int]]:
        """Return the words that are used for ranking, and the terms of each word. Stop words are used only if the query
        has no other words. Of single CJK characters, the first ones count (MOST_WORK)."""
        vocabulary = self.vocabulary
        words = dict.fromkeys(word for part in (query.text, *query.phrases) for word in without_tails(split(part)))
        telling = [word for word in words if not vocabulary.is_stop(word)]
        by_word: dict[str, frozenset[int]] = {}
        left = MOST_WORK
        for word in telling or words:
            by_word[word] = readings(vocabulary, word, left // _TERM)
            if len(by_word[word]) > 1:
                by_word[word], left = self._affordable(by_word[word], left)
        if len(by_word) <= WORD_LIMIT:
            return by_word
        kept = set(sorted(by_word, key=lambda word: self._commonness(by_word[word]))[:WORD_LIMIT])
        return {word: terms for word, terms in by_word.items() if word in kept}

    def _affordable(self, terms: frozenset[int], left: int) -> tuple[frozenset[int], int]:
        """Return the rarest of the terms, as many as `left` allows, and what is left after them."""
        postings = self.vocabulary.postings
        cost = _TERM * len(terms) + self._commonness(terms)[1]
        if cost <= left:
            return terms, left - cost
        rarest = sorted(terms, key=lambda term: (len(postings[term]), term))
        costs = accumulate(_TERM + len(postings[term]) for term in rarest)
        paid = [cost for cost in costs if cost <= left]
        return frozenset(rarest[: len(paid)]), left - max(paid, default=0)

    def _commonness(self, terms: frozenset[int]) -> tuple[bool, int]:
        """Return a sort key for a word that has these terms. Rare words come first. Words that are in no document come
        last."""
        return not terms, sum(len(self.vocabulary.postings[term]) for term in terms)

    def _terms(self, words: dict[str, frozenset[int]]) -> Terms:
        vocabulary = self.vocabulary
        relatives = (term for word in words if not vocabulary.is_stop(word) for term in vocabulary.relatives(word))
        return dict.fromkeys(relatives, RELATIVE_WEIGHT) | {term: 1.0 for found in words.values() for term in found}
