"""What differs between a vault and its silo: looked for without a lock, for whoever edits is not to wait for it.

What is found is looked at once more before it is told: meanwhile a file may have been on its way.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from memory.errors import FileFault, NoFile
from memory.models import Agent, Memory, Source, VaultFile
from memory.policy import switches
from memory.run_log.files import Folder, is_file
from memory.vault import base, index_pages, naming, rendering
from memory.vault.disk import ASIDE, LARGEST, LOCK, NEW, Disk
from memory.vault.encrypt_copies import FOUND
from memory.vault.files import Files
from memory.vault.holding import folder_at

BEHIND, MISSING, EDITED, MISPLACED, OLDER = "behind", "missing", "edited", "misplaced", "older"
COPY, INDEX, UNREADABLE = "copy", "index", "unreadable"
KINDS = (BEHIND, MISSING, EDITED, MISPLACED, OLDER, COPY, INDEX, UNREADABLE)
_ROWS = 500

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """One file, and what is not as it should be. `number` is the memory's, 0 for none; `path` is below the vault's
    folder, "" where there is none yet."""

    number: int
    kind: str
    path: str


@dataclass(slots=True)
class Compared:
    """What was found. `unknown`: how many files are none of ours; `after`: the memory to go on behind, None at the
    end."""

    differences: list[Difference] = field(default_factory=list)
    unknown: int = 0
    after: int | None = None


def differences(agent: Agent) -> list[Difference]:
    """All there are, by number. Changes nothing. Raises FileFault."""
    return whole(agent).differences


def whole(agent: Agent, progress: Progress = lambda _: None) -> Compared:
    """The same, and how many files are unknown. Raises FileFault."""
    with looked_at(agent) as now:
        return all_of(now, progress)


def page(agent: Agent, *, after: int = 0, limit: int = _ROWS) -> Compared:
    """Of so many memories behind that number; with the last of them, what else is in the folder. Raises FileFault."""
    with looked_at(agent) as now:
        numbers = _numbers(now, after, limit)
        found = Compared(_twice(numbers, lambda those: list(_of_memories(now, those))))
        if len(numbers) == limit:
            found.after = numbers[-1]
        else:
            _add_rest(now, found)
        return found


@contextmanager
def looked_at(agent: Agent) -> Iterator[Files]:
    """The agent's vault as it stands, with nothing held. Raises MemoryDisabled, FileFault, FileElsewhere."""
    switches.require_on(agent)
    path = Path(agent.vault_path)
    with folder_at(path, base.roots()) as folder:
        disk = Disk(folder, -1) if folder is not None else _Gone(Folder(path, None, ""), -1)
        try:
            disk.require_nobody_elses(base.mark_of(agent))
            yield Files(Agent.objects.select_related("tenant").get(pk=agent.pk), disk)
        finally:
            disk.close()


class _Gone(Disk):
    """A vault's folder that is not there."""

    def read(self, path: PurePosixPath, most: int = LARGEST) -> bytes | None:  # noqa: ARG002  as a Disk does
        return None


def all_of(now: Files, progress: Progress = lambda _: None) -> Compared:
    """What differs in a vault that is looked at, or held."""
    found, after = Compared(), 0
    while numbers := _numbers(now, after, _ROWS):
        found.differences += _twice(numbers, lambda those: list(_of_memories(now, those)))
        after = numbers[-1]
        progress(len(numbers))
    _add_rest(now, found)
    found.differences.sort()
    return found


def _twice(numbers: list[int], look: Callable[[list[int]], list[Difference]]) -> list[Difference]:
    """What is found, and found again."""
    first = look(numbers)
    if not first:
        return []
    again = set(look(sorted({each.number for each in first})))
    return [each for each in first if each in again]


# --- of memories


def _numbers(now: Files, after: int, most: int) -> list[int]:
    rows = Memory.objects.filter(agent_id=now.agent.pk, number__gt=after).order_by("number")
    return list(rows.values_list("number", flat=True)[:most])


def _of_memories(now: Files, numbers: list[int]) -> Iterator[Difference]:
    memories = Memory.objects.filter(agent_id=now.agent.pk, number__among=numbers).defer("sealed").order_by("number")
    files = {
        file.number: file for file in VaultFile.objects.filter(agent_id=now.agent.pk, number__among=numbers).iterator()
    }
    for memory in memories:
        file = files.get(memory.number)
        if memory.category in now.closed:  # nothing of it is written or read back
            continue
        if file is not None:
            yield from _of_file(now, file, memory)
        elif memory.discarded_at is None and memory.source != Source.SYSTEM:
            yield Difference(memory.number, BEHIND, "")


def _of_file(now: Files, file: VaultFile, memory: Memory) -> Iterator[Difference]:
    path = now.path_of(file)
    try:
        where, data = now.where(file, memory)
    except FileFault:
        yield Difference(file.number, UNREADABLE, str(path))
        return
    data = data if where == path else None  # half moved: by a writer that was killed
    yield from (Difference(file.number, kind, str(path)) for kind in _kinds(now, file, memory, path, data))


