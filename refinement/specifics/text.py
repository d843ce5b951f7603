"""How a text is read before anything in it is recognised: characters, words, sentences."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


def listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


# Invisible characters could split a number in two for us and for nobody who reads the text.
_INVISIBLE = dict.fromkeys([0x00AD, 0x2060, 0xFEFF, *range(0x200B, 0x2010)])
# One for one, so that a place in the plain text is the same place in the text as written.
_PLAIN = str.maketrans("‘’‚‛′´“”„‟″«»‐‑‒–−—―", '\'\'\'\'\'\'"""""""-----;;')
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_ABBREVIATIONS = frozenset(listed("mr mrs ms dr prof st vs jr sr no nr approx ca dept e.g i.e a.m p.m"))
_BEFORE_OPENING = frozenset(" \t\"'([*_`")
MASK = "\x1f"
_VOWELS = frozenset("aeiou")


@dataclass(frozen=True, slots=True, repr=False)
class Specific:
    """One thing a rewrite may not lose.

    `text` is as written (in Unicode's compatibility form); `key` the normal form, with `|` between its readings
    where the text allows more than one ("05/07/2023").
    """

    kind: str  # number|date|time|quote|name|url|email|identifier|negation|polarity
    text: str
    key: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A specific at its place, and the keys a reader of that passage also gets (a date tells its year)."""

    start: int
    end: int
    specific: Specific
    offers: tuple[str, ...] = ()
    follower: str = ""  # the stem of the word a number counts


class Word(NamedTuple):
    start: int
    end: int
    text: str
    fold: str
    stem: str


def tidy(text: str) -> tuple[str, str]:
    """The text as shown to people, and the same with typographic quotes and dashes made plain."""
    if text.isascii():
        return text, text
    shown = unicodedata.normalize("NFKC", text.translate(_INVISIBLE))
    return shown, shown.translate(_PLAIN)


def mask(plain: str, marks: Iterable[Mark]) -> str:
    """The text with passages taken out of sight, every place in it kept."""
    pieces, at = [], 0
    for mark in sorted(marks, key=lambda mark: mark.start):
        if mark.end > at:
            start = max(at, mark.start)
            pieces += [plain[at:start], MASK * (mark.end - start)]
            at = mark.end
    return "".join([*pieces, plain[at:]]) if pieces else plain


def stem(word: str) -> str:
    """Just enough to bring "likes", "liked" and "liking" together; no linguistics."""
    if len(word) < 4:
        return word
    last = word[-1]
    if last not in "sdgey" and last != word[-2]:  # most words
        return word
    if last in "sdg":
        word = _without_suffix(word)
    if len(word) > 3 and word[-1] in "ey":
        return word[:-1] + ("i" if word[-1] == "y" else "")
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in _VOWELS
    return word[:-1] if doubled else word


def _without_suffix(word: str) -> str:
    if word.endswith(("ss", "us", "is")):
        return word
    if word.endswith(("ies", "ied")):
        return word[:-2]
    for suffix in ("ing", "ed", "es", "s"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)]
    return word


def words_of(plain: str) -> list[Word]:
    """Every word, its possessive left out; "doesn't" stays whole, for the negation."""
    found = []
    for match in _WORD.finditer(plain):
        text, start = match[0], match.start()
        if text[-1] in "sS":
            text = _singular(text)
        fold = text.casefold()
        found.append(Word(start, start + len(text), text, fold, stem(fold)))
    return found


def _singular(text: str) -> str:
    if text.endswith(("'s", "'S")):
        text = text[:-2]
    return text[:-1] if len(text) > 2 and text[-1] == "s" and text[:-1].isupper() else text  # APIs


def opens_sentence(plain: str, start: int) -> bool:
    """Whether the word at `start` would be capitalised whatever it is: opening a sentence, a line, a list item."""
    at = start - 1
    while at >= 0 and plain[at] in _BEFORE_OPENING:
        at -= 1
    if at < 0 or plain[at] in "\n!?:\r":
        return True
    if plain[at] == ".":
        return not _ends_abbreviation(plain, at)
    return "(" in plain[at + 1 : start] or (plain[at] in "-+>#" and (at == 0 or plain[at - 1] == "\n"))


def _ends_abbreviation(plain: str, dot: int) -> bool:
    start = dot
    while start > 0 and dot - start < 8 and (plain[start - 1].isalpha() or plain[start - 1] == "."):
        start -= 1
    before = plain[start:dot]
    return before.casefold() in _ABBREVIATIONS or (len(before) == 1 and before.isupper())
