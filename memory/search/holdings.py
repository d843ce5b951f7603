"""The data of a search index. For each memory, this data has the terms in order and the metadata for filters, but no
text."""

import gc
import time
from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, TypeVar

from memory.errors import SlowSearch
from memory.search.vocabulary import BETWEEN, Vocabulary
from memory.search.words import name_key, split

if TYPE_CHECKING:  # it loads numpy, which only search by meaning needs
    from memory.search.vectors import Vectors

Item = TypeVar("Item")

# Each step processes this many documents, or documents with this many characters, before the next step. If each
# document went through all steps alone, indexing would take 50 % more time. More characters would take much RAM.
_BATCH, _CHARACTERS = 1_000, 500_000

# Sizes in bytes, measured with tracemalloc for memories of 5 to 200 words (CPython 3.11 and 3.13).
_PER_MEMORY = 280
TERM_BYTES = 4
_FEW = 2  # stop words
_PER_POSTING = 12
_PER_TERM = 330
_PER_TAG, _PER_TAG_CHARACTER = 60, 2


@dataclass(frozen=True, slots=True)
class Document:
    """A memory that is added to an index. The `repr` of a document does not show its content, so that logs never
    contain content."""

    number: int
    text: str = field(repr=False)
    tags: tuple[str, ...] = field(repr=False)
    origin: datetime
    layer: str
    category: str
    project: str
    is_notice: bool = False
    superseded_by: int | None = None
    digest: int = 0  # of its text; a vector from another text does not count


def short(digest: bytes) -> int:
    """Return a short form of the keyed digest of a text."""
    return int.from_bytes(bytes(digest)[:8], "big")


def packed(terms: Iterable[int]) -> bytes:
    """Pack the terms into bytes. The order of the terms does not change. Each term takes four bytes. Unlike an array,
    bytes need no garbage collection."""
    return array("I", terms).tobytes()


def holds_run(held: bytes, sought: bytes) -> bool:
    """Return whether the terms in `sought` occur directly one after another in `held`."""
    place = held.find(sought)
    # The bytes can also match in the middle of a term. Such a match does not count.
    while place >= 0 and place % TERM_BYTES:
        place = held.find(sought, place + 1)
    return place >= 0


def in_time(items: Iterable[Item], until: float, every: int = 1) -> Iterator[Item]:
    """Yield the items until the thread has used this much CPU time. Raises SlowSearch. The time is read once for
    `every` items, because this takes longer than to check one memory."""
    for place, item in enumerate(items):
        if place % every == 0 and time.thread_time() > until:
            raise SlowSearch
        yield item


@dataclass(slots=True)
class Holding:
    """The indexed data of one memory."""

    packed: bytes
    tags: tuple[str, ...]
    origin: datetime
    layer: str
    category: str
    project: str
    is_notice: bool
    superseded_by: int | None

    @property
    def terms(self) -> "array[int]":
        return array("I", self.packed)


def _tag_bytes(tags: tuple[str, ...]) -> int:
    return sum(_PER_TAG + _PER_TAG_CHARACTER * len(tag) for tag in tags)


def _fingerprint(document: Document) -> int:
    """Return a hash of the exact text and tags. The hash is valid only in this process."""
    return hash((document.text, document.tags))


