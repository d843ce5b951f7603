"""The formats that memories come in, and how they are taken in: all of a file's, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from audit.models import Operation
from audit.trail import Actor
from memory import editing, store
from memory.errors import Invalid
from memory.formats import axe, letta, mem0, memory_store, own, tree
from memory.formats.found import HERE, Found, LeftOut, Part, Reader
from memory.formats.gathering import WAS_CONSTITUTIONAL
from memory.formats.text import EMPTY
from memory.intake import Draft, checked_project
from memory.models import Agent
from memory.rules.categories import DEFAULT_PROJECT

BATCH = 1_000  # memories held, and stored as one audited edit
NAMED = 100  # of what was left out, and of what was done, that are told by name
KEY = 200  # characters of a key that are told
MOST_LEFT_OUT = 100_000  # of a file: what holds so many is no file of memories
_OTHER = "other things"


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
        Import("jsonl", "application/x-ndjson", "JSON Lines, a memory a line, as we write it", own.parts),
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
    left_out: int = 0
    named: list[LeftOut] = field(default_factory=list)  # the first that were left out
    transformed: Counter[str] = field(default_factory=Counter)  # what was done, to how many

    def leave_out(self, part: LeftOut) -> None:
        self.left_out += 1
        if self.left_out > MOST_LEFT_OUT:
            raise Invalid("file", f"more than {MOST_LEFT_OUT:,} of what it holds are no memories. Nothing was imported")
        if len(self.named) < NAMED:
            self.named.append(LeftOut(_told(part.key), _told(part.why)))

    def note(self, found: Found) -> None:
        for what in found.transformed:
            is_known = what in self.transformed or len(self.transformed) < NAMED
            self.transformed[_told(what) if is_known else _OTHER] += 1
        self.constitutional = self.transformed[WAS_CONSTITUTIONAL]

    def warnings(self) -> Iterator[str]:
        """For people."""
        for what, count in self.transformed.most_common():
            yield f"{count:,} {'memory' if count == 1 else 'memories'}: {what}"
        for part in self.named:
            yield f"left out: {part.key.removeprefix('#') or 'the file'} {part.why}"
        if self.left_out > len(self.named):
            yield f"left out: {self.left_out - len(self.named):,} more"


def load(
    agent: Agent,
    parts: Iterable[Part],
    actor: Actor,
    *,
    project: str = "",
    advance: Callable[[int], None] = lambda _: None,
) -> Imported:
    """Store every memory that was found, or none: one transaction, an audited edit for each thousand. `project` is what
    memories of a project get that name none.

    Raises Invalid where the file is none of its format, MemoryDisabled, CategoryDisabled.
    """
    here = checked_project(project) or DEFAULT_PROJECT
    done = Imported()
    with editing.locked(agent) as row:
        detail = {"import": row.audit_seq + 1}  # by which all of it is taken back as one
        drafts = _drafts(parts, here, done)
        while batch := list(islice(drafts, BATCH)):
            edited = store.remember(agent, batch, actor, operation=Operation.IMPORTED, detail=detail)
            done.imported += len(batch)
            done.tokens += sum(memory.tokens for memory in edited.memories)
            advance(len(batch))
    return done


def _drafts(parts: Iterable[Part], here: str, done: Imported) -> Iterator[Draft]:
    for part in parts:
        if isinstance(part, LeftOut):
            if not part.key and part.why != EMPTY:
                raise Invalid("file", f"{part.why}. Nothing was imported")
            done.leave_out(part)
            continue
        try:
            draft = _draft(part, here)
        except Invalid as problem:  # what a reader gives is well; whatever is not, is told
            done.leave_out(LeftOut(part.key, f"{problem.field} {problem.problem}"))
            continue
        done.note(part)
        yield draft


def _draft(found: Found, here: str) -> Draft:
    found = replace(found, project=here) if found.project == HERE else found
    return Draft(found.content, found.kind, found.category, found.project, found.tags, found.date).checked()


def _told(text: str) -> str:
    """On one line, cut, of whole characters."""
    said = " ".join(text[:KEY].encode(errors="replace").decode().replace("\0", "?").split())
    return f"{said}…" if len(text) > KEY else said
