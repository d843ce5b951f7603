"""The index of one silo's active memories, in this process only."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest

from memory.search.holdings import Document, Holdings
from memory.search.query import Query, parse
from memory.search.ranking import RELATIVE_WEIGHT, Ranking, Terms, best_first
from memory.search.selection import EVERYTHING, Filters, readings, select
from memory.search.words import split, without_tails

# Of a longer query, so many distinct words are ranked by: the rarest.
WORD_LIMIT = 64
_FIRST_LOOK = 50
_FAVOURED = 30
# How many more than wanted are ranked at first, for filters to take away; or half as many again.
_SPARE = 16


@dataclass(frozen=True, slots=True)
class Hit:
    number: int
    score: float


class Index:
    """A full-text index of documents by number, with the statistics of these documents alone.

    It holds no text, but what it holds (stems in order) is content all the same: it is never written or pickled, and
    of a removed document nothing is left that no other document holds. `language` is the name of a Snowball stemmer;
    words of other languages are matched as they are written.

    Searches may run at the same time; `extend` and `remove` need the index to themselves.
    """

    def __init__(self, language: str = "english") -> None:
        self._holdings = Holdings(language)

    def __len__(self) -> int:
        return len(self._holdings)

    def __reduce__(self) -> str:
        raise TypeError("A search index is content in clear and is not pickled")

    @property
    def bytes_used(self) -> int:
        """An estimate of the memory held (bytes, within about a quarter), in constant time."""
        return self._holdings.bytes_used

    def extend(self, documents: Iterable[Document]) -> None:
        """Adds documents, each in the place of an earlier one of its number; fastest in ascending order of number."""
        self._holdings.extend(documents)

    def remove(self, number: int) -> None:
        """Forgets a document; a number that is not there is ignored."""
        self._holdings.remove(number)

    def search(
        self,
        query: str | Query,
        filters: Filters = EVERYTHING,
        *,
        favour: Callable[[datetime], float] | None = None,
        limit: int = 10,
    ) -> list[Hit]:
        """The documents that answer a query, best first, equal scores by number.

        Words are ORed and ranked; `"a phrase"` must be there, its words in order; `-word` must not; `tag:NAME` is a
        tag the document has. Anything else is literal text: no string raises. An empty query, or one of tags and
        exclusions alone, lists what the filters leave, newest first, score 0; one of nothing but signs finds nothing.

        `favour`: what a score is multiplied by, for an origin date. It orders anew the best of
        all by score: three times as many as wanted, 30 at least.
        """
        if limit < 1:
            return []
        asked = parse(query) if isinstance(query, str) else query
        if asked.text or any(map(str.strip, asked.phrases)):
            return self._ranked(asked, filters, limit, favour)
        return self._listed(asked, filters, limit)

    def _listed(self, asked: Query, filters: Filters, limit: int) -> list[Hit]:
        by_number = self._holdings.by_number
        allowed = select(self._holdings, asked, filters, None)
        numbers = sorted(by_number if allowed is None else allowed)
        # The sort keeps the order of equals also in reverse, so equal dates stay in order of number.
        numbers.sort(key=lambda number: by_number[number].origin, reverse=True)
        return [Hit(number, 0.0) for number in numbers[:limit]]

    def _ranked(
        self, asked: Query, filters: Filters, limit: int, favour: Callable[[datetime], float] | None
    ) -> list[Hit]:
        words = self._words(asked)
        terms = self._terms(words)
        if not terms:
            return []
        ranking = Ranking(self._holdings, terms)
        looked_at = max(limit, _FIRST_LOOK) if favour is None else max(3 * limit, _FAVOURED)
        ranked = self._best(ranking, asked, filters, looked_at)
        exact = [term for found in words.values() if len(found) == 1 for term in found]
        ordered = ranking.nearest_first(ranked, exact)
        if favour is not None:
            by_number = self._holdings.by_number
            favoured = [(score * favour(by_number[number].origin), number) for score, number in ordered]
            ordered = nsmallest(limit, favoured, key=best_first)
        return [Hit(number, score) for score, number in ordered[:limit]]

    def _best(self, ranking: Ranking, asked: Query, filters: Filters, wanted: int) -> list[tuple[float, int]]:
        """At least the `wanted` best of the allowed (score, number).

        Most filters let most memories through: then the best of all, filtered, are quicker had than all, filtered, and
        their best. They are the same ones.
        """
        if filters.any() and not asked.restricts:
            most = wanted + max(_SPARE, wanted // 2)
            best = ranking.best(most)
            allowed = [(score, number) for score, number in best if filters.allow(self._holdings.by_number[number])]
            if len(allowed) >= wanted or len(best) < most:
                return allowed
        return ranking.best(wanted, select(self._holdings, asked, filters, ranking.terms))

    def _words(self, asked: Query) -> dict[str, set[int]]:
        """The words to rank by, with their terms: without stop words, unless there are no others."""
        vocabulary = self._holdings.vocabulary
        said = dict.fromkeys(word for part in (asked.text, *asked.phrases) for word in without_tails(split(part)))
        telling = [word for word in said if not vocabulary.is_stop(word)]
        words = {word: readings(vocabulary, word) for word in telling or said}
        if len(words) <= WORD_LIMIT:
            return words
        kept = set(sorted(words, key=lambda word: self._commonness(words[word]))[:WORD_LIMIT])
        return {word: terms for word, terms in words.items() if word in kept}

    def _commonness(self, terms: set[int]) -> tuple[bool, int]:
        """Sorts the rarest words first, and after all of them those that no document holds."""
        return not terms, sum(len(self._holdings.vocabulary.postings[term]) for term in terms)

    def _terms(self, words: dict[str, set[int]]) -> Terms:
        vocabulary = self._holdings.vocabulary
        relatives = (term for word in words if not vocabulary.is_stop(word) for term in vocabulary.relatives(word))
        terms: Terms = dict.fromkeys(relatives, RELATIVE_WEIGHT)
        terms.update((term, 1.0) for found in words.values() for term in found)
        return terms
