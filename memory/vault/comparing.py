"""Find the differences between a vault and its silo, and repair them.

The comparison takes no lock, so edits do not wait. It checks each difference a second time, because an edit may write
the file at the same moment. A repair takes the content from the silo, and rewrites each file that differs. If somebody
changed a file, the repair first moves this file to .discarded/.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from memory.access import authority
from memory.access.authentication import require_valid_key
from memory.errors import FileFault, NotAFile, SealBroken
from memory.models import Agent, Kind, Memory, Source, VaultFile
from memory.policy import paths, settings_document, switches
from memory.vault import base, layout, rendering, writer
from memory.vault.base import unlocked
from memory.vault.disk import LARGEST, NEW
from memory.vault.files import Files
from memory.vault.layout import Line

BEHIND, MISSING, EDITED, MISPLACED, OLDER = "behind", "missing", "edited", "misplaced", "older"
COPY, INDEX, UNREADABLE = "copy", "index", "unreadable"
KINDS = (BEHIND, MISSING, EDITED, MISPLACED, OLDER, COPY, INDEX, UNREADABLE)
_ROWS = 500

Progress = Callable[[int], None]


class Difference(NamedTuple):
    """A difference between a file and the silo. `number` is the memory's number, or 0 if the file has no memory. `path`
    is relative to the vault's folder, or "" if there is no file."""

    number: int
    kind: str
    path: str


@dataclass(slots=True)
class Compared:
    """The result of a comparison. `unknown` is the number of files that do not belong to the vault. `after` is the
    number of the last memory on this page, or None if this page is the last one."""

    differences: list[Difference] = field(default_factory=list)
    unknown: int = 0
    after: int | None = None


def whole(agent: Agent, progress: Progress = lambda _: None) -> Compared:
    """Return all differences, in the order of the memories' numbers. Changes nothing. Raises MemoryDisabled, FileFault,
    FileOutsideRoots."""
    with _files(agent) as now:
        return all_of(now, progress)


def page(agent: Agent, *, after: int = 0, limit: int = _ROWS) -> Compared:
    """Compare the next `limit` memories with numbers above `after`, and return their differences. The last page also
    has the differences of other files. Raises the same errors as `whole`."""
    with _files(agent) as now:
        return _page(now, after, limit, lambda _: None)


@contextmanager
def _files(agent: Agent) -> Iterator[Files]:
    """Open the files of the agent's vault without taking the lock."""
    switches.require_on(agent)
    authority.require(agent)
    with unlocked(Path(agent.vault_path)) as disk:
        disk.require_no_other_owner(base.mark_of(agent))
        yield Files(Agent.objects.select_related("tenant").get(pk=agent.pk), disk)


def all_of(now: Files, progress: Progress = lambda _: None) -> Compared:
    """Return all differences of an open vault."""
    found = Compared(after=0)
    while found.after is not None:
        page = _page(now, found.after, _ROWS, progress)
        found = Compared(found.differences + page.differences, page.unknown, page.after)
    found.differences.sort()
    return found


def _page(now: Files, after: int, limit: int, progress: Progress) -> Compared:
    rows = Memory.objects.of(now.agent).filter(number__gt=after).order_by("number")
    numbers = list(rows.values_list("number", flat=True)[:limit])
    found = Compared(_twice(lambda: list(_of_memories(now, numbers))))
    progress(len(numbers))
    if len(numbers) == limit:
        found.after = numbers[-1]
        return found
    unknown: set[str] = set()
    found.differences += _twice(lambda: list(_of_folder(now, unknown)))
    found.unknown = len(unknown)
    return found


def _twice(look: Callable[[], list[Difference]]) -> list[Difference]:
    found = look()
    again = set(look()) if found else set()
    return [each for each in found if each in again]


# --- files of memories


def _of_memories(now: Files, numbers: Collection[int]) -> Iterator[Difference]:
    memories = Memory.objects.of(now.agent).numbered(numbers).defer("sealed")
    rows = VaultFile.objects.filter(agent_id=now.agent.pk, number__among=list(numbers))
    files = {row.number: row for row in rows.iterator()}
    for memory in memories.order_by("number"):
        file = files.get(memory.number)
        if memory.category in now.closed:  # such files are neither written nor reported
            continue
        if file is not None:
            line = _line(now, file)
            if line is None:
                yield Difference(memory.number, BEHIND, "")
            elif kind := _kind(now, file, memory, line.path):
                yield Difference(memory.number, kind, str(line.path))
        elif memory.layer in Kind.values and memory.source != Source.SYSTEM:
            yield Difference(memory.number, BEHIND, "")


def _line(now: Files, file: VaultFile) -> Line | None:
    """Return the line of a file, or None if SQL changed the file's row."""
    with suppress(SealBroken):
        return Line.open(now.silo, file)
    return None


