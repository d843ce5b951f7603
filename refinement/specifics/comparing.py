"""Comparing texts by their specifics."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from refinement.specifics.dates import is_now, is_relative
from refinement.specifics.literals import quote_key
from refinement.specifics.names import Context, Naming, context_of
from refinement.specifics.negations import contradict, lost_negations, softly_negated
from refinement.specifics.opposites import Sides, replaced, sides_in
from refinement.specifics.page import Page, offers_of, own_marks, own_negations
from refinement.specifics.text import Mark, Specific, stem

_VALUES = frozenset({"number", "date", "time"})
# What says a small number without a numeral.
_STANDS_FOR = {
    "0": frozenset({"no", "none", "zero", "without"}),
    "1": frozenset({"a", "an", "one", "single", "only", "sole", "once"}),
    "2": frozenset({"both", "pair", "twice"}),
    "0.5": frozenset({"half"}),
    "1th": frozenset({"initial", "debut", "one", "start", "original"}),
    "2th": frozenset({"another", "runner"}),
}


# An identifier that goes on is another one: "/srv/app" isn't kept by "/srv/app/tmp", nor a URL by a longer one.
_LONGER_BEFORE = re.compile(r"[\w/.@~-][\w/.@~-]")
_LONGER_AFTER = re.compile(r"\w|[-/.@?&=#][\w/]")


class Told:
    """What a result tells, in the form questions are put to it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.offers = offers_of(page)
        self.folds = {word.fold for word in page.words}
        self.naming = Naming(page.named)
        self.dates = {mark.specific.key for mark in page.marks if mark.specific.kind == "date"}
        self.absolute = {key for key in self.dates if not is_relative(key)}
        self.quotable = f" {quote_key(page.plain)} "

    def keeps(self, one: Specific) -> bool:
        """Whether the text has the specific, in any form."""
        if one.kind == "name":
            return self.naming.count(one.key) > 0
        if one.kind == "quote":
            return f" {one.key} " in self.quotable
        if any(self._has(reading) for reading in one.key.split("|")):
            return True
        return one.kind not in _VALUES and _stands_in(self.page.plain, one.key, one.text)

    def _has(self, reading: str) -> bool:
        if reading in self.offers:
            return True
        if not _STANDS_FOR.get(reading, frozenset()).isdisjoint(self.folds):
            return True
        # "7 May and 3 June 2023": the year is said once for both.
        return len(reading) == 10 and reading[4] == "-" and "--" + reading[5:] in self.offers and self._has(reading[:4])


def _stands_in(plain: str, *forms: str) -> bool:
    """Whether one of the forms stands in the text to the letter, not as part of something longer."""
    for form in forms:
        at = plain.find(form)
        while at >= 0 and form:
            end = at + len(form)
            if not _LONGER_BEFORE.match(plain[max(0, at - 1) : at] + form[0]) and not _LONGER_AFTER.match(plain, end):
                return True
            at = plain.find(form, at + 1)
    return False


def lost(sources: Sequence[Page], result: Page) -> list[Specific]:
    """Each specific of the sources that the result lost, in their order."""
    told = Told(result)
    context = context_of((page.masked, page.loose) for page in sources)
    marks = [own_marks(page, context) for page in sources]
    absolute = {k for page in marks for m in page if m.specific.kind == "date" for k in m.specific.key.split("|")}
    resolves = bool(told.absolute - absolute)
    gone = [m.specific for page in marks for m in page if not _is_kept(m.specific, told, resolves, told.absolute)]
    gone += [one for page in marks for one in _thinned(page, told)]
    gone += _swapped_values(marks, told)
    gone += _swapped_names(sources, marks, context, told)
    gone += _lost_negations(sources, result)
    gone += replaced(*(_sides(pages) for pages in (sources, [result])))
    once: dict[tuple[str, str], Specific] = {}
    for one in gone:
        once.setdefault((one.kind, one.key), one)
    return list(once.values())


def _is_kept(one: Specific, told: Told, resolves: bool, absolute: Iterable[str]) -> bool:
    if told.keeps(one):
        return True
    if one.kind == "date" and is_relative(one.key):
        return resolves or (is_now(one.key) and bool(absolute))
    return False


