"""Select the memories that a query and filters allow. A query can have phrases, exclusions and tags. Filters can have
tags and metadata."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from itertools import chain
from math import inf

from memory.models import Kind, Layer
from memory.search.holdings import Holding, Holdings, holds_run, in_time, packed
from memory.search.query import Query
from memory.search.vocabulary import Vocabulary
from memory.search.words import is_cjk, name_key, split

MOST_SECONDS, LOCKED_SECONDS = 1.0, 0.4  # of CPU time, for a query with phrases; a session has locked the agent

_CHECKED = 256  # memories, before the time is read again

Phrase = Sequence[frozenset[int]]  # for each word of the phrase, the terms that the word can mean


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters for a search or a list. A filter that is None allows all memories.

    `since` and `until` are inclusive limits of the origin date.
    """

    kind: str | None = None
    layers: Collection[str] = ()  # no layers: a search looks in all of them, and a list has core and journal
    category: str | None = None
    project: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    # These two are only for a list, because a search finds no discarded memories.
    constitutional: bool | None = None
    discarded: bool | None = False
    # These are only for a search: tags, excluded categories, the allowed projects of each category, and whether notices
    # are included.
    tags: Sequence[str] = ()
    without: frozenset[str] = frozenset()
    projects: Mapping[str, frozenset[str]] | None = None
    with_notices: bool = True

    def any(self) -> bool:
        return self != EVERYTHING

    def see(self, holding: Holding) -> bool:
        """Whether the agent can see a memory here. This depends on its category and project, and not on the search."""
        return (
            holding.category not in self.without
            and (self.projects is None or holding.project in self.projects.get(holding.category, (holding.project,)))
            and (self.with_notices or not holding.is_notice)
        )

    def allowing(self) -> Callable[[Holding], bool]:
        """Whether a memory is allowed. The function is for one search: it has normalized the tags once."""
        return partial(self._allow, frozenset(map(name_key, self.tags)))

    def _allow(self, tags: frozenset[str], holding: Holding) -> bool:
        return (
            self.see(holding)
            and self.kind in (None, Kind.JOURNAL if holding.layer == Layer.JOURNAL else Kind.CORE)
            and (not self.layers or holding.layer in self.layers)
            and self.category in (None, holding.category)
            and self.project in (None, holding.project)
            and (self.since is None or holding.origin >= self.since)
            and (self.until is None or holding.origin <= self.until)
            and tags.issubset(holding.tags)
        )


EVERYTHING = Filters()


def readings(vocabulary: Vocabulary, word: str, most: int | None = None) -> frozenset[int]:
    """Return the terms that a word of a query can mean. A single CJK character can mean every term that begins with
    this character, or `most` of them."""
    if len(word) == 1 and is_cjk(word):
        return vocabulary.starting_with(word, most)
    term = vocabulary.find(word)
    return frozenset() if term is None else frozenset([term])


def select(holdings: Holdings, query: Query, filters: Filters, ranked: Iterable[int] | None) -> set[int] | None:
    """Return the memories that the query and the filters allow, or None if all memories are allowed.

    `ranked` can have the terms that are used for ranking. Memories that have none of these terms can be missing in the
    result. Raises SlowSearch.
    """
    until = time.thread_time() + MOST_SECONDS if query.until is None else query.until
    phrases, without = (_phrases(holdings.vocabulary, texts, until) for texts in (query.phrases, query.without))
    if not (query.restricts or filters.any()):
        return None
    numbers, by_number = list(_start(holdings, phrases, ranked, until)), holdings.by_number
    locked = inf if query.until is None else query.until  # only a session locks the agent
    if filters.any():
        allow = filters.allowing()
        numbers = [number for number in in_time(numbers, locked, _CHECKED) if allow(by_number[number])]
    if query.tags or query.without_tags:
        tags, no_tags = ({*map(name_key, names)} for names in (query.tags, query.without_tags))
        held = ((number, by_number[number].tags) for number in in_time(numbers, locked, _CHECKED))
        numbers = [number for number, its in held if tags.issubset(its) and no_tags.isdisjoint(its)]
    for phrase in in_time(phrases, until):
        numbers = _containing(holdings, phrase, numbers, until)
    allowed = set(numbers)
    for phrase in in_time(without, until):
        allowed.difference_update(_containing(holdings, phrase, allowed, until))
    return allowed


def _phrases(vocabulary: Vocabulary, texts: Iterable[str], until: float) -> list[Phrase]:
    found = cache(partial(readings, vocabulary))  # a character that is repeated has one set
    phrases = ([found(word) for word in in_time(split(text), until)] for text in texts)
    return [phrase for phrase in phrases if phrase]


def _start(holdings: Holdings, phrases: list[Phrase], ranked: Iterable[int] | None, until: float) -> Iterable[int]:
    """Return a small group of memories to check. All results are in this group."""
    words = set(chain.from_iterable(phrases))
    candidates = [_holding_any(holdings, word) for word in in_time(words, until)]
    if ranked is not None:
        candidates.append(_holding_any(holdings, set(ranked)))
    return min((found for found in candidates if found is not None), key=len, default=holdings.by_number)


def _holding_any(holdings: Holdings, terms: Set[int]) -> Sequence[int] | set[int] | None:
    """Return the memories that have one of the terms. Return None if it is faster to check all memories."""
    if any(term <= holdings.vocabulary.last_stop for term in terms):
        return None
    postings = list(holdings.numbers_with(terms).values())
    if len(postings) == 1:
        return postings[0]
    return None if sum(map(len, postings)) > len(holdings) else set[int]().union(*postings)


def _containing(holdings: Holdings, phrase: Phrase, numbers: Iterable[int], until: float) -> list[int]:
    """Return the memories among `numbers` that contain the phrase."""
    by_number = holdings.by_number
    if (some := _holding_any(holdings, min(phrase, key=len))) is not None:
        numbers = set(numbers).intersection(some)
        if len(phrase) == 1:
            return list(numbers)
    if all(len(word) == 1 for word in phrase):
        sought = packed(chain.from_iterable(phrase))
        return [number for number in in_time(numbers, until) if holds_run(by_number[number].packed, sought)]
    words: defaultdict[frozenset[int], int] = defaultdict(int)  # where each word stands in the phrase, as bits
    for place, word in enumerate(phrase):
        words[word] |= 1 << place
    places: defaultdict[int, int] = defaultdict(int)
    for word, bits in in_time(words.items(), until):
        for term in word:
            places[term] |= bits
    last = 1 << len(phrase) - 1
    return [number for number in in_time(numbers, until) if _contains(by_number[number].terms, places, last)]


def _contains(terms: Iterable[int], places: Mapping[int, int], last: int) -> bool:
    """Return whether the phrase is among the terms, in one pass (bitap). Its time does not grow with repetitions."""
    state = 0  # the places of the phrase that the terms so far can have reached
    for term in terms:
        state = (state << 1 | 1) & places.get(term, 0)
        if state & last:
            return True
    return False
