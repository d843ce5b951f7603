"""Which memories say the same thing in nearly the same words.

Two relations of different strictness, both symmetric, deterministic and blind to the order of their input:

- *similar*: much the same words. Used to put memories into the same batch; it decides nothing.
- *near duplicate*: the same words but for punctuation, filler, an adverb, or one phrase moved within its
  sentence, and no other number, date, name or negation. One may stand for the other, so an edit may rest on it.

The second errs towards "different": a missed duplicate costs some tokens, a wrong merge costs a memory.
Nothing is cached between calls: what these functions read is some agent's content.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from rapidfuzz.distance import Indel

from refinement import specifics

SIMILAR = 0.75
"""Least similarity (0 to 1) for two memories to belong in the same batch."""

# How far a comparison reaches, so that the work per memory is bounded whatever the texts look like.
_SHARED_FEW = 12  # a word in no more texts than this: compare each with each
_NEIGHBOURS = 6  # a more common word: only with the next few in alphabetical order of their words
_RARE_LEAST, _RARE_MOST = 4, 16  # rare words of a text by which others are looked for
_GROUP_MOST = 12  # members of a group of near duplicates
_GROUPS_TRIED = 4  # open groups a text is held against


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_MARKS = _set(". ; : !")
_JOINTS = _set("and |")
_FILLER = _set("a an the that very")
# Words a fuller wording may have and another lack. Not among them, because they turn a statement: only, never,
# hardly, almost, usually, often, mostly, too, sometimes, now, temporarily and their like; nor any of these just
# after a negation ("not always").
_LIGHT = _set(
    "actually already also always automatically basically certainly clearly completely definitely entirely even "
    "exactly freely fully herself himself immediately indeed itself just myself ourselves please quickly quite "
    "really simply so still strictly themselves then though well whole"
)
_NEGATIONS = _set("no not never nor neither without hardly")
# Words that begin a phrase which may stand at either end of its sentence.
_LEADS = _set(
    "about after at before between by during every for from if in into on over since through to under until when "
    "whenever while with within without"
)
_SAME = {
    "&": "and",
    "can't": "can not",
    "cannot": "can not",
    "e-mail": "email",
    "e-mails": "emails",
    "each": "every",
    "i'm": "i am",
    "okay": "ok",
    "percent": "%",
    "shan't": "shall not",
    "telephone": "phone",
    "won't": "will not",
} | {f"{word}'s": f"{word} is" for word in ("it", "he", "she", "that", "there", "what", "who")}
_ENDINGS = (("n't", " not"), ("'re", " are"), ("'ve", " have"), ("'ll", " will"))
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBERS = {word: str(i) for i, word in enumerate(_UNITS.split())}
_NUMBERS |= {word: str(20 + 10 * i) for i, word in enumerate(_TENS.split())}

_OPENER = re.compile(
    r"^\W*(?:(?:note|noted again|reminder|for the record|as (?:noted|said|mentioned) (?:before|earlier|above))\b[:,. ]*"
    r"|(?:note|remember) that\b|remember:)\s*",
    re.IGNORECASE,
)
_RELATIVE = re.compile(r"\b(?:that|which|who) (?:is|are|was|were)\b")
# Scripts written without spaces count by the character; a run of letters and digits keeps its inner signs
# ("09:45", "db-1", "1.8", "a@b.example"); any other sign is a word of its own.
_CHARACTER = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_RUN = rf"[^\W{_CHARACTER}]+"
_TOKEN = re.compile(rf"[{_CHARACTER}]|(?:(?<![^\s(])[-+#@])?{_RUN}(?:[.,:'/@#&+-]{_RUN})*|[^\w\s]")
_SILENT = frozenset("\"'(),/[]{}*`_~“”«»…-")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "`": "'", "–": ";", "—": ";"})
_GROUPED_DIGITS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def _tokens(text: str) -> Iterator[str]:
    """Words, signs and marks of a text in one spelling: case, contractions, numerals, openers such as "Note:"."""
    plain = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    plain = _RELATIVE.sub(" ", _GROUPED_DIGITS.sub("", _OPENER.sub("", plain).casefold()))
    for token in _TOKEN.findall(plain):
        if token in _MARKS:
            yield "|"
        elif token not in _SILENT:
            yield from _spelling(token)


def _spelling(token: str) -> list[str]:
    for ending, full in _ENDINGS:
        if token.endswith(ending) and token not in _SAME:
            return (token.removesuffix(ending) + full).split()
    return _SAME.get(token, _NUMBERS.get(token, token)).split()


@dataclass(frozen=True, slots=True)
class _Wording:
    """A text taken apart: `words` of substance in order, `kept` the same with joints in place, `light` the adverbs."""

    text: str
    kept: tuple[str, ...]
    words: tuple[str, ...]
    light: Counter[str]


def _wording(text: str) -> _Wording:
    kept: list[str] = []
    light: Counter[str] = Counter()
    for word in _tokens(text):
        if word in _LIGHT and not (kept and kept[-1] in _NEGATIONS):
            light[word] += 1
        elif word not in _FILLER:
            kept.append(word)
    return _Wording(text, tuple(kept), tuple(word for word in kept if word not in _JOINTS), light)


def similar(a: str, b: str) -> float:
    """The share of words that two texts have in common, whatever their order: 0 to 1."""
    return Indel.normalized_similarity(_bag(a), _bag(b))


def _bag(text: str) -> tuple[str, ...]:
    """All words of a text, sorted; the text itself when it has none, so that only equals match."""
    return tuple(sorted(word for word in _tokens(text) if word != "|")) or (text,)


def stand_in(text: str, others: Iterable[str]) -> int | None:
    """The position of the first of `others` that keeps all `text` says (so `text` may go), or None."""
    going = _wording(text)
    left = (_wording(other) for other in others)
    return next((i for i, other in enumerate(left) if _agree(going, other) and _keeps(other, going)), None)


def _near(a: _Wording, b: _Wording) -> bool:
    return _agree(a, b) and (_keeps(a, b) or _keeps(b, a))


def _agree(a: _Wording, b: _Wording) -> bool:
    """Whether two texts say nothing different, though one may say less."""
    return a.text == b.text or (_same_words(a, b) and not specifics.differ(a.text, b.text))


def _keeps(fuller: _Wording, other: _Wording) -> bool:
    """Whether `fuller`, one of two that agree, has every adverb and every specific of `other`."""
    if fuller.text == other.text:
        return True
    return other.light <= fuller.light and not specifics.missing([fuller.text, other.text], fuller.text)


def _same_words(a: _Wording, b: _Wording) -> bool:
    if not a.words or not b.words:
        return False  # signs only: nothing to compare but the texts themselves
    return a.words == b.words or _one_phrase_moved(a.kept, b.kept)


def _one_phrase_moved(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether `b` is `a` with two neighbouring phrases of one sentence exchanged ("On Mondays we meet").

    One of them must open with a preposition or the like, and neither be a lone word: "over email Slack" and
    "only" in another place are other statements made of the same words.
    """
    if Counter(a) != Counter(b):
        return False
    start = _common(a, b)
    end = _common(a[start:][::-1], b[start:][::-1])
    left, right = a[start : len(a) - end], b[start : len(b) - end]
    return any(
        left[cut:] + left[:cut] == right and (left[0] in _LEADS or left[cut] in _LEADS) and "|" not in left
        for cut in range(2, len(left) - 1)
    )


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the common beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@dataclass(frozen=True, slots=True)
class Group:
    """Two or more texts, every pair of them near duplicates; `fullest` is the one that can stand for all."""

    members: tuple[int, ...]
    fullest: int


