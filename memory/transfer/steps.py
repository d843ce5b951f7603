"""The steps of a migration: pieces of another system's memory, and the memories that they would be."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase

from memory.policy.validation import Draft
from memory.transfer.formats.parts import LeftOut


class State(StrEnum):
    """A piece compared with earlier migrations."""

    NEW = "new"
    SAME = "same"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """A piece of another system's memory, and the memory it would be. The digests are keyed."""

    system: str
    key: str
    draft: Draft  # checked
    origin: datetime  # its own date, or that of its file
    transformed: tuple[str, ...]
    source: bytes  # digest of its place: the file, and the id, the part or the words
    file: bytes  # digest of its file
    text: bytes  # digest of what it says there
    has_id: bool
    state: State = State.NEW
    number: int | None = None  # of its memory
    version: int = 0  # of that memory, as the migration wrote it
    known: bytes | None = None  # the text's digest at the earlier migration
    replaces: bool = False  # the memory of `number` is discarded, for its category, project or kind is another now


@dataclass(frozen=True, slots=True)
class Choice:
    """Which pieces are wanted. An empty field means all."""

    categories: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()  # shell patterns; `*` crosses folders
    since: datetime | None = None
    until: datetime | None = None

    def wants(self, step: Step) -> bool:
        return (
            (not self.categories or step.draft.category in self.categories)
            and (not self.paths or any(fnmatchcase(step.key, path) for path in self.paths))
            and (self.since is None or step.origin >= self.since)
            and (self.until is None or step.origin <= self.until)
        )


@dataclass(slots=True, repr=False)
class Plan:
    """In order of path, then of place in the file."""

    steps: list[Step] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def of(self, *states: State) -> list[Step]:
        return [step for step in self.steps if step.state in states]

    @property
    def open(self) -> list[Step]:
        """What a migration would store or change."""
        return self.of(State.NEW, State.CHANGED)
