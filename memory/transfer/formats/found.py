"""What is found in other systems' files: memories, and what was left out, with why (docs/migration-sources.md).

Readers give these and nothing else: what becomes of them is decided by whoever takes them in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import IO

HERE = "."  # as a project: that of the folder, or of the call, the file came by. No id of a project's own is called so


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What looks like a memory and is none, or cannot be held here."""

    key: str
    why: str  # for people, after the key: "is empty"


class Known(Enum):
    """By what a memory is known again, when its source is read another time."""

    KEY = auto()  # its own
    WHOLE = auto()  # that of what it is part of: it is all of that, or the first of its parts
    WORDS = auto()  # what it says: where it stands tells nothing, for one put before it moves it


@dataclass(frozen=True, slots=True, repr=False)
class Found:
    """A memory as another system holds it, in words that may be stored as they are.

    `key`: the file's path, and behind `#` what tells the part of the file; what was read twice has the same key twice.
    `transformed`: what was done to it, each short enough for a tag.
    """

    key: str
    content: str  # 1 to 10,000 characters
    category: str
    project: str = ""  # an id, HERE, or none
    tags: tuple[str, ...] = ()
    date: datetime | None = None  # UTC; None where the source has none
    kind: str = "core"
    transformed: tuple[str, ...] = ()
    of: str = ""  # of one part of a text that was too long: what tells it from all others, be they in the same words
    known_by: Known = Known.KEY
    part_of: str = ""  # the key of the list, or of the text, whose parts may move within it


Part = Found | LeftOut
# From a file, open to be read as bytes from its beginning and able to seek, and the path its keys begin with.
Reader = Callable[[IO[bytes], str], Iterator[Part]]


def without_key(part: Part, stands_in: str) -> Part:
    """An entry of a list that has nothing but its place there; `stands_in` is the list's key."""
    return replace(part, known_by=Known.WORDS, part_of=stands_in) if isinstance(part, Found) else part
