"""A text with everything recognised in it, ready to be compared."""

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace

from refinement.specifics.dates import dates_in
from refinement.specifics.literals import literals_in, quotes_in
from refinement.specifics.names import Context, context_of, names_in
from refinement.specifics.negations import Negation, negations_in
from refinement.specifics.quantities import compounded, digits_in, number_words_in
from refinement.specifics.text import MASK, Mark, Specific, Word, mask, tidy, words_of

_ADDRESS = re.compile(r"[@/_\\~]|\w\.\w")


@dataclass(frozen=True, slots=True)
class Page:
    plain: str
    shown: str
    masked: str
    words: tuple[Word, ...]  # of the whole text
    named: tuple[Word, ...]  # those that can name somebody: not the "ana" of ana@example.org
    loose: tuple[Word, ...]  # those in no literal, date or number
    marks: tuple[Mark, ...]  # literals, dates, times, numbers
    quotes: tuple[Mark, ...]
    negations: tuple[Negation, ...]


def read(text: str) -> Page:
    shown, plain = tidy(text)
    quotes = quotes_in(plain)
    marks, masked = literals_in(plain)
    every = words_of(plain)
    dates, masked = dates_in(masked, every)
    numbers = list(digits_in(masked))
    masked = mask(masked, numbers)
    words = [word for word in every if masked[word.start] != MASK and masked[word.end - 1] != MASK]
    spelt = list(number_words_in(masked, words))
    masked = mask(masked, spelt)
    loose = [word for word in words if masked[word.start] != MASK]
    addressless = mask(plain, [mark for mark in marks if _ADDRESS.search(mark.specific.text)])
    starts = [word.start for word in loose]
    numbers = compounded(plain, sorted([*numbers, *spelt], key=lambda mark: mark.start))
    counts = [_with_follower(mark, loose, starts) for mark in numbers]
    found = sorted([*marks, *dates, *counts], key=lambda mark: mark.start)
    return Page(
        plain,
        shown,
        masked,
        tuple(every),
        tuple(word for word in every if addressless[word.start] != MASK),
        tuple(loose),
        tuple(_as_shown(mark, plain, shown) for mark in found),
        tuple(_as_shown(mark, plain, shown) for mark in quotes),
        tuple(negations_in(masked, shown, words)),
    )


def _with_follower(mark: Mark, words: list[Word], starts: list[int]) -> Mark:
    at = bisect_left(starts, mark.end)
    follower = words[at].stem if at < len(words) and words[at].start - mark.end < 2 else ""
    return Mark(mark.start, mark.end, mark.specific, mark.offers, follower)


def _as_shown(mark: Mark, plain: str, shown: str) -> Mark:
    one = mark.specific
    text = one.text if plain is shown else shown[mark.start : mark.start + len(one.text)]
    return mark if text == one.text else replace(mark, specific=replace(one, text=text))


def own_marks(page: Page, context: Context | None = None) -> list[Mark]:
    """What a rewrite of this text must keep, but for negations: literals, dates, numbers, names, and whole quotes.

    What stands inside quotation marks belongs to its quote.
    """
    context = context or context_of([(page.masked, page.loose)])
    names = names_in(page.masked, page.shown, page.loose, context)
    inner = [mark for mark in (*page.marks, *names) if not _is_quoted(page, mark.start)]
    return sorted([*inner, *page.quotes], key=lambda mark: mark.start)


def own_negations(page: Page) -> list[Negation]:
    return [one for one in page.negations if not _is_quoted(page, one.start)]


def _is_quoted(page: Page, at: int) -> bool:
    return any(quote.start <= at < quote.end for quote in page.quotes)


def specifics_of(page: Page) -> tuple[Specific, ...]:
    found = [(mark.start, mark.specific) for mark in own_marks(page)]
    found += [(one.start, one.specific) for one in own_negations(page)]
    return tuple(specific for _, specific in sorted(found, key=lambda pair: pair[0]))


def offers_of(page: Page) -> Counter[str]:
    """How often the text tells each key, quotes or not."""
    return Counter(key for mark in page.marks for key in {*mark.offers, *mark.specific.key.split("|")[:1]})
