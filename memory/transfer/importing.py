"""The formats that memories come in, and how they are taken in: all of a file's, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from audit.trail import Actor
from memory.errors import Invalid
from memory.models import Agent
from memory.policy.categories import DEFAULT_PROJECT
from memory.policy.validation import Draft, checked_project
from memory.transfer.exporting import counted
from memory.transfer.formats import axe, jsonl, letta, mem0, memory_store, tree
from memory.transfer.formats.found import HERE, Found, LeftOut, Part, Reader
from memory.transfer.formats.gathering import WAS_CONSTITUTIONAL
from memory.transfer.formats.text import EMPTY, NO_TEXT, one_line
from memory.transfer.storing import Stored, store

BATCH = 1_000  # memories held, and stored as one audited edit
NAMED = 100  # of what was left out, and of what was done, that are told by name
KEY = 200  # characters of a key that are told
MOST_LEFT_OUT = 100_000  # of a file: what holds so many is no file of memories
_OTHER = "other things"
# Why something is no entry of the format at all: where a file has nothing else, it is another format's.
_STRANGE = frozenset({NO_TEXT, axe.BEFORE, tree.NO_MARKDOWN, "is no object"})


@dataclass(frozen=True, slots=True)
class Import:
    """A format that memories come in."""

    name: str  # as --format and ?format= have it
    media_type: str
    what: str  # for help texts
    read: Reader  # given no path, it gives the keys of parts alone, and "" for the file


IMPORTS = {
    each.name: each
    for each in (
        Import("jsonl", "application/x-ndjson", "JSON Lines, a memory a line, as we write it", jsonl.parts),
        Import("markdown", "application/gzip", "a packed folder of markdown (.tar.gz), as we write it", tree.parts),
        Import("axe", "text/markdown", "a log of runs as axe keeps it", axe.parts),
        Import("mem0", "application/json", "JSON as mem0 answers it, or as OpenMemory exports it", mem0.parts),
        Import("letta", "application/json", "a Letta agent file, or its archive as the API lists it", letta.parts),
        Import("memory-store", "application/json", "the list of an Anthropic memory store", memory_store.parts),
    )
}


@dataclass(slots=True)
class Imported(Stored):
    """What an import did: figures, and keys, which may hold words of a heading: they are for whoever sent the file."""

    left_out: int = 0
    strange: int = 0  # of those: no entries of the format
    named: list[LeftOut] = field(default_factory=list)  # the first that were left out
    transformed: Counter[str] = field(default_factory=Counter)  # what was done, to how many

    def leave_out(self, part: LeftOut) -> None:
        self.left_out += 1
        self.strange += part.why in _STRANGE
        if self.left_out > MOST_LEFT_OUT:
            raise Invalid("file", f"more than {MOST_LEFT_OUT:,} of what it holds are no memories. Nothing was imported")
        if len(self.named) < NAMED:
            self.named.append(LeftOut(one_line(part.key, KEY), one_line(part.why, KEY)))

    def note(self, found: Found) -> None:
        for what in found.transformed:
            is_known = what in self.transformed or len(self.transformed) < NAMED
            self.transformed[one_line(what, KEY) if is_known else _OTHER] += 1
        self.constitutional = self.transformed[WAS_CONSTITUTIONAL]

    def warnings(self) -> Iterator[str]:
        """For people."""
        yield from counted(self.transformed)
        for part in self.named:
            yield f"left out: {part.key.removeprefix('#') or 'the file'} {part.why}"
        if self.left_out > len(self.named):
            yield f"left out: {self.left_out - len(self.named):,} more"


@dataclass(slots=True, repr=False)
class Surveyed:
    """A file that was looked through. Its first thousand memories are held, the others are read as they are stored."""

    drafts: Iterator[Draft]
    done: Imported

    def store(self, agent: Agent, actor: Actor, advance: Callable[[int], None] = lambda _: None) -> Imported:
        """Store every memory that was found, or none. Raises Invalid where the file is another meanwhile,
        MemoryDisabled, CategoryDisabled."""
        store(agent, self.drafts, actor, self.done, at_once=BATCH, advance=advance)
        return self.done


def surveyed(parts: Iterable[Part], *, project: str = "", expected: str = "") -> Surveyed:
    """Look through a file, which may take minutes, before anything is locked that others wait for. `project` is what
    memories of a project get that name none; `expected` what the file should be, for people.

    Raises Invalid where the file is none of its format.
    """
    done = Imported()
    drafts = _drafts(parts, checked_project(project) or DEFAULT_PROJECT, done)
    first = list(islice(drafts, BATCH))
    if not first and done.strange and done.strange == done.left_out:
        raise Invalid("file", f"holds nothing that is expected: {expected or 'memories'}. Nothing was imported")
    return Surveyed(chain(first, drafts), done)


def _drafts(parts: Iterable[Part], here: str, done: Imported) -> Iterator[Draft]:
    for part in parts:
        if isinstance(part, LeftOut):
            if not part.key and part.why != EMPTY:
                raise Invalid("file", f"{part.why}. Nothing was imported")
            done.leave_out(part)
            continue
        found = part.bounded()
        done.note(found)
        yield _draft(found, here)


def _draft(found: Found, here: str) -> Draft:
    found = replace(found, project=here) if found.project == HERE else found
    return Draft(found.content, found.kind, found.category, found.project, found.tags, found.date).checked()