def _thinned(marks: Sequence[Mark], told: Told) -> Iterator[Specific]:
    """Numbers one text gives to several things and the result to fewer: "3 cats and 3 dogs", "3 cats and dogs"."""
    counted: dict[str, set[str]] = {}
    for mark in marks:
        if mark.specific.kind == "number" and mark.follower:
            counted.setdefault(mark.specific.key, set()).add(mark.follower)
    for mark in marks:
        key = mark.specific.key
        if key not in {"1", "1th"} and len(counted.get(key, ())) > sum(told.offers[r] for r in key.split("|")) > 0:
            yield mark.specific


def _swapped_values(marks: Sequence[Sequence[Mark]], told: Told) -> Iterator[Specific]:
    """Values told less often than before while a new one of their kind turned up: that one was altered.

    Two sources may share a value; without this, altering it once would pass for as long as it stands once.
    """
    for kind in ("number", "date", "time"):
        before = [mark for page in marks for mark in page if mark.specific.kind == kind]
        if kind == "date" and any(is_relative(mark.specific.key) for mark in before):
            continue  # the new date may be what a relative one came to
        known = {key for page in marks for mark in page for key in _told_by(mark)}
        new = [m for m in told.page.marks if m.specific.kind == kind and known.isdisjoint(_told_by(m))]
        if new:
            counts = Counter(mark.specific.key for mark in before)
            yield from (
                mark.specific
                for mark in before
                if 0 < sum(told.offers[r] for r in mark.specific.key.split("|")) < counts[mark.specific.key]
            )


def _told_by(mark: Mark) -> set[str]:
    return {*mark.offers, *mark.specific.key.split("|")}


def _swapped_names(
    sources: Sequence[Page], marks: Sequence[Sequence[Mark]], context: Context, told: Told
) -> Iterator[Specific]:
    """The same for names: a new name in the result, and one of the sources' told less often."""
    known = {form for page in sources for word in page.words for form in (word.fold, word.stem)}
    new = [
        mark
        for mark in own_marks(told.page, context)
        if mark.specific.kind == "name" and not any(_is_known(part, known) for part in mark.specific.key.split())
    ]
    if not new:
        return
    before = [mark.specific for page in marks for mark in page if mark.specific.kind == "name"]
    counts = Counter(one.key for one in before)
    yield from (one for one in before if 0 < told.naming.count(one.key) < counts[one.key])


def _is_known(part: str, known: set[str]) -> bool:
    return part in known or stem(part) in known


def _lost_negations(sources: Sequence[Page], result: Page) -> Iterator[Specific]:
    before = [one for page in sources for one in own_negations(page)]
    if before:
        soft = frozenset().union(*(softly_negated(page.masked, page.loose) for page in sources))
        spares = softly_negated(result.masked, result.loose)
        yield from (one.specific for one in lost_negations(before, soft, result.negations, result.words, spares))


def _sides(pages: Sequence[Page]) -> Sides:
    found: Sides = {}
    for page in pages:
        negated = frozenset(scope for one in page.negations for scope in one.wide)
        for side, words in sides_in(page.loose, negated).items():
            found.setdefault(side, []).extend(words)
    return found


def names_it(item: Page, one: Specific) -> bool:
    """Whether an item of a `dropping` list means this specific."""
    if f" {quote_key(one.text)} " in f" {quote_key(item.plain)} " and quote_key(one.text):
        return True
    if one.kind == "negation":
        return any(set(one.key.split()[1:]) & other.wide for other in item.negations)
    return one.kind != "polarity" and Told(item).keeps(one)


def are_look_alikes(one: Page, other: Page) -> bool:
    if contradict(one.negations, other.negations, other.words) or contradict(other.negations, one.negations, one.words):
        return True
    gone, come = lost([one], other), lost([other], one)
    if any(each.kind == "polarity" for each in gone + come):
        return True
    return bool(gone and come) or _order(one, other) != _order(other, one)


def _order(one: Page, other: Page) -> list[list[str]]:
    """The names and the numbers both have, in the order of the one."""
    context = context_of((page.masked, page.loose) for page in (one, other))
    shared = {mark.specific.key for mark in own_marks(other, context)}
    own = [mark.specific for mark in own_marks(one, context) if mark.specific.key in shared]
    return [list(dict.fromkeys(each.key for each in own if each.kind == kind)) for kind in ("name", "number")]
