"""Import files with memories. Either all memories of a file are imported, or none."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import chain, islice
from typing import IO, Any

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

BATCH = 1_000  # memories that are held at a time, and memories in one audit entry
NAMED = 100  # number of left-out parts, and of kinds of changes, that are listed
NAMED_KEYS = 10  # number of unknown keys that a warning lists
KEY, NAME = 200, 64  # characters of a listed key, and of an unknown key
FREE_SOURCES, SOURCES_PER_MEMORY = 10_000, 10  # the most sources in a file: linking keeps the agent locked
MOST_LEFT_OUT = 100_000  # an import fails if more parts of the file are left out
# These reasons show that a file has another format. If all parts of a file have such a reason, the file is refused.
_STRANGE = frozenset({NO_TEXT, axe.BEFORE, tree.NO_MARKDOWN, "is not an object"})


@dataclass(frozen=True, slots=True)
class Import:
    """An import format."""

    media_type: str
    what: str  # for help texts
    read: Reader  # if it gets the path "", the keys have no path


IMPORTS = {
    "jsonl": Import("application/x-ndjson", "Palimpsest's JSON Lines export, one memory per line", jsonl.parts),
    "markdown": Import("application/gzip", "Palimpsest's packed folder of Markdown (.tar.gz)", tree.parts),
    "axe": Import("text/markdown", "an axe run log", axe.parts),
    "mem0": Import("application/json", "JSON from mem0's API, or an OpenMemory export", mem0.parts),
    "letta": Import("application/json", "a Letta agent file, or archive passages from Letta's API", letta.parts),
    "memory-store": Import("application/json", "the memory list of an Anthropic memory store", memory_store.parts),
}


@dataclass(slots=True)
class Imported:
    """The result of an import. The keys of parts may contain words of a heading, so only the sender of the file may see
    the keys."""

    imported: int = 0
    tokens: int = 0
    constitutional: int = 0
    discarded: int = 0  # JSON Lines: memories left out because the file marks them as discarded
    ignored: int = 0  # JSON Lines: values of unknown keys
    names: set[str] = field(default_factory=set)  # the names of the first unknown keys
    left_out: int = 0  # other formats: number of parts without a memory
    strange: int = 0  # number of left-out parts that show another format
    named: list[LeftOut] = field(default_factory=list)  # the first of the parts that were left out
    transformed: Counter[str] = field(default_factory=Counter)  # change → number of memories
    ids: list[object] = field(default_factory=list)  # JSON Lines: the id of each memory in the file
    sources: dict[int, list[object]] = field(default_factory=dict)  # place in `ids` → ids of the memories it replaced

    def ignore(self, name: str) -> None:
        self.ignored += 1
        if len(self.names) < NAMED:
            self.names.add(one_line(name, NAME))

    def leave_out(self, part: LeftOut) -> None:
        self.left_out += 1
        self.strange += part.why in _STRANGE
        if self.left_out > MOST_LEFT_OUT:
            raise Invalid("file", f"has more than {MOST_LEFT_OUT:,} entries without a memory. Nothing was imported")
        if len(self.named) < NAMED:
            self.named.append(LeftOut(one_line(part.key, KEY), one_line(part.why, KEY)))

    def successors(self, numbers: Sequence[int]) -> dict[int, int]:
        """Map the new numbers of replaced memories to the new numbers of their successors. Ids are compared as texts:
        somebody can choose many integers with the same hash, which makes a dictionary of them very slow."""
        ids = zip(self.ids, numbers, strict=False)
        known = {repr(id): number for id, number in ids if isinstance(id, int | str)}
        found = ((each, numbers[place]) for place, ids in self.sources.items() for each in ids)
        links = ((repr(id), successor) for id, successor in found if isinstance(id, int | str))
        return {known[id]: successor for id, successor in links if id in known}

    def require_no_cycle(self) -> None:
        """Raise Invalid if a memory of the whole file would replace itself, directly or through others."""
        successors = self.successors(range(len(self.ids)))
        try:
            TopologicalSorter({place: [successor] for place, successor in successors.items()}).prepare()
        except CycleError:
            raise Invalid("sources", "must not lead from a memory back to itself. Nothing was imported") from None

    def note(self, found: Found) -> None:
        for what in found.transformed:
            is_known = what in self.transformed or len(self.transformed) < NAMED
            self.transformed[one_line(what, KEY) if is_known else "other changes"] += 1
        self.constitutional = self.transformed[WAS_CONSTITUTIONAL]

    def figures(self, format: str) -> dict[str, Any]:
        """Return the figures for a response of the API."""
        figures = {"imported": self.imported, "tokens": self.tokens, "constitutional": self.constitutional}
        if format == "jsonl":
            return figures | {"discarded": self.discarded, "ignored": sorted(self.names)}
        transformed = [{"what": what, "memories": count} for what, count in self.transformed.most_common()]
        named = [asdict(part) for part in self.named]
        return figures | {"left_out": self.left_out, "named": named, "transformed": transformed}

    def warnings(self) -> Iterator[str]:
        """Yield the warnings for people. Each warning is one line."""
        if self.ignored:
            names = sorted(self.names)
            more = f" and {len(names) - NAMED_KEYS:,} more" if len(names) > NAMED_KEYS else ""
            yield f"ignored {several(self.ignored, 'value')} of unknown keys: {', '.join(names[:NAMED_KEYS])}{more}"
        if self.constitutional and not self.transformed:
            were = several(self.constitutional, "memory was", "memories were")
            yield f"{were} constitutional: the agent or an admin can set this mark again"
        if self.discarded:
            yield f"{several(self.discarded, 'discarded memory was', 'discarded memories were')} left out"
        yield from counted(self.transformed)
        for part in self.named:
            yield f"left out: {part.key.removeprefix('#') or 'the file'} {part.why}"
        if self.left_out > len(self.named):
            yield f"left out: {self.left_out - len(self.named):,} more"


@dataclass(slots=True, repr=False)
class CheckedFile:
    """A file that can be stored. The first thousand memories are already read. In a JSON Lines file, none is read yet.
    The other memories are read while they are stored."""

    drafts: Iterator[Draft]
    done: Imported

    def store(self, agent: Agent, actor: Actor, advance: Callable[[int], None] = lambda _: None) -> Imported:
        """Store all memories of the file in one transaction, or none. One audit entry is written for every BATCH
        memories. Raises BadLine, MemoryDisabled, CategoryDisabled. Raises Invalid if the file changed after the
        check."""
        with edits.locked(agent) as row:
            numbers: list[int] = []
            detail = {"import": row.audit_seq + 1}  # a rollback of the import finds its entries by this number
            while batch := list(islice(self.drafts, BATCH)):
                edited = operations.remember(row, batch, actor, operation=Operation.IMPORTED, detail=detail)
                self.done.imported += len(batch)
                self.done.tokens += sum(memory.tokens for memory in edited.memories)
                numbers += [memory.number for memory in edited.memories]
                advance(len(batch))
            self.done.require_no_cycle()
            if successors := self.done.successors(numbers):
                operations.link(row, successors, actor, detail)
        return self.done


def check_file(
    file: IO[bytes], format: str, *, project: str = "", check: Callable[[], None] = lambda: None
) -> CheckedFile:
    """Check a file. The check may take minutes, so it happens before the agent is locked. A file in JSON Lines is an
    exception: it is checked later, while its memories are stored. If a memory needs a project, but the file does not
    say which one, the memory gets `project`. `check` is called after each part is read, but not in JSON Lines. Raises
    Invalid if the file does not have this format."""
    if format == "jsonl":
        if project:
            raise Invalid("project", "cannot be set for JSON Lines: each line has its own project")
        return check_lines(jsonl.lines_of("the file", file))
    done, known = Imported(), IMPORTS[format]
    drafts = _drafts(known.read(file, ""), checked_project(project) or DEFAULT_PROJECT, done, check)
    first = list(islice(drafts, BATCH))
    if not first and done.strange and done.strange == done.left_out:
        raise Invalid("file", f"has no entry in the expected format: {known.what}. Nothing was imported")
    return CheckedFile(chain(first, drafts), done)


def check_lines(lines: Iterable[bytes]) -> CheckedFile:
    """Prepare the import of JSON Lines. If one line is invalid, nothing is stored."""
    done = Imported()
    return CheckedFile(_of_lines(lines, done), done)


def _of_lines(lines: Iterable[bytes], done: Imported) -> Iterator[Draft]:
    count = 0
    for number, value, draft in jsonl.read(lines):
        for name in jsonl.unknown(value):
            done.ignore(name)
        done.discarded += draft is None
        if draft is not None:
            done.constitutional += value.get("constitutional") is True
            if isinstance(value.get("sources"), list):
                done.sources[len(done.ids)] = value["sources"]
                count += len(value["sources"])
            done.ids.append(value.get("id"))
            if count > FREE_SOURCES + SOURCES_PER_MEMORY * len(done.ids):
                raise jsonl.BadLine(number, "sources", "the file has too many of them")
            yield draft


def _drafts(parts: Iterable[Part], here: str, done: Imported, check: Callable[[], None]) -> Iterator[Draft]:
    for part in parts:
        check()
        if isinstance(part, LeftOut):
            if not part.key and part.why != EMPTY:
                raise Invalid("file", f"{part.why}. Nothing was imported")
            done.leave_out(part)
            continue
        found = part.bounded()
        done.note(found)
        project = here if found.project == HERE else found.project
        yield Draft(found.content, found.kind, found.category, project, found.tags, found.date).checked()