def _kind(now: Files, file: VaultFile, memory: Memory, path: PurePosixPath) -> str:
    """Return how a file differs from the silo: one of KINDS, or "" if there is no difference."""
    try:
        data = now.read(path)
    except FileFault:
        return UNREADABLE
    is_as_noted = data is not None and now.silo.digest_of_file(data) == bytes(file.digest)
    if data is not None and not is_as_noted and now.is_anothers(memory, data):
        data = None
    if data is not None and not is_as_noted and not now.as_written(memory, data):
        return EDITED
    is_there = file.state == VaultFile.State.THERE
    if file.version != memory.version or (data is not None and not is_as_noted):
        return BEHIND
    if is_there and data is None:
        return MISSING
    folder = paths.folder(memory.category, memory.project, now.rules)
    if data is not None and ((is_there and path.parent != folder) or now.is_in_clear(memory, path)):
        return MISPLACED
    return OLDER if is_there and file.rules_version != now.version else ""


# --- other files, and the index pages


def _of_folder(now: Files, unknown: set[str]) -> Iterator[Difference]:
    """Yield a difference for each index page that differs, each copy of a memory's file, and each unreadable file. Add
    the names of all other files to `unknown`."""
    faults: list[FileFault] = []
    there = {str(path) for path in now.disk.files(faults)}
    pages: dict[PurePosixPath, set[str]] = defaultdict(set)
    categories = dict(Memory.objects.of(now.agent).values_list("number", "category"))
    most = LARGEST  # bytes of a page
    for row in VaultFile.objects.filter(agent_id=now.agent.pk).iterator(chunk_size=2_000):
        line = _line(now, row)
        if line is None:
            continue
        there.discard(str(line.path))
        most += 2 * len(line.there().encode())  # the line of the file, and later a crossed-out line
        if row.state == VaultFile.State.THERE and categories[row.number] not in now.closed:
            pages[line.page()].add(line.there())
    listing = sorted({layout.TOP, *pages})
    yield from (Difference(0, INDEX, str(page)) for page in listing if _differs(now, page, pages, most))
    unknown.clear()
    unknown |= {f"folder {nth}" for nth in range(len(faults))}
    for name in sorted(there):
        path = PurePosixPath(name)
        try:
            data = now.disk.read(path) or b""
        except FileFault:
            yield Difference(0, UNREADABLE, name)
            continue
        info = rendering.read_file(data) if path.suffix == ".md" else None
        if info is not None:
            if categories.get(info.number) not in now.closed:
                yield Difference(info.number, COPY, name)
        elif not layout.is_page(path, data) and not path.name.startswith(NEW):
            unknown.add(name)


def _differs(now: Files, page: PurePosixPath, pages: dict[PurePosixPath, set[str]], most: int) -> bool:
    """Return whether an index page differs. A page of more than `most` bytes always differs."""
    try:
        data = now.disk.read(page, most + 1)
    except NotAFile:
        data = None
    except FileFault:
        return True
    if data is None:
        return bool(pages)
    return len(data) > most or not layout.lists(data.decode(errors="replace"), page, pages, now.closed)


class Repaired(NamedTuple):
    """The result of a repair. `repaired` is the number of repaired differences. `indexed` is the number of lines of the
    index pages. `unknown` is the number of files that do not belong to the vault. `left` has the differences that
    remain. `aside` has the old and new path of each file that was moved to .discarded/."""

    repaired: int
    indexed: int
    left: tuple[Difference, ...]
    unknown: int
    aside: tuple[tuple[str, str], ...]

    @property
    def is_done(self) -> bool:
        return not any(each.kind != COPY and (each.number or each.kind == INDEX) for each in self.left)


def repair(agent: Agent, *, progress: Progress = lambda _: None) -> Repaired:
    """Rewrite each file and index page that differs. Copies that people made are not removed. The result has the
    differences that could not be repaired. Raises MemoryDisabled, FileFault, VaultBusy."""
    switches.require_on(agent)
    with writer.opened(agent) as disk:
        require_valid_key()  # while this waits for the lock, somebody may revoke the key or turn memory off
        row = Agent.objects.select_related("tenant").get(pk=agent.pk)
        switches.require_on(row)
        if row.vault_path != agent.vault_path:
            raise FileFault("The agent's vault was changed meanwhile. Nothing was written. Run the command again.")
        for path in list(disk.files([])):
            if path.name.startswith(NEW):  # left by a killed writer
                disk.remove(path)
        found = all_of(Files(row, disk), progress).differences
        differing = [each.number for each in found if each.number and each.kind != COPY]
        VaultFile.objects.filter(agent_id=row.pk, number__among=differing).update(rules_version="")
        writer.reset(row)
        with writer.faults_noted(row.pk):
            writer.sync_locked(row, disk)
        indexed = Files(row, disk).rebuild()
        left = all_of(Files(row, disk))
        aside = tuple((str(path), str(kept)) for path, kept in disk.moved_aside)
        return Repaired(len(set(found) - set(left.differences)), indexed, tuple(left.differences), left.unknown, aside)


def older(agent: Agent) -> int:
    """Return the number of files that were written with another version of the rules. `repair` writes these files
    again."""
    version = settings_document.value(switches.rules_of(agent), "version")
    rows = VaultFile.objects.filter(agent_id=agent.pk, state=VaultFile.State.THERE)
    return rows.exclude(rules_version=version).count()