class Holdings:
    """The memories of one index. For each term that is not a stop word, there is a sorted list of the memories that
    contain the term. `language` is the name of a Snowball stemmer. A word of another language matches only its exact
    form."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.digests = array("Q")  # number → `Document.digest`
        self.vectors: Vectors | None = None  # also of memories that are not in the index now
        self._reset()

    def _reset(self) -> None:
        self.vocabulary = Vocabulary(self.language)
        self.by_number: dict[int, Holding] = {}
        self.fingerprints = array("q")  # number → `_fingerprint`
        self.sources: dict[int, set[int]] = {}  # memory → the memories beneath that it directly supersedes
        self.lengths = array("I")  # number → how many distinct terms the memory has, without stop words
        self.repeats: dict[int, dict[int, int]] = {}  # term → memory → how often it has the term, if more than once
        self.total_length = 0
        self._positions = self._tag_bytes = 0
        self._highest = -1

    def __len__(self) -> int:
        return len(self.by_number)

    def extend(self, documents: Iterable[Document]) -> None:
        """Add documents. A document replaces an earlier document with the same number. This is fastest if the
        documents are in ascending order of their numbers."""
        batch: dict[int, Document] = {}
        characters = 0
        # Garbage collection would find nothing, but would take a fifth of the time.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            for document in documents:
                batch[document.number] = document
                characters += len(document.text) + sum(map(len, document.tags))
                if len(batch) >= _BATCH or characters >= _CHARACTERS:
                    self._add(batch)
                    batch, characters = {}, 0
            self._add(batch)
        finally:
            if was_enabled:
                gc.enable()

    def _add(self, batch: dict[int, Document]) -> None:
        for number in batch.keys() & self.by_number.keys():
            if self.fingerprints[number] == _fingerprint(batch[number]):  # only metadata has changed
                self._hold(batch.pop(number), self.by_number[number].packed)
            else:
                self.remove(number)
        words: list[str] = []
        ends = []
        for document in batch.values():
            words += split(document.text)
            for tag in document.tags:
                words += [BETWEEN, *split(tag)]
            ends.append(len(words))
        terms = list(map(self.vocabulary.__getitem__, words))
        all_packed = packed(terms)
        start = 0
        for document, end in zip(batch.values(), ends, strict=True):
            self._list(document.number, terms[start:end])
            self._hold(document, all_packed[start * TERM_BYTES : end * TERM_BYTES])
            start = end
        self._positions += len(terms)

    def _hold(self, document: Document, held: bytes) -> None:
        self._release(document.number)
        tags, place = tuple(map(name_key, document.tags)), (document.layer, document.category, document.project)
        others = document.is_notice, document.superseded_by
        self.by_number[document.number] = Holding(held, tags, document.origin, *place, *others)
        self.fingerprints.extend([0] * (document.number + 1 - len(self.fingerprints)))
        self.fingerprints[document.number] = _fingerprint(document)
        if document.digest:
            self.digests.extend([0] * (document.number + 1 - len(self.digests)))
            self.digests[document.number] = document.digest
        self._tag_bytes += _tag_bytes(tags)
        if document.superseded_by is not None:
            self.sources.setdefault(document.superseded_by, set()).add(document.number)

    def _release(self, number: int) -> Holding | None:
        holding = self.by_number.pop(number, None)
        self._tag_bytes -= _tag_bytes(holding.tags) if holding else 0
        if holding is not None and holding.superseded_by is not None:
            self.sources[holding.superseded_by].discard(number)
        return holding

    def _list(self, number: int, terms: list[int]) -> None:
        last_stop, postings = self.vocabulary.last_stop, self.vocabulary.postings
        content = [term for term in terms if term > last_stop]
        distinct = set(content)
        put: Callable[[list[int], int], None] = list.append if number > self._highest else insort
        self._highest = max(number, self._highest)
        for term in distinct:
            put(postings[term], number)
        self.lengths.extend([0] * (number + 1 - len(self.lengths)))
        length = self.lengths[number] = len(distinct)
        self.total_length += length
        for term, times in Counter(content).items() if length < len(content) else ():
            if times > 1:
                self.repeats.setdefault(term, {})[number] = times

    def remove(self, number: int) -> None:
        """Remove a memory. Also remove all words and stems that no other memory contains. An unknown number is
        ignored."""
        if (holding := self._release(number)) is None:
            return
        if not self.by_number:
            self._reset()
            return
        self.total_length -= self.lengths[number]
        self.lengths[number] = 0
        terms = holding.terms
        self._positions -= len(terms)
        for term in set(terms):
            if term > self.vocabulary.last_stop:
                self._remove_posting(term, number)

    def _remove_posting(self, term: int, number: int) -> None:
        numbers = self.vocabulary.postings[term]
        del numbers[bisect_left(numbers, number)]
        if repeated := self.repeats.get(term):
            repeated.pop(number, None)
            if not repeated:
                del self.repeats[term]
        if numbers:
            self.vocabulary.forget_spellings(term)
        else:
            self.vocabulary.drop(term)

    def numbers_with(self, terms: Iterable[int], until: float = inf) -> dict[int, list[int]]:
        """Map each term to the sorted numbers of the memories that contain the term. Stop words are looked for in the
        newest memories first, until the thread has used this much CPU time."""
        postings, last_stop = self.vocabulary.postings, self.vocabulary.last_stop
        found = {term: postings[term] for term in terms if term > last_stop}
        return found | self._look_for({term for term in terms if term <= last_stop}, until)

    def _look_for(self, stop_terms: set[int], until: float) -> dict[int, list[int]]:
        # Half of all words are stop words, but queries rarely need them. So there is no list of the memories that
        # contain a stop word, and all memories are searched for it. One word is found fastest in the bytes, but many
        # are found in one pass.
        found: dict[int, list[int]] = {term: [] for term in stop_terms}
        few = {term: packed((term,)) for term in stop_terms} if len(stop_terms) <= _FEW else {}
        with suppress(SlowSearch):
            for number, holding in in_time(reversed(self.by_number.items()) if found else (), until):
                if few:
                    held: Iterable[int] = [term for term, one in few.items() if holds_run(holding.packed, one)]
                else:
                    held = stop_terms.intersection(holding.terms)
                for term in held:
                    found[term].append(number)
        return {term: sorted(numbers) for term, numbers in found.items()}

    @property
    def bytes_used(self) -> int:
        """Return an estimate of the RAM that the index uses, in bytes. The estimate is computed in constant time. Its
        error is at most about 25 %."""
        vocabulary = self.vocabulary
        return (
            _PER_MEMORY * len(self)
            + (TERM_BYTES + 1) * self._positions
            + _PER_POSTING * self.total_length
            + _PER_TERM * len(vocabulary.stems)
            + vocabulary.long_letters
            + self._tag_bytes
            + (self.vectors.bytes_used if self.vectors else 0)
        )
