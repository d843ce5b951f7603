"""The steps of a migration: pieces of another system's memory, what each would become, and what is done about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from memory.policy.validation import Draft
from memory.transfer.formats.found import LeftOut

# Number and version of each memory that said a piece earlier, newest first: what a rollback may have put back.
Before = tuple[tuple[int, int], ...]


class Fate(StrEnum):
    """What a migration does about a piece."""

    NEW = "new"
    CHANGED = "changed"  # there, its memory as it was written: that says what the file says now
    REPLACED = "replaced"  # the same, but of another category, project or kind: another memory takes its place
    THERE = "there"
    OTHERWISE = "otherwise"  # the file changed, and so did its memory: left
    BESIDE = "beside"  # somebody decided so
    OFF = "off"  # its category is


MOVES = frozenset({Fate.NEW, Fate.CHANGED, Fate.REPLACED})


@dataclass(frozen=True, slots=True)
class Choice:
    """Which pieces are wanted; of what is empty, all."""

    systems: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()  # as shells have them; `*` crosses folders
    since: datetime | None = None
    until: datetime | None = None

    def wants(self, step: Step) -> bool:
        return (
            (not self.systems or step.system in self.systems)
            and (not self.categories or step.draft.category in self.categories)
            and (not self.paths or any(fnmatchcase(step.key, path) for path in self.paths))
            and (self.since is None or step.origin >= self.since)
            and (self.until is None or step.origin <= self.until)
        )


class Digests(NamedTuple):
    """Keyed: by which a piece is known again, and what it is part of."""

    key: bytes
    said: bytes
    place: bytes  # of the list or text
    file: bytes


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """A piece of another system's memory, and the memory it would be."""

    system: str
    path: str  # of its file
    key: str
    fate: Fate
    draft: Draft  # checked
    origin: datetime  # its date, or its file's
    transformed: tuple[str, ...]  # what was done to it, that is kept with it or not
    digests: Digests
    is_named: bool  # by an id, or a heading, within its file
    number: int | None = None  # of the memory it is, or was
    known: tuple[bytes, int | None, int] | None = None  # what was noted of it: content digest, number, version
    before: Before = ()


@dataclass(slots=True, repr=False)
class Plan:
    """In order of path, then of place in it."""

    steps: list[Step] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    keys: Counter[bytes] = field(default_factory=Counter)  # digests of keys: how many pieces have each
    shared: dict[str, bytes] = field(default_factory=dict)  # digests of the keys of lists and files
    uncopied: set[bytes] = field(default_factory=set)  # digests of files of which something was redacted

    def of(self, *fates: Fate) -> list[Step]:
        return [step for step in self.steps if step.fate in fates]