def near_groups(texts: Sequence[str]) -> list[Group]:
    """Disjoint groups of near duplicates, as positions in `texts`, ordered by their first member.

    Near duplicates share all words of substance, so they meet in a table: time grows with the number of texts.
    """
    blocks: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    wordings = [_wording(text) for text in texts]
    for i, wording in enumerate(wordings):
        blocks[tuple(sorted(wording.words)) or (wording.text,)].append(i)
    groups = []
    for block in blocks.values():
        if len(block) > 1:
            block.sort(key=lambda i: (-wordings[i].light.total(), -len(texts[i]), texts[i], i))
            groups += [Group(tuple(sorted(found)), found[0]) for found in _split(wordings, block)]
    return sorted(groups, key=lambda group: group.members)


def _split(wordings: Sequence[_Wording], block: Sequence[int]) -> list[list[int]]:
    """Groups of a block whose texts come fullest first: each group's first member stands for it."""
    groups: list[list[int]] = []
    for i in block:
        tried = groups[-_GROUPS_TRIED:]
        home = next((group for group in tried if _belongs(wordings[i], [wordings[j] for j in group])), None)
        if home is None:
            groups.append([i])
        else:
            home.append(i)
    whole = (_shrunk(wordings, group) for group in groups)
    return [group for group in whole if len(group) > 1]


