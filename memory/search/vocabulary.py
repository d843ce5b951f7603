"""The terms of one silo. Each stem of a word has a number. This number is called a term."""

from itertools import islice

from memory.search.words import is_cjk, stemmer, stop_words

# This word is put before each tag. No text contains it, so a phrase cannot match the end of a text and a tag together.
BETWEEN = ""

_LONGEST_STEMMED = 40
_FAMILY_LETTERS = 4  # related stems begin with this many equal letters, or with more
_LONGEST_ENDING = 4  # the longer of two related stems has at most this many letters more
_MOST_RELATIVES = 8
_LARGEST_FAMILY = 2_000  # a larger family consists of generated names, not of related words


class Vocabulary(dict[str, int]):
    """Maps words to terms. `vocabulary[word]` adds the word if it is unknown. `find` never adds a word.

    Term 0 is the separator of tags. The terms from 1 to `last_stop` are the stop words. Stop words are not stemmed.
    `drop` removes a term that no memory has any more. So no word of a removed memory stays in the vocabulary.
    """

    def __init__(self, language: str) -> None:
        super().__init__()
        self._stem = stemmer(language)
        self._spellings: dict[int, list[str]] = {}  # term → its words, except the stem itself
        self._families: dict[str, set[str]] = {}
        self._free: list[int] = []
        self.terms: dict[str, int] = {}
        self.stems: list[str] = [""]
        self.postings: list[list[int]] = [[]]
        self[BETWEEN] = 0
        for word in sorted(stop_words(language)):
            self[word] = self._number(word)
        self.last_stop = len(self.stems) - 1
        self.long_letters = 0

    def __missing__(self, word: str) -> int:
        stem = self.stem(word)
        if (term := self.terms.get(stem)) is None:
            term = self._number(stem)
            self.terms[stem] = term
            if key := _family(stem):
                self._families.setdefault(key, set()).add(stem)
            if len(stem) > _LONGEST_STEMMED:
                self.long_letters += len(stem)
        self[word] = term
        if word != stem:
            self._spellings.setdefault(term, []).append(word)
        return term

    def _number(self, stem: str) -> int:
        if self._free:
            term = self._free.pop()
            self.stems[term] = stem
            return term
        self.stems.append(stem)
        self.postings.append([])
        return len(self.stems) - 1

    def stem(self, word: str) -> str:
        # Longer "words" are hashes or keys, which have no stem. A stem is never empty.
        return word if len(word) > _LONGEST_STEMMED else self._stem(word) or word

    def find(self, word: str) -> int | None:
        """Return the term of a word, or None if the word is unknown."""
        term = self.get(word)
        return self.terms.get(self.stem(word)) if term is None else term

    def is_stop(self, word: str) -> bool:
        return 0 < self.get(word, 0) <= self.last_stop

    def forget_spellings(self, term: int) -> None:
        """Remove all words that are mapped to this term. A word that memories still contain is added again at its next
        use."""
        for word in (self.stems[term], *self._spellings.pop(term, ())):
            if self.get(word) == term:  # a stem can itself be a word with another stem: agreed → agre, agre → agr
                del self[word]

    def drop(self, term: int) -> None:
        """Remove a term that no memory has any more."""
        self.forget_spellings(term)
        stem = self.stems[term]
        del self.terms[stem]
        if key := _family(stem):
            self._families[key].discard(stem)
            if not self._families[key]:
                del self._families[key]
        if len(stem) > _LONGEST_STEMMED:
            self.long_letters -= len(stem)
        self.stems[term] = ""
        self.postings[term] = []
        self._free.append(term)

    def starting_with(self, character: str, most: int | None = None) -> frozenset[int]:
        """Return the terms that begin with this CJK character, or `most` of them. Such a term is a pair of characters,
        or the character alone."""
        return frozenset(self.terms[stem] for stem in islice(self._families.get(character, ()), most))

    def relatives(self, word: str) -> list[int]:
        """Return terms that are related to the word. The most frequent terms come first. Two words are related if their
        stems are equal except for a few more letters at the end of one stem, as in counsel and counselor."""
        stem = self.stem(word)
        family = () if is_cjk(stem) else self._families.get(_family(stem), ())
        if len(family) > _LARGEST_FAMILY:
            return []
        close = [other for other in family if other != stem and _related(stem, other)]
        close.sort(key=lambda other: (-len(self.postings[self.terms[other]]), other))
        return [self.terms[other] for other in close[:_MOST_RELATIVES]]


def _family(stem: str) -> str:
    if len(stem) >= _FAMILY_LETTERS:
        return stem[:_FAMILY_LETTERS] if stem.isalpha() else ""
    return stem[0] if is_cjk(stem) else ""


def _related(stem: str, other: str) -> bool:
    short, long = sorted((stem, other), key=len)
    return len(long) - len(short) <= _LONGEST_ENDING and long.startswith(short)
