"""Names: capitalised words that don't owe the capital to their place.

At a sentence's opening every word is capitalised, and there stand most memories' subjects ("Caroline attended …").
Such a word is a name if it is one elsewhere in the sources, or if it is no common English word (`vocabulary`) and
nowhere written small.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from refinement.specifics.text import Mark, Specific, Word, listed, opens_sentence
from refinement.specifics.vocabulary import FUNCTION_WORDS, is_common

# Also ordinary words: written small, these are no sign of the name.
_NEEDS_CAPITAL = frozenset(
    listed(
        "will may mark rose grace hope art bill jack frank grant chase drew pat sue rob ray dean joy faith summer "
        "autumn june august april march dawn iris lily ivy jade pearl ruby amber penny sandy rusty rich josh miles"
    )
)
_GAP = re.compile(r"(?: |-|\. ?)")
# What follows a name that opens a sentence, and hardly "will", "may" or "art".
_ACTS = re.compile(r"'s\b|,|\s(?:and\s[A-Z]|is\b|was\b|has\b|had\b|does|did|will\b|can\b|[a-z]{2,}(?:[^su\W]s|ed)\b)")
_MOSTLY_CAPITALS = 0.6


@dataclass(slots=True)
class Context:
    """What a set of texts tells about its words: those capitalised mid-sentence, and those written small."""

    capitalised: set[str] = field(default_factory=set)
    small: set[str] = field(default_factory=set)


def context_of(pages: Iterable[tuple[str, Sequence[Word]]]) -> Context:
    context = Context()
    for plain, words in pages:
        for word in words:
            if word.text[0].islower():
                context.small.add(word.fold)
            elif word.text[0].isupper() and not opens_sentence(plain, word.start):
                context.capitalised.add(word.fold)
    return context


def names_in(plain: str, shown: str, words: Sequence[Word], context: Context) -> Iterator[Mark]:
    """Each run of capitalised words is one name: "Ana Petrova", "Counter-Strike"."""
    shouts = _shouts(words)
    run: list[Word] = []
    for word in words:
        if not run and word.text[0].islower():  # most words
            continue
        is_part = _is_name(plain, word, context, shouts, bool(run) and _adjoins(plain, run[-1], word))
        if run and not (is_part and _adjoins(plain, run[-1], word) and not _parts_run(run[-1], word)):
            yield from _mark(plain, shown, run)
            run = []
        if is_part:
            run.append(word)
    if run:
        yield from _mark(plain, shown, run)


def _shouts(words: Sequence[Word]) -> bool:
    capitals = sum(len(word.text) for word in words if word.text.isupper())
    return capitals > 12 and capitals > _MOSTLY_CAPITALS * sum(len(word.text) for word in words)


def _adjoins(plain: str, left: Word, right: Word) -> bool:
    return bool(_GAP.fullmatch(plain, left.end, right.start)) and (
        plain[left.end] != "." or len(left.text) == 1 or left.fold in {"dr", "mr", "mrs", "ms", "st"}
    )


def _parts_run(left: Word, right: Word) -> bool:
    """ "CEO Ana Meyer" may come back as "Ana Meyer, the CEO": an acronym is a name of its own."""
    return any(len(word.text) > 1 and word.text.isupper() for word in (left, right))


def _is_name(plain: str, word: Word, context: Context, shouts: bool, continues: bool) -> bool:
    if not word.text[0].isupper() or (word.fold in FUNCTION_WORDS and word.fold not in _NEEDS_CAPITAL):
        return _is_letter(plain, word, continues)
    if shouts:
        return not is_common(word.fold)
    if continues or not opens_sentence(plain, word.start):
        return True
    if len(word.text) > 1 and word.text.isupper():
        return not is_common(word.fold)
    if word.fold in context.capitalised or (word.fold in _NEEDS_CAPITAL and _ACTS.match(plain, word.end)):
        return True
    return len(word.text) > 1 and word.fold not in context.small and not is_common(word.fold)


def _is_letter(plain: str, word: Word, continues: bool) -> bool:
    """ "Plan A" and "Appendix I", though "a" and "I" are words."""
    return continues and len(word.text) == 1 and word.text.isupper() and not plain.startswith(" ", word.end)


def _mark(plain: str, shown: str, run: Sequence[Word]) -> Iterator[Mark]:
    parts = [word for word in run[:-1] if not (len(word.text) == 1 and plain.startswith(".", word.end))]
    key = " ".join(word.fold for word in [*parts, run[-1]])
    start, end = run[0].start, run[-1].end
    yield Mark(start, end, Specific("name", shown[start:end], key))


class Naming:
    """Where a text's words stand, for finding names in it."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words
        self.places: dict[str, list[int]] = {}
        for at, word in enumerate(words):
            self.places.setdefault(word.fold, []).append(at)
        self.joined: Counter[str] | None = None

    def count(self, key: str) -> int:
        """How often the name stands in the text, its words in a row."""
        parts = key.split()
        found = sum(self._stands(parts, at) for at in self.places.get(parts[0], ()))
        if found or len(parts) > 1:
            return found + len(self.places.get("".join(parts), ()) if len(parts) > 1 else ())
        return len(self.places.get(f"{key}s", ())) + self._compound(key)

    def _stands(self, parts: Sequence[str], at: int) -> bool:
        if len(parts) == 1 and parts[0] in _NEEDS_CAPITAL:
            return self.words[at].text[0].isupper()
        for part in parts[1:]:
            at += 1
            while at < len(self.words) and len(self.words[at].fold) == 1 and self.words[at].fold != part:
                at += 1
            if at >= len(self.words) or self.words[at].fold != part:
                return False
        return True

    def _compound(self, key: str) -> int:
        """ "DoorDash" may come back as "Door Dash"."""
        if self.joined is None:
            self.joined = Counter(left.fold + right.fold for left, right in pairwise(self.words))
        return self.joined[key]
