"""Finds the differences between a vault and its silo, without a lock, so that no edit waits for it; and repairs them.

Each difference is looked for twice: a file may just be on its way. A repair writes again from the silo what differs. A
file that somebody changed is moved aside first, and kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from memory.access.authentication import require_valid_key
from memory.errors import FileFault, NotAFile
from memory.models import Agent, Memory, Source, VaultFile
from memory.policy import paths, settings_document, switches
from memory.run_log.files import Folder
from memory.vault import base, layout, rendering, writer
from memory.vault.base import looked_at
from memory.vault.disk import LARGEST, NEW, Disk
from memory.vault.files import Files
from memory.vault.layout import Line

BEHIND, MISSING, EDITED, MISPLACED, OLDER = "behind", "missing", "edited", "misplaced", "older"
COPY, INDEX, UNREADABLE = "copy", "index", "unreadable"
KINDS = (BEHIND, MISSING, EDITED, MISPLACED, OLDER, COPY, INDEX, UNREADABLE)
_ROWS = 500

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """A file that differs. `number` is the memory's, 0 for none. `path` is below the vault's folder, "" for none."""

    number: int
    kind: str
    path: str


@dataclass(slots=True)
class Compared:
    """What was found. `unknown` counts files that are not the vault's. `after` is the last number of a page, None after
    the last page."""

    differences: list[Difference] = field(default_factory=list)
    unknown: int = 0
    after: int | None = None


def whole(agent: Agent, progress: Progress = lambda _: None) -> Compared:
    """All differences, by number. Changes nothing. Raises MemoryDisabled, FileFault, FileOutsideRoots."""
    with _files(agent) as now:
        return all_of(now, progress)


def page(agent: Agent, *, after: int = 0, limit: int = _ROWS) -> Compared:
    """Differences of the next `limit` memories, and on the last page of other files. Raises what `whole` does."""
    with _files(agent) as now:
        return _page(now, after, limit, lambda _: None)


@contextmanager
def _files(agent: Agent) -> Iterator[Files]:
    """The agent's vault, without its lock."""
    switches.require_on(agent)
    path = Path(agent.vault_path)
    with looked_at(path) as there:
        disk = _Gone(Folder(path, -1, ""), -1) if there is None else there
        disk.require_nobody_elses(base.mark_of(agent))
        yield Files(Agent.objects.select_related("tenant").get(pk=agent.pk), disk)


class _Gone(Disk):
    """A vault without a folder."""

    def read(self, path: PurePosixPath, most: int = LARGEST) -> bytes | None:  # noqa: ARG002  as a Disk does
        return None


def all_of(now: Files, progress: Progress = lambda _: None) -> Compared:
    """All differences of a vault that is held, or looked at."""
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
        if memory.category in now.closed:  # nothing of it is written or told
            continue
        if file is not None:
            path = Line.open(now.silo, file).path
            if kind := _kind(now, file, memory, path):
                yield Difference(memory.number, kind, str(path))
        elif memory.discarded_at is None and memory.source != Source.SYSTEM:
            yield Difference(memory.number, BEHIND, "")


def _kind(now: Files, file: VaultFile, memory: Memory, path: PurePosixPath) -> str:
    """How a file differs, "" if it does not."""
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
    """Index pages that differ, copies of memories' files, and files that cannot be read. Collects other files."""
    faults: list[FileFault] = []
    there = {str(path) for path in now.disk.files(faults)}
    pages: dict[PurePosixPath, set[str]] = defaultdict(set)
    categories = dict(Memory.objects.of(now.agent).values_list("number", "category"))
    for row in VaultFile.objects.filter(agent_id=now.agent.pk).iterator(chunk_size=2_000):
        line = Line.open(now.silo, row)
        there.discard(str(line.path))
        if row.state == VaultFile.State.THERE and categories[row.number] not in now.closed:
            pages[line.page()].add(line.there())
    yield from (Difference(0, INDEX, str(page)) for page in sorted({layout.TOP, *pages}) if _differs(now, page, pages))
    unknown.clear()
    unknown |= {f"folder {nth}" for nth in range(len(faults))}
    for name in sorted(there):
        path = PurePosixPath(name)
        try:
            data = now.disk.read(path) or b""
        except FileFault:
            yield Difference(0, UNREADABLE, name)
            continue
        said = rendering.read_again(data) if path.suffix == ".md" else None
        if said is not None:
            if categories.get(said.number) not in now.closed:
                yield Difference(said.number, COPY, name)
        elif not layout.is_page(path, data) and not path.name.startswith(NEW):
            unknown.add(name)


def _differs(now: Files, page: PurePosixPath, pages: dict[PurePosixPath, set[str]]) -> bool:
    try:
        data = now.disk.read(page, layout.LARGEST)
    except NotAFile:
        data = None
    except FileFault:
        return True
    if data is None:
        return bool(pages)
    return not layout.lists(data.decode(errors="replace"), page, pages, now.closed)


@dataclass(frozen=True, slots=True)
class Repaired:
    """How many differences were repaired, how many lines the index pages have, what is left, how many files are not the
    vault's, and which files were moved aside: from where to where."""

    repaired: int
    indexed: int
    left: tuple[Difference, ...]
    unknown: int
    aside: tuple[tuple[str, str], ...]

    @property
    def is_done(self) -> bool:
        return not any(each.kind != COPY and (each.number or each.kind == INDEX) for each in self.left)


def repair(agent: Agent, *, progress: Progress = lambda _: None) -> Repaired:
    """Make the vault say what the silo says. Copies that people made stay; so does what cannot be written. Raises
    MemoryDisabled, FileFault, VaultBusy."""
    switches.require_on(agent)
    with writer.opened(agent) as disk:
        require_valid_key()  # it may have ended, or memory been switched off, while the lock was waited for
        row = Agent.objects.select_related("tenant").get(pk=agent.pk)
        switches.require_on(row)
        for path in list(disk.files()):
            if path.name.startswith(NEW):  # left by a killed writer
                disk.remove(path)
        found = all_of(Files(row, disk), progress).differences
        differing = [each.number for each in found if each.number and each.kind != COPY]
        VaultFile.objects.filter(agent_id=row.pk, number__among=differing).update(rules_version="")
        writer.begin_anew(row)
        with writer.faults_noted(row.pk):
            writer.bring_held(row, disk)
        indexed = Files(row, disk).rebuild()
        left = all_of(Files(row, disk))
        aside = tuple((str(path), str(kept)) for path, kept in disk.put_aside)
        return Repaired(len(set(found) - set(left.differences)), indexed, tuple(left.differences), left.unknown, aside)


def older(agent: Agent) -> int:
    """How many files were written under another version of the rules. `repair` writes them again."""
    version = settings_document.value(switches.rules_of(agent), "version")
    rows = VaultFile.objects.filter(agent_id=agent.pk, state=VaultFile.State.THERE)
    return rows.exclude(rules_version=version).count()
