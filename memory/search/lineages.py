"""Search in all layers. A lineage is a merged memory and its sources, or a memory and its earlier texts."""

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from memory.search.index import Hit, Index
from memory.search.query import Query, parse
from memory.search.selection import MOST_SECONDS, Filters

# A successor that has this share of a memory's words says the same. In honest merges, the median is 0.82.
SAME = 0.8


def find(
    index: Index, query: str | Query, filters: Filters, *, seconds: float = MOST_SECONDS, **options: Any
) -> list[Hit]:
    """Search an index. If a quoted phrase matches nothing, search for its words. Both have `seconds` of CPU time."""
    parsed = replace(parse(query) if isinstance(query, str) else query, until=time.thread_time() + seconds)
    hits = index.search(parsed, filters, **options)
    if not hits and parsed.phrases:
        parsed = replace(parsed, text=" ".join((parsed.text, *parsed.phrases)), phrases=())
        hits = index.search(parsed, filters, **options)
    return hits


def with_successors(index: Index, hits: Iterable[Hit], filters: Filters, limit: int) -> list[Hit]:
    """Put the successor of each superseded memory in front of it, so that no corrected fact is read without its
    correction. If the agent cannot see the successor here, the memory is left out. Return at most `limit` hits."""
    found: dict[int, Hit] = {}
    for hit in hits:
        successor, room = index.successor(hit.number), limit - len(found)
        if successor is not None:
            if not filters.see(index.by_number[successor]) or not room:
                continue
            found.setdefault(successor, Hit(successor, hit.score, is_match=room == 1))
        if len(found) < limit:
            found.setdefault(hit.number, Hit(hit.number, hit.score, successor))
    return list(found.values())


def without_repetitions(index: Index, hits: Iterable[Hit], query: Query, filters: Filters) -> list[Hit]:
    """Leave out hits that repeat another memory of their lineage. Of a memory and its successor, the one with more of
    the query's words per word stays:

    - A memory is left out if one of its sources, or of their sources, has more of them. The source brings its successor
      back.
    - A source is replaced by its successor if the successor has at least as many of them, and says the same.
    - Of two sources of one memory, the one that has all words of the other stays.
    """
    matched, last_stop, allow = index.matched(query), index.vocabulary.last_stop, filters.allowing()

    @cache
    def words(number: int) -> frozenset[int]:
        return frozenset(term for term in index.by_number[number].terms if term > last_stop)

    @cache
    def value(number: int) -> float:
        return len(matched.intersection(words(number))) / max(len(index.by_number[number].terms), 1)

    def is_dearer(number: int) -> bool:
        return any(value(n) > value(number) and allow(index.by_number[n]) for n in index.origins(number))

    def is_same(number: int, successor: int) -> bool:
        kept = words(number) & words(successor)
        return value(successor) >= value(number) and len(kept) >= SAME * len(words(number))

    def is_part(number: int) -> bool:
        place, mine = places[number], words(number)
        others = index.sources.get(index.by_number[number].superseded_by or 0, set()) & places.keys() - {number}
        return any(mine < words(one) or (mine == words(one) and places[one] < place) for one in others)

    hits = list(hits)
    places = {hit.number: place for place, hit in enumerate(hits)}
    found: dict[int, Hit] = {}
    for hit in hits:
        successor = index.successor(hit.number)
        if successor is not None and is_same(hit.number, successor):
            found.setdefault(successor, Hit(successor, hit.score))
        elif not is_dearer(hit.number) and not is_part(hit.number):
            found.setdefault(hit.number, hit)
    return list(found.values())
