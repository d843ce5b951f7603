"""Secrets put back into a text that somebody changed: each where it was, or none.

A text is looked at by its sentences and lines. One that was there before, by its words, has the secrets it had. Of
those that are alike, and had others, nobody can say which is which, but where all of them stand as they did, in what
stood around them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from memory.errors import Invalid
from memory.silo.silo import Opened

_ENDS = re.compile(r"(?<=\n)|(?<=\D[.!?])(?=\s)")  # no "1."
_OF_LIST = re.compile(r"\A\s*(?:\d+[.)]|[-*+>|])\s")  # what stands before something in a list says nothing of it

Words = tuple[str, ...]
Secrets = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """A sentence, or a line: its text, its words, what stands in it for secrets."""

    text: str
    words: Words
    places: tuple[str, ...]


@dataclass(slots=True)
class _Known:
    """What is known of secrets: all that each place stands for; those of parts by their words; and of parts that are
    alike those of each in turn, with the words of all that stands between and around them."""

    of_place: Mapping[str, list[str]]
    of_part: Mapping[Words, Secrets]
    of_alike: Mapping[Words, tuple[list[Secrets], list[Words]]]


def put_back(texts: Sequence[str], before: Opened, *, are_tags: bool = False) -> list[str]:
    """The texts with the secrets that `before` had in its content, or in its tags. Raises Invalid where it is not
    certain which one stands somewhere."""
    from memory.masking.scanner import PLACE  # its detectors bring requests with them

    known = _known(before, are_tags=are_tags)
    parted = [_parts(text) for text in texts]
    whole = [part for parts in parted for part in parts]
    counted = Counter(place for part in whole for place in part.places)
    in_turn = {
        words: iter(secrets) for words, (secrets, around) in known.of_alike.items() if _around(whole, words) == around
    }

    def of(part: _Part) -> Iterator[str | None]:
        if part.words in known.of_part:
            return iter(known.of_part[part.words])
        if part.words in in_turn:
            return iter(next(in_turn[part.words]))
        return iter([_only(known.of_place.get(place, []), counted[place]) for place in part.places])

    def told(part: _Part) -> str:
        secrets = of(part)
        return PLACE.sub(lambda found: _certain(next(secrets), found[0]), part.text)

    return ["".join(map(told, parts)) for parts in parted]


def _only(secrets: Sequence[str], count: int) -> str | None:
    """What a place stands for wherever it is: the one secret there is, which is not at more places than it was."""
    return secrets[0] if len(set(secrets)) == 1 and count <= len(secrets) else None


def _certain(secret: str | None, place: str) -> str:
    if secret is None:
        raise Invalid("file", f"has {place} where nobody can tell which it is: leave each, or change the memory itself")
    return secret


def _known(before: Opened, *, are_tags: bool) -> _Known:
    found = list(_with_secrets(before, are_tags=are_tags))
    of_place: dict[str, list[str]] = defaultdict(list)
    of_part: dict[Words, list[Secrets]] = defaultdict(list)
    for part, secrets in found:
        if secrets:
            of_part[part.words].append(secrets)
        for place, secret in zip(part.places, secrets, strict=True):
            of_place[place].append(secret)
    alike = {words for words, secrets in of_part.items() if len(set(secrets)) > 1}
    parts = [part for part, _ in found]
    return _Known(
        of_place,
        {words: secrets[0] for words, secrets in of_part.items() if words not in alike},
        {words: (of_part[words], _around(parts, words)) for words in alike},
    )


def _with_secrets(before: Opened, *, are_tags: bool) -> Iterator[tuple[_Part, Secrets]]:
    """The parts as they are shown, with what is hidden there. Content and tags hide together what either has."""
    from memory.masking.scanner import masked_together, taken_out

    texts = [before.content, *before.tags]
    secrets = iter(taken_out(texts))
    for nth, text in enumerate(masked_together(texts)[0]):
        for part in _parts(text):
            hidden = list(islice(secrets, len(part.places)))
            if tuple(place for place, _ in hidden) != part.places:
                raise Invalid("file", "has secrets that cannot be told apart: change the memory itself")
            if are_tags == bool(nth):
                yield part, tuple(secret for _, secret in hidden)


def _parts(text: str) -> list[_Part]:
    from memory.masking.scanner import PLACE

    words = re.compile(rf"{PLACE.pattern}|\w+")
    return [
        _Part(part, tuple(map(_folded, words.findall(_OF_LIST.sub("", part)))), tuple(PLACE.findall(part)))
        for part in _ENDS.split(text)
    ]


def _folded(word: str) -> str:
    return word if word.startswith("[") else word.casefold()


def _around(parts: Iterable[_Part], words: Words) -> list[Words]:
    """The words of all that stands between the first and the last of the parts that are alike, and of what stands
    before and after these."""
    said = [part.words for part in parts if part.words]
    at = [nth for nth, each in enumerate(said) if each == words]
    return said[max(0, at[0] - 1) : at[-1] + 2] if at else []