def _kinds(now: Files, file: VaultFile, memory: Memory, path: PurePosixPath, data: bytes | None) -> Iterator[str]:
    is_as_noted = data is not None and now.silo.digest_of_file(data) == bytes(file.digest)
    is_gone = data is None or not (is_as_noted or _may_be_of(file, data))
    if data is not None and not (is_as_noted or is_gone or now.is_known(file, memory, data)):
        yield EDITED
        return
    is_there = file.state == VaultFile.State.THERE
    if file.version != memory.version or not (is_gone or is_as_noted):
        yield BEHIND
    elif is_gone and is_there:
        yield MISSING
    elif is_there and file.rules_version != now.version:
        yield OLDER
    is_elsewhere = is_there and next(naming.moved_to(path, memory, now.rules)).parent != path.parent
    if not is_gone and (is_elsewhere or now.is_in_clear(memory, path)):
        yield MISPLACED


def _may_be_of(file: VaultFile, data: bytes) -> bool:
    """Whether a file does not say that it is another memory's."""
    said = rendering.read_again(data)
    return said is None or said.number == file.number


# --- of the folder: what else is there, and the indexes


def _add_rest(now: Files, found: Compared) -> None:
    rest, found.unknown = of_folder(now)
    if rest:  # looked for once more
        again, found.unknown = of_folder(now)
        found.differences += [each for each in rest if each in again]


def of_folder(now: Files) -> tuple[list[Difference], int]:
    """Files of memories that nobody wrote there, those that nobody can read, and indexes that do not say what there is;
    and how many others there are."""
    there, others = _walked(now.disk)
    listed = _listed(now, there)
    found, unknown = [Difference(0, INDEX, str(page)) for page in _pages(now, listed)], others
    for path in map(PurePosixPath, sorted(there)):
        if (path.parts[0] == ASIDE and FOUND.search(path.name)) or path.name.startswith(NEW):
            continue
        try:
            data = now.disk.read(path) or b""
        except FileFault:
            found.append(Difference(0, UNREADABLE, str(path)))
            continue
        said = rendering.read_again(data) if path.suffix == ".md" else None
        if said is not None:
            found += [Difference(said.number, COPY, str(path))] if _is_open(now, said.number) else []
        elif not index_pages.is_page(path, data):
            unknown += 1
    return found, unknown


def _walked(disk: Disk) -> tuple[set[str], int]:
    """Every file; and how many other things are called as one, or cannot be looked into."""
    there: set[str] = set()
    closed: list[OSError] = []
    others = 0
    for above, folders, names in os.walk(disk.path, onerror=closed.append, followlinks=False):
        here = disk.below(above)
        others += sum(name.endswith(".md") for name in folders)
        for name in names:
            if name != LOCK and is_file(Path(above, name)):
                there.add(str(here / name))
            elif name != LOCK:
                others += 1
    return there, others + sum(not isinstance(each, FileNotFoundError) for each in closed)


def _listed(now: Files, there: set[str]) -> dict[PurePosixPath, set[int]]:
    """What each index is to say, as hashes of its lines. Memories' own files are taken out of those that are there."""
    lines: dict[PurePosixPath, set[int]] = defaultdict(set)
    for file, memory in _filed(now):
        path = now.path_of(file)
        if str(path) not in there:
            there -= _half_moved(now, file, memory)
        there.discard(str(path))
        if file.state == VaultFile.State.THERE and memory.category not in now.closed:
            line = index_pages.Line.of(memory, path)
            lines[line.page()].add(hash(line.there()))
    return lines


def _half_moved(now: Files, file: VaultFile, memory: Memory) -> set[str]:
    try:
        return {str(now.where(file, memory)[0])}
    except FileFault:
        return set()


def _filed(now: Files) -> Iterator[tuple[VaultFile, Memory]]:
    after = 0
    while True:
        mine = VaultFile.objects.filter(agent_id=now.agent.pk, number__gt=after)
        files = list(mine.order_by("number")[:_ROWS])
        if not files:
            return
        after = files[-1].number
        rows = Memory.objects.filter(agent_id=now.agent.pk, number__among=[file.number for file in files])
        memories = {memory.number: memory for memory in rows.defer("sealed")}
        yield from ((file, memories[file.number]) for file in files)


def _is_open(now: Files, number: int) -> bool:
    """False for a memory of a category that is off: nothing is told of it."""
    row = Memory.objects.filter(agent_id=now.agent.pk, number=number).values_list("category", flat=True).first()
    return row not in now.closed


def _pages(now: Files, lines: dict[PurePosixPath, set[int]]) -> Iterable[PurePosixPath]:
    """The indexes that do not say what there is."""
    for path in index_pages.needed(lines):
        try:
            data = now.disk.read(path, index_pages.LARGEST)
        except NoFile:
            data = None
        except FileFault:
            yield path
            continue
        if data is None or not index_pages.says(data.decode(errors="replace"), path, lines, now.closed):
            yield path
