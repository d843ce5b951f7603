"""The formats that memories come in, and how they are taken in: all of a file's, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import IO

from audit.models import Operation
from audit.trail import Actor
from config.wording import several
from memory.errors import Invalid
from memory.models import Agent
from memory.policy.categories import DEFAULT_PROJECT
from memory.policy.validation import Draft, checked_project
from memory.transfer.exporting import counted
from memory.transfer.formats import axe, jsonl, letta, mem0, memory_store, tree
from memory.transfer.formats.gathering import WAS_CONSTITUTIONAL
from memory.transfer.formats.parts import EMPTY, HERE, NO_TEXT, Found, LeftOut, Part, Reader, one_line
from memory.writing import edits, operations

BATCH = 1_000  # memories held, and stored as one audited edit
NAMED = 100  # of what was left out, and of what was done, that are told by name
NAMED_KEYS = 10  # unknown keys that a warning names
KEY, NAME = 200, 64  # characters of a key that are told, and of the name of an unknown key
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
class Imported:
    """What an import did: figures, and keys, which may hold words of a heading: they are for whoever sent the file."""

    imported: int = 0
    tokens: int = 0
    constitutional: int = 0
    discarded: int = 0  # JSON Lines: left out, because they were discarded where they come from
    ignored: int = 0  # JSON Lines: values of unknown keys
    names: set[str] = field(default_factory=set)  # of unknown keys, the first that came
    left_out: int = 0  # other formats
    strange: int = 0  # of those: no entries of the format
    named: list[LeftOut] = field(default_factory=list)  # the first that were left out
    transformed: Counter[str] = field(default_factory=Counter)  # what was done, to how many

    def ignore(self, name: str) -> None:
        self.ignored += 1
        if len(self.names) < NAMED:
            self.names.add(one_line(name, NAME))

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
        if self.ignored:
            names = sorted(self.names)
            more = f" and {len(names) - NAMED_KEYS:,} more" if len(names) > NAMED_KEYS else ""
            yield f"ignored {several(self.ignored, 'value')} of unknown keys: {', '.join(names[:NAMED_KEYS])}{more}"
        if self.constitutional and not self.transformed:
            yield f"{self.constitutional:,} memories were constitutional there: here the agent or an admin sets that"
        if self.discarded:
            yield f"{self.discarded:,} discarded memories were left out"
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
        """Store every memory that was found, or none: one transaction, with an audited edit for each BATCH. Raises
        Invalid where the file is another meanwhile, BadLine, MemoryDisabled, CategoryDisabled."""
        with edits.locked(agent) as row:
            detail = {"import": row.audit_seq + 1}  # a rollback of the import finds its entries by it
            while batch := list(islice(self.drafts, BATCH)):
                edited = operations.remember(row, batch, actor, operation=Operation.IMPORTED, detail=detail)
                self.done.imported += len(batch)
                self.done.tokens += sum(memory.tokens for memory in edited.memories)
                advance(len(batch))
        return self.done


def surveyed(file: IO[bytes], format: str, *, project: str = "") -> Surveyed:
    """Look through a file, which may take minutes, before anything is locked that others wait for; JSON Lines are read
    as they are stored. `project` is what memories of a project get that name none.

    Raises Invalid where the file is none of its format.
    """
    if format == "jsonl":
        if project:
            raise Invalid("project", "is for other formats: a line of JSON Lines names its own")
        return of_lines(jsonl.lines_of("the file", file))
    return of_parts(IMPORTS[format].read(file, ""), project=project, expected=IMPORTS[format].what)


def of_parts(parts: Iterable[Part], *, project: str = "", expected: str = "memories") -> Surveyed:
    """What a reader found in a file. Raises Invalid where it is none of its format."""
    done = Imported()
    drafts = _drafts(parts, checked_project(project) or DEFAULT_PROJECT, done)
    first = list(islice(drafts, BATCH))
    if not first and done.strange and done.strange == done.left_out:
        raise Invalid("file", f"holds nothing that is expected: {expected}. Nothing was imported")
    return Surveyed(chain(first, drafts), done)


def of_lines(lines: Iterable[bytes]) -> Surveyed:
    """JSON Lines: one bad line, and nothing is stored."""
    done = Imported()
    return Surveyed(_of_lines(lines, done), done)


def _of_lines(lines: Iterable[bytes], done: Imported) -> Iterator[Draft]:
    for _, value, draft in jsonl.read(lines):
        for name in jsonl.unknown(value):
            done.ignore(name)
        done.discarded += draft is None
        if draft is not None:
            done.constitutional += value.get("constitutional") is True
            yield draft


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
