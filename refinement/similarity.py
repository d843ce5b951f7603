"""Finds memories that say the same thing in nearly the same words.

There are two relations between texts. Both are symmetric:

- *similar*: the texts have mostly the same words. Similar memories go into the same batch. This relation has no other
  use.
- *near duplicate*: the texts have the same words in the same order. Only punctuation, articles and adverbs such as
  "really" may differ. `builtin/dedupe` and the mode dedupe_only use this relation for edits. So two texts are not near
  duplicates if they differ in a number, a date, a name or a negation.

The results do not depend on the order of the texts. Nothing is cached between calls, because the texts are content.
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from rapidfuzz.distance import Indel

from memory.search.words import LONG_SERIES, nfkc

SIMILAR = 0.75
"""Two texts are similar if at least this share of all their words is in both. The order does not matter."""

# Limits of comparisons, so that the work for each memory is bounded.
# If a word is in at most _SHARED_FEW texts, compare each with each. For a more common word, compare each text only with
# the next _NEIGHBOURS texts.
_SHARED_FEW, _NEIGHBOURS = 12, 6
_RARE_LEAST, _RARE_MOST = 4, 16  # number of a text's rare words that are used to find similar texts


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_MARKS = _set(". ; : !")
_END = "|"  # what each mark becomes
_FILLER = _set("a an the that")
# Words that a fuller wording may add without changing the meaning. Words that change it are missing here: only, never,
# hardly, almost, usually, often, mostly, too, sometimes, now. After a negation ("not always"), every word matters.
_LIGHT = _set(
    "actually already also always and automatically basically certainly clearly completely definitely entirely even "
    "exactly freely fully herself himself immediately indeed itself just myself ourselves please quickly quite "
    "really simply so still strictly themselves then though very well whole"
)
_NEGATIONS = _set("no not never nor neither without hardly")
_SAME = {
    "&": "and",
    "can't": "can not",
    "cannot": "can not",
    "e-mail": "email",
    "i'm": "i am",
    "shan't": "shall not",
    "won't": "will not",
} | {f"{word}'s": f"{word} is" for word in ("it", "he", "she", "that", "there", "what", "who")}
_ENDINGS = (("n't", "not"), ("'re", "are"), ("'ve", "have"), ("'ll", "will"))
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS = {word: str(i) for i, word in enumerate(_UNITS.split())}
NUMBER_WORDS |= {word: str(20 + 10 * i) for i, word in enumerate(_TENS.split())}

_OPENER = re.compile(
    r"^\W*(?:(?:note|noted again|reminder|for the record|as (?:noted|said|mentioned) (?:before|earlier|above))\b[:,. ]*"
    r"|(?:note|remember) that\b|remember:)\s*",
    re.IGNORECASE,
)
# In scripts without spaces, each character is a word. A run of letters and digits keeps its inner signs ("09:45",
# "db-1", "1.8", "a@b.example"). Any other sign is a word of its own.
_CHARACTER = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_RUN = rf"[^\W{_CHARACTER}]+"
_TOKEN = re.compile(rf"[{_CHARACTER}]|(?:(?<![^\s(])[-+#@])?{_RUN}(?:[.,:'/@#&+-]{_RUN})*|[^\w\s]")
_SILENT = frozenset("\"'(),/[]{}*`_~“”«»…-")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "`": "'", "–": ";", "—": ";"})
_GROUPED_DIGITS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def _tokens(text: str) -> Iterator[str]:
    """The words and signs of a text, and `_END` at the end of each clause. Contractions get their full form. Number
    words become digits. Introductory words such as "Note:" are left out."""
    plain = _OPENER.sub("", nfkc(text).translate(_QUOTES))
    for token in _TOKEN.findall(_GROUPED_DIGITS.sub("", plain)):
        if token in _MARKS:
            yield _END
        elif token not in _SILENT:
            yield from _spelling(token)


def _spelling(token: str) -> list[str]:
    lower = token.casefold()
    if lower in _SAME:
        return _SAME[lower].split()
    for ending, full in _ENDINGS:
        if lower.endswith(ending):
            return [token[: -len(ending)], full]
    return [NUMBER_WORDS.get(lower, token)]


@dataclass(frozen=True, slots=True)
class _Wording:
    """The words of a text. `words` has the words in order. `light` counts the adverbs. Two near duplicates may have
    different adverbs."""

    words: tuple[str, ...]
    light: Counter[str]


def _wording(text: str) -> _Wording:
    words: list[str] = []
    light: Counter[str] = Counter()
    if LONG_SERIES.search(text):  # `nfkc` would cut it, so only an equal text is the same
        return _Wording((text,), light)
    previous = _END
    for token in _tokens(text):
        lower = token.casefold()
        if lower in _LIGHT and not (words and words[-1] in _NEGATIONS):
            light[lower] += 1
        elif lower not in _FILLER and token != _END:
            words.append(lower if previous == _END else token)  # inside a sentence, "Will" is a name
        previous = token
    return _Wording(tuple(words) or (text,), light)


def _bag(text: str) -> tuple[str, ...]:
    """All words of a text, sorted. If a text has no words, the result contains the text itself. So only an equal text
    matches it."""
    return tuple(sorted(word.casefold() for word in _tokens(text) if word != _END)) or (text,)


def covers(texts: Iterable[str], other: str) -> bool:
    """Whether a text is a near duplicate of `other` and has all adverbs of `other`. Then `other` can be deleted."""
    poorer = _wording(other)
    return any(fuller.words == poorer.words and poorer.light <= fuller.light for fuller in map(_wording, texts))


@dataclass(frozen=True, slots=True)
class Group:
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
    for i, wording in enumerate(wordings):
        alike[wording.words].append(i)
    groups = []
    for found in alike.values():
        fullest = max(found, key=lambda i: (wordings[i].light.total(), len(texts[i]), texts[i], -i))
        members = tuple(i for i in found if wordings[i].light <= wordings[fullest].light)
        if len(members) > 1:
            groups.append(Group(members, fullest))
    return sorted(groups, key=lambda group: group.members)


def clusters(texts: Sequence[str]) -> list[list[int]]:
    """Clusters of two or more similar texts. The members are positions in `texts`.

    Two texts are linked if their similarity is at least SIMILAR. The members of a cluster are linked
    directly or through other members. Texts are compared only if they share a rare word. Each text is compared with a
    limited number of other texts, and only its first 2,000 characters are compared. So the time is nearly proportional
    to the number of texts. In a large set of very similar texts, some links may be missed.
    """
    spelt = _encoded([_bag(text[:2_000]) for text in texts])
    distinct = sorted(set(spelt))
    links = _Links(len(distinct))
    for one, other in _candidates(distinct):
        low, high = sorted((links.root(one), links.root(other)))
        if low != high and Indel.normalized_similarity(distinct[one], distinct[other]) >= SIMILAR:
            links.parent[high] = low
    place = {text: i for i, text in enumerate(distinct)}
    found: defaultdict[int, list[int]] = defaultdict(list)
    for i, text in enumerate(spelt):
        found[links.root(place[text])].append(i)
    return [members for members in found.values() if len(members) > 1]


def _encoded(bags: Sequence[Sequence[str]]) -> list[str]:
    """Return one string for each bag of words. One character replaces each word. Words of several texts come first, the
    rarest at the start. Words that are in only one text come last.

    Strings can be compared many times faster than tuples.
    """
    spread = Counter(word for bag in bags for word in set(bag))
    order = sorted(spread, key=lambda word: (spread[word] == 1, spread[word], word))
    code = {word: chr(rank % (sys.maxunicode + 1)) for rank, word in enumerate(order)}
    return ["".join(sorted(code[word] for word in bag)) for bag in bags]


def _candidates(distinct: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The pairs of texts to compare, as positions in `distinct`. `distinct` is sorted, so the result does not depend on
    the order of the input."""
    for holders in _postings(distinct).values():
        if len(holders) <= _SHARED_FEW:
            yield from combinations(holders, 2)
        else:
            for step in range(1, _NEIGHBOURS + 1):
                yield from zip(holders, holders[step:], strict=False)


def _postings(distinct: Sequence[str]) -> dict[str, list[int]]:
    """Map each word to the positions of some texts: those in which the word is one of the rarest words."""
    postings: defaultdict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(distinct):
        words = list(dict.fromkeys(text))
        for word in words[: min(_RARE_MOST, max(_RARE_LEAST, len(words) // 2))]:
            postings[word].append(i)
    return postings


class _Links:
    """The numbers from 0 to size-1. At first, each number is a set of its own. Sets can be joined: the root of one set
    becomes the parent of the other root. The smallest number of a set is its root."""

    def __init__(self, size: int) -> None:
        self.parent = list(range(size))

    def root(self, i: int) -> int:
        while self.parent[i] != i:
            self.parent[i] = i = self.parent[self.parent[i]]
        return i
