"""Finds memories that say the same thing in nearly the same words.

There are two relations between texts. Both are symmetric, and do not depend on the order of the texts:

- *similar*: the texts have mostly the same letters in the same words. Similar memories go into the same batch, and the
  briefing names them.
- *near duplicate*: the texts have the same words in the same order. Only punctuation, articles and adverbs such as
  "really" may differ. `builtin/dedupe` and the mode dedupe_only use this relation for edits. So two texts are not near
  duplicates if they differ in a number, a date, a name or a negation.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rapidfuzz import fuzz

from memory.search.words import LONG_SERIES, nfkc, split

SIMILAR = 75
"""Two texts are similar if at least this percentage of their sorted words is equal."""
_COMPARED = 2_000  # characters of each text
MOST_SECONDS = 10.0  # of the comparison of all texts
_RARE = 8  # words of a text that lead to similar texts
_NEIGHBOURS = 12  # texts with such a word that are compared with a text


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ARTICLES = _set("a an the that")
# Words that a fuller text may add without changing the meaning. Words that change it are missing here: only, never,
# hardly, almost, usually, often, mostly, too, sometimes, now. After a negation ("not always"), every word matters.
_LIGHT = _set(
    "actually already also always and automatically basically certainly clearly completely definitely entirely even "
    "exactly freely fully herself himself immediately indeed itself just myself ourselves please quickly quite "
    "really simply so still strictly themselves then though very well whole"
)
_NEGATIONS = _set("no not never nor neither without hardly")
_SPELLINGS = [
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"\A\W*(?:(?:note|remember|reminder)(?: that|:)|as (?:noted|said) (?:before|earlier),)\s", ""),
        (r"\bcan(?:not|['’]t)\b", "can not"),
        (r"\b(is|are|was|were|do|does|did|has|have|had|should|would|could|must)n['’]t\b", r"\1 not"),
        (r"\b(it|that|there|he|she)['’]s\b", r"\1 is"),
    )
]
_SENTENCE = re.compile(r"(?:\A|[.;:!–—]\s)\W{0,30}\w")  # a limit: otherwise the time grows with the square
# In scripts without spaces, each character is a word. A run of letters and digits keeps its inner signs ("09:45",
# "db-1", "1.8", "a@b.example"). Punctuation is left out. Any other sign is a word of its own.
_CHARACTER = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_RUN = rf"[^\W{_CHARACTER}]+"
_WORD = re.compile(
    rf"[{_CHARACTER}]|(?:(?<![^\s(])[-+#@])?{_RUN}(?:[.,:'’/@#&+-]{_RUN})*|[^\w\s.;:!\"'(),/\[\]{{}}*`_~“”«»‘’…–—-]"
)


def _wording(text: str) -> tuple[tuple[str, ...], Counter[str]]:
    """The words of a text in order, and its adverbs, in which near duplicates may differ."""
    words: list[str] = []
    light: Counter[str] = Counter()
    if LONG_SERIES.search(text):  # `nfkc` would cut it, so only an equal text is the same
        return (text,), light
    plain = nfkc(text)
    for pattern, replacement in _SPELLINGS:
        plain = pattern.sub(replacement, plain)
    plain = _SENTENCE.sub(lambda start: start[0].casefold(), plain)  # inside a sentence, "Will" is a name
    for word in _WORD.findall(plain):
        if word in _LIGHT and not (words and words[-1] in _NEGATIONS):
            light[word] += 1
        elif word not in _ARTICLES:
            words.append(word)
    return tuple(words) or (text,), light


def covers(texts: Iterable[str], other: str) -> bool:
    """Whether a text is a near duplicate of `other` and has all adverbs of `other`. Then `other` can be deleted."""
    words, light = _wording(other)
    return any(these == words and light <= more for these, more in map(_wording, texts))


class Group(NamedTuple):
    """A group of two or more near duplicates. The text `fullest` covers all members."""

    members: tuple[int, ...]
    fullest: int


def near_groups(texts: Sequence[str]) -> list[Group]:
    """Groups of near duplicates. The members are positions in `texts`. No text is in two groups. The groups are ordered
    by their first members.

    Of the texts with the same words, the text with the most adverbs is the fullest. If a text has an adverb that is
    missing in the fullest text, the text belongs to no group.
    """
    wordings = [_wording(text) for text in texts]
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, (words, _) in enumerate(wordings):
        alike[words].append(i)
    groups = []
    for found in alike.values():
        fullest = max(found, key=lambda i: (wordings[i][1].total(), len(texts[i]), texts[i], -i))
        members = tuple(i for i in found if wordings[i][1] <= wordings[fullest][1])
        if len(members) > 1:
            groups.append(Group(members, fullest))
    return sorted(groups, key=lambda group: group.members)


def clusters(texts: Sequence[str]) -> list[list[int]]:
    """Clusters of two or more similar texts. The members are positions in `texts`. Two members are similar to each
    other, or linked by other members.

    A text is compared only with a few texts that have one of its rarest words. So the time is nearly proportional to
    the number of texts. In a large set of very similar texts, and after MOST_SECONDS, some links may be missed.
    """
    until = time.monotonic() + MOST_SECONDS
    spelt = [" ".join(sorted(split(text[:_COMPARED])))[: 3 * _COMPARED] or text for text in texts]
    distinct = sorted(set(spelt))
    first = list(range(len(distinct)))  # a similar text that comes earlier, or the text itself

    def root(i: int) -> int:
        while first[i] != i:
            first[i] = i = first[first[i]]
        return i

    for one, other in _candidates(distinct):
        if time.monotonic() > until:
            break
        low, high = sorted((root(one), root(other)))
        if low != high and fuzz.ratio(distinct[one], distinct[other], score_cutoff=SIMILAR):
            first[high] = low
    place = {text: i for i, text in enumerate(distinct)}
    found: defaultdict[int, list[int]] = defaultdict(list)
    for i, text in enumerate(spelt):
        found[root(place[text])].append(i)
    return [members for members in found.values() if len(members) > 1]


def _candidates(distinct: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The pairs of texts to compare, as positions in `distinct`: texts that share one of their rarest words."""
    words = [set(text.split()) for text in distinct]
    spread = Counter(word for found in words for word in found)
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for i, found in enumerate(words):
        shared = (word for word in found if spread[word] > 1)
        for word in sorted(shared, key=lambda word: (spread[word], word))[:_RARE]:
            holders[word].append(i)
    for texts in holders.values():
        for step in range(1, _NEIGHBOURS + 1):
            yield from zip(texts, texts[step:], strict=False)