def _shrunk(wordings: Sequence[_Wording], group: list[int]) -> list[int]:
    """As much of a group as its first member stands for: specifics kept one by one might not be kept together."""
    texts = [wordings[i].text for i in group]
    while len(texts) > 1 and specifics.missing(texts, texts[0]):
        texts.pop()
    return group[: len(texts)]


def _belongs(new: _Wording, group: Sequence[_Wording]) -> bool:
    """Whether `new` is a near duplicate of every member, and the group's first can stand for it."""
    first, *rest = group
    if len(group) == _GROUP_MOST or not (_agree(first, new) and _keeps(first, new)):
        return False
    return all(_near(member, new) for member in rest)


def clusters(texts: Sequence[str], threshold: float = SIMILAR) -> list[list[int]]:
    """Texts linked by similarity (0 to 1) of at least `threshold`, as positions, in clusters of two or more.

    Members of a cluster are linked, perhaps through others: alike enough to be read side by side, no more. Texts
    are compared only where they share a rare word, each with a bounded number of others: time grows nearly with
    the number of texts, and in a large set of much the same texts some links may be missed.
    """
    spelt = _encoded([_bag(text) for text in texts])
    distinct = sorted(set(spelt))
    links = _Links(len(distinct))
    for one, other in _candidates(distinct):
        if links.joined(one, other):
            continue
        if Indel.normalized_similarity(distinct[one], distinct[other]) >= threshold:
            links.join(one, other)
    place = {text: i for i, text in enumerate(distinct)}
    found: defaultdict[int, list[int]] = defaultdict(list)
    for i, text in enumerate(spelt):
        found[links.root(place[text])].append(i)
    return [members for members in found.values() if len(members) > 1]


def _encoded(bags: Sequence[Sequence[str]]) -> list[str]:
    """Each bag as a string of one character a word, in the order of how rare the words are.

    Strings are compared many times faster than tuples. Words that only one text has come last: they find nothing.
    """
    spread = Counter(word for bag in bags for word in set(bag))
    order = sorted(spread, key=lambda word: (spread[word] == 1, spread[word], word))
    code = {word: chr(rank % (sys.maxunicode + 1)) for rank, word in enumerate(order)}
    return ["".join(sorted(code[word] for word in bag)) for bag in bags]


def _candidates(distinct: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Pairs of positions worth comparing. `distinct` is sorted, so the neighbours taken do not hang on input order."""
    for holders in _postings(distinct).values():
        if len(holders) <= _SHARED_FEW:
            yield from combinations(holders, 2)
        else:
            for step in range(1, _NEIGHBOURS + 1):
                yield from zip(holders, holders[step:], strict=False)


def _postings(distinct: Sequence[str]) -> dict[str, list[int]]:
    """For each word, the texts among whose rarest words it is."""
    postings: defaultdict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(distinct):
        words = list(dict.fromkeys(text))
        for word in words[: min(_RARE_MOST, max(_RARE_LEAST, len(words) // 2))]:
            postings[word].append(i)
    return postings


class _Links:
    """Disjoint sets of 0 … size-1, the smallest member naming its set."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def root(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = i = self._parent[self._parent[i]]
        return i

    def joined(self, one: int, other: int) -> bool:
        return self.root(one) == self.root(other)

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.root(one), self.root(other)))
        self._parent[high] = low
