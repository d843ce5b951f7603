"""Negations, and what they negate.

A bare count can't tell "does not eat meat" from "does not smoke", and a merge may rightly say two of them with one
"not" ("doesn't eat meat or drink"). So a negation is compared by its scope: the stems of the words it governs.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from refinement.specifics.text import Specific, Word, listed
from refinement.specifics.vocabulary import FUNCTION_WORDS

_HARD = frozenset(
    listed(
        "not never no none nobody nothing nowhere neither nor without cannot cant dont doesnt didnt isnt wasnt wont "
        "nicht kein keine keinen keiner keinem nie niemals ohne jamais nunca"
    )
)
_SOFT = frozenset(
    listed(
        "avoid refus declin reject lack fail unabl dislik hat stop quit ceas forbid forbidden prohibit ban disabl "
        "exclud except miss rather instead only abstain against skip drop remov most"
    )
)
_SOFT_AFTER = frozenset(listed("free absent missing forbidden banned excluded disabled prohibited"))
_PREFIXES = ("un", "in", "im", "dis", "non", "ir", "il")
_ENDS_SCOPE = frozenset(
    listed("but although though however while whereas because since yet so if unless until when where who which")
)
_AUXILIARY = frozenset(listed("is was has are were will can does did had would should could must"))
_SUBJECTS = frozenset(listed("he she they it we i you his her their its our my this that there"))
_BEING = frozenset(listed("be been is are was were isn't aren't wasn't weren't"))
_BREAK = re.compile(r"[.;!?:()\n]")
_IDIOMS = {("not", "only"), ("no", "doubt"), ("not", "just"), ("no", "matter"), ("no", "wonder"), ("can't", "wait")}
_SOURCE_SCOPE, _RESULT_SCOPE = 4, 14  # content words
_REACH = 40  # words


class Negation(NamedTuple):
    start: int
    specific: Specific
    scope: tuple[str, ...]
    wide: frozenset[str]


def is_negator(word: Word) -> bool:
    return word.fold in _HARD or word.fold.endswith("n't")


def negations_in(plain: str, shown: str, words: Sequence[Word]) -> list[Negation]:
    return [
        _negation(plain, shown, words, at)
        for at, word in enumerate(words)
        if is_negator(word) and not _is_idiom(words, at)
    ]


def _is_idiom(words: Sequence[Word], at: int) -> bool:
    fold = words[at].fold
    after = words[at + 1].fold if at + 1 < len(words) else ""
    before = words[at - 1].fold if at else ""
    return (fold, after) in _IDIOMS or (before, fold) in {("or", "not"), ("why", "not"), ("if", "not")}


def _negation(plain: str, shown: str, words: Sequence[Word], at: int) -> Negation:
    governed = list(_governed(plain, words, at)) or list(_preceding(plain, words, at))
    stems = tuple(word.stem for word in governed)
    wide = {*stems, *(word.stem for word in _preceding(plain, words, at) if _is_of_being(words, at))}
    start, end = words[at].start, max([words[at].end, *(word.end for word in governed[:2])])
    if end > words[at].end and plain[start - 1 : start].isalpha():
        start = words[at].start
    key = "not " + " ".join(stems[:_SOURCE_SCOPE])
    return Negation(start, Specific("negation", shown[start:end], key.strip()), stems[:_SOURCE_SCOPE], frozenset(wide))


def _governed(plain: str, words: Sequence[Word], at: int) -> Iterator[Word]:
    """The content words after a negator, to the end of its clause."""
    count = 0
    for here in range(at + 1, min(len(words), at + _REACH)):
        word = words[here]
        if _BREAK.search(plain, words[here - 1].end, word.start) or word.fold in _ENDS_SCOPE:
            return
        if is_negator(word):
            if (words[at].fold, word.fold) == ("neither", "nor"):
                continue
            return
        if word.fold == "and" and _opens_clause(words, here + 1):
            return
        if word.fold not in FUNCTION_WORDS:
            yield word
            count += 1
            if count == _RESULT_SCOPE:
                return


def _opens_clause(words: Sequence[Word], at: int) -> bool:
    """Whether a finite verb or a new subject follows an "and": there the negation no longer holds."""
    if at >= len(words):
        return True
    word = words[at]
    if word.fold in _AUXILIARY or word.fold in _SUBJECTS or word.text[0].isupper():
        return True
    return len(word.fold) > 3 and word.fold.endswith(("s", "ed")) and not word.fold.endswith("ss")


def _is_of_being(words: Sequence[Word], at: int) -> bool:
    """ "Meat is not eaten", "meat must never be eaten": what is denied stands before."""
    around = {word.fold for word in words[max(0, at - 1) : at + 2]}
    return not _BEING.isdisjoint(around)


def _preceding(plain: str, words: Sequence[Word], at: int) -> Iterator[Word]:
    for here in range(at - 1, max(-1, at - 5), -1):
        if words[here].fold == "and" or _BREAK.search(plain, words[here].end, words[here + 1].start):
            return
        if words[here].fold not in FUNCTION_WORDS and not is_negator(words[here]):
            yield words[here]


def softly_negated(plain: str, words: Sequence[Word]) -> frozenset[str]:
    """Stems governed by "avoids", "refuses", "instead of", followed by "free", or with a negating prefix themselves."""
    found: set[str] = set()
    for at, word in enumerate(words):
        if word.stem in _SOFT_AFTER:
            found.update(before.stem for before in words[max(0, at - 2) : at])
        elif word.stem in _SOFT:
            found.update(governed.stem for governed in _governed(plain, words, at))
        if word.stem.startswith(_PREFIXES):
            found.update(word.stem[len(p) :] for p in _PREFIXES if word.stem.startswith(p))
    return frozenset(found)


def lost_negations(
    sources: Sequence[Negation],
    soft: frozenset[str],
    kept: Sequence[Negation],
    result: Sequence[Word],
    spares: frozenset[str],
) -> list[Negation]:
    """Negations of the sources the result has none for; `soft` and `spares` are what each side denies softly.

    One is answered by what it governs, being denied in any way. One whose words the result states is lost. Where the
    result has none of the words, the verb may have changed ("never smokes", "no cigarettes"): then a negation of the
    result that answers nothing else is given the benefit of the doubt.
    """
    denied = spares.union(*(one.wide for one in kept))
    affirmed = {word.stem for word in result} - denied
    answered, gone, open_ones = set(soft), {}, {}
    for one in sources:
        if not denied.isdisjoint(one.scope) or (kept and not one.scope):
            answered.update(one.scope)
        elif _affirms(one, affirmed):
            gone[one.specific.key] = one
        else:
            open_ones[one.specific.key] = one
    spare = sum(one.wide.isdisjoint(answered) for one in kept)
    return [*gone.values(), *list(open_ones.values())[spare:]]


def contradict(one: Sequence[Negation], other: Sequence[Negation], words: Sequence[Word]) -> bool:
    """Whether what `one` negates is affirmed by the text of `words`, whose own negations are `other`."""
    negated = frozenset().union(*(negation.wide for negation in other))
    affirmed = {word.stem for word in words} - negated
    return any(
        negated.isdisjoint(each.scope) and ((each.scope[:1] and each.scope[0] in affirmed) or _affirms(each, affirmed))
        for each in one
    )


def _affirms(negation: Negation, affirmed: set[str]) -> bool:
    shared = sum(stem in affirmed for stem in negation.scope)
    return shared > 0 and 2 * shared >= len(negation.scope)
