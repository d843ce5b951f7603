"""What an entry did to a memory, as a page shows it: in its words what stayed, was removed and was added.

By words where the texts are short enough, by lines else, and as a whole where neither is: comparing takes time with
the product of both lengths, and an agent may write what it likes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from functools import partial
from typing import Any

from memory.consent.granted_reads import State, Step

MOST = 250_000  # pairs that are compared
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True, repr=False)
class Piece:
    """`kind`: same, removed, added."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Shown:
    """What one entry did to one memory. `silent`: what it said was redacted, before, after or both."""

    number: int
    what: str
    silent: bool
    text: list[Piece]
    tags: list[Piece]
    fields: list[tuple[str, str, str]]  # name, before, after; of a new one all that are set

    @property
    def is_same_text(self) -> bool:
        return all(piece.kind == "same" for piece in self.text)


def shown(step: Step) -> Shown:
    before, after = _said(step.before), _said(step.after)
    silent = any(state is not None and state.opened is None for state in (step.before, step.after))
    text = pieces(before[0], after[0])
    return Shown(step.number, _what(step), silent, text, _tags(before[1], after[1]), list(_fields(step)))


def _said(state: State | None) -> tuple[str, tuple[str, ...]]:
    return (state.opened.content, state.opened.tags) if state is not None and state.opened else ("", ())


def _what(step: Step) -> str:
    if step.before is None or step.after is None:
        return "new" if step.after else "gone"
    gone = [state.fields["discarded_at"] is not None for state in (step.before, step.after)]
    if gone[0] != gone[1]:
        return "discarded" if gone[1] else "restored"
    return "rewritten" if _said(step.before) != _said(step.after) else "changed"


def _tags(before: tuple[str, ...], after: tuple[str, ...]) -> list[Piece]:
    kept = [Piece("same" if tag in after else "removed", tag) for tag in before]
    return kept + [Piece("added", tag) for tag in after if tag not in before]


def _fields(step: Step) -> Iterator[tuple[str, str, str]]:
    one, other = (state.fields if state else {} for state in (step.before, step.after))
    for name in NAMES:
        before, after = _written(one.get(name)), _written(other.get(name))
        if before != after:
            yield NAMES[name], before, after


def _written(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M} UTC"
    return "yes" if value is True else str(value or "")


NAMES = {
    "kind": "kind",
    "category": "category",
    "project": "project",
    "origin": "origin date",
    "tokens": "tokens",
    "constitutional": "protected",
    "discarded_at": "discarded",
    "superseded_by": "superseded by",
    "redacted_at": "redacted",
}


def pieces(before: str, after: str) -> list[Piece]:
    """In order; without those added it reads as before, without those removed as after."""
    if before == after:
        return [Piece("same", before)] if before else []
    for split in (_WORDS.findall, partial(str.splitlines, keepends=True)):
        one, other = split(before), split(after)
        if len(one) * len(other) <= MOST:
            return list(_compared(one, other))
    return _changed(before, after)


def _compared(one: list[str], other: list[str]) -> Iterator[Piece]:
    for kind, a, b, c, d in SequenceMatcher(None, one, other).get_opcodes():
        if kind == "equal":
            yield Piece("same", "".join(one[a:b]))
        else:
            yield from _changed("".join(one[a:b]), "".join(other[c:d]))


def _changed(before: str, after: str) -> list[Piece]:
    return [Piece(kind, text) for kind, text in (("removed", before), ("added", after)) if text]
