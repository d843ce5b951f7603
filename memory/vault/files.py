"""Brings the files of memories to what the silo says: writes, moves, sets aside and removes them.

A file that somebody changed is moved to .discarded/ first, and kept there. Nothing of a category that is off is written
or moved. A redacted memory's files are removed all the same, and files in clear that would be sealed now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from pathlib import PurePosixPath

from django.utils import timezone

from audit.bulk import update_many
from audit.models import AuditEntry, Change
from audit.waiting import without_disk_sync
from memory.errors import FileFault, Invalid, NoFile, SealBroken
from memory.models import Agent, Memory, Source, VaultFile
from memory.policy import paths, settings_document, switches
from memory.policy.categories import PRIVATE, SCOPES
from memory.silo.silo import Opened, Silo
from memory.vault import layout, removing, rendering
from memory.vault.disk import ASIDE, LARGEST, Disk
from memory.vault.layout import Line
from memory.vault.rendering import shown
from memory.writing import edits
from memory.writing.edits import fields_of

AT_ONCE = 250  # files written before their rows are
There, SetAside = VaultFile.State.THERE, VaultFile.State.SET_ASIDE
_CHANGEABLE = ("version", "rules_version", "state", "sealed_path", "digest")
_BACK = 50  # versions in which a file is looked for that a killed writer left
_IS_CHANGING = "somebody is writing to a file"


@dataclass(frozen=True, slots=True)
class _Write:
    """A staged file. `file` is its row, `before` its line in an index page until now. `replaces` is removed then."""

    memory: Memory
    line: Line
    data: bytes
    file: VaultFile | None
    before: Line | None
    replaces: PurePosixPath | None
    replaced: bytes | None

    @property
    def state(self) -> VaultFile.State:
        return There if self.memory.discarded_at is None else SetAside


class Files:
    """An agent's vault, as its folder, its rows and its trail have it. `fault` is the first fault of a file: it keeps
    no other file waiting."""

    def __init__(self, agent: Agent, disk: Disk) -> None:
        self.agent, self.disk = agent, disk
        self.silo, self.rules = Silo.for_agent(agent), switches.rules_of(agent)
        self.version: str = settings_document.value(self.rules, "version")
        self.closed = switches.closed(agent) if agent.memory_enabled else frozenset(SCOPES)
        self.fault: FileFault | None = None
        self.are_pages_stale = False  # a struck line would still say something of a memory: write the pages again
        self._writes: list[_Write] = []

    # --- many

    def bring(self, numbers: Iterable[int]) -> None:
        """Bring the files of these memories to what the silo says. Faults are noted in `fault`."""
        remaining = iter(numbers)
        while batch := list(islice(remaining, AT_ONCE)):
            try:
                self._bring_together(batch)
            except FileFault:  # one by one, then
                self.drop()
                for number in batch:
                    try:
                        self._bring_together([number])
                    except FileFault as fault:
                        self._note(fault)
                        self.drop()

    def _bring_together(self, numbers: Sequence[int]) -> None:
        self.take(numbers)
        self.finish()

    def rebuild(self) -> int:
        """Write the index pages again. Returns how many lines they have, 0 after a fault."""
        rows = VaultFile.objects.filter(agent_id=self.agent.pk, state=There).order_by("number")
        if self.closed:
            mine = Memory.objects.of(self.agent).filter(category__in=self.closed)
            rows = rows.exclude(number__in=mine.values("number"))
        try:
            lines = (Line.open(self.silo, row) for row in rows.iterator(chunk_size=2_000))
            return layout.rebuild(self.disk, lines)
        except FileFault as fault:
            self._note(fault)
            self.drop()
            return 0

    def drop(self) -> None:
        """Forget what is staged."""
        self.disk.drop_staged()
        self._writes = []

    def _note(self, fault: FileFault) -> None:
        self.fault = self.fault or fault

    # --- one

    def take(self, numbers: Sequence[int]) -> None:
        """Stage the files of at most AT_ONCE memories. `finish` gives them their places."""
        memories = Memory.objects.of(self.agent).numbered(numbers)
        rows = VaultFile.objects.filter(agent_id=self.agent.pk, number__among=list(numbers))
        files = {row.number: row for row in rows}
        times = self._times(memories)
        if redacted := [memory.number for memory in memories if memory.redacted_at is not None]:
            self.remove(redacted)
        for memory in memories:
            file = files.get(memory.number)
            is_done = file is not None and file.version == memory.version and file.rules_version
            if is_done or memory.redacted_at is not None or memory.source == Source.SYSTEM:
                continue
            try:
                self._take_one(memory, file, times.get(memory.version, memory.created_at))
            except SealBroken:
                self._note(FileFault(f"{self.disk.path}: a memory's seal is broken", "a memory's seal is broken"))
            except FileFault as fault:
                self._note(fault)

    def _times(self, memories: Iterable[Memory]) -> dict[int, datetime]:
        """When the topics among them last changed: their files say so."""
        versions = [memory.version for memory in memories if memory.category == "topic"]
        entries = AuditEntry.objects.filter(agent_id=self.agent.pk, seq__in=versions) if versions else None
        return dict(entries.values_list("seq", "at")) if entries is not None else {}

    def _take_one(self, memory: Memory, file: VaultFile | None, changed_at: datetime) -> None:
        before = Line.open(self.silo, file) if file is not None else None
        was_in_clear = before is not None and self.is_in_clear(memory, before.path)
        self.are_pages_stale |= was_in_clear
        old, there = self._where(memory, before.path) if before is not None else (None, None)
        if memory.category in self.closed:
            if file and old and was_in_clear and there and self.silo.digest_of_file(there) == bytes(file.digest):
                self._retire(memory, old, there)
            return
        if file and old and there is not None and not self.is_known(file, memory, there):
            if not self.is_anothers(memory, there):
                self.keep(memory, old)
            there = None
        opened = shown(memory, self.silo.open(memory), self.rules)
        if memory.discarded_at is not None and file is None:
            old, there = self._left_by_a_killed_writer(memory, opened)
            self.are_pages_stale |= there is not None  # they may list it
        path, expected = self._place(memory, opened, file, old, there)
        if memory.discarded_at is not None and file is None and expected is None and there is None:
            return  # it never had a file
        is_private = paths.is_private(memory.category, self.rules)
        data = rendering.rendered(memory, None if is_private else opened, self.version, changed_at)
        self.disk.stage(path, data, expected=expected)
        line = Line.of(memory, path, layout.title_in_index(memory, opened, path, self.rules))
        replaces = old if there is not None and old != path else None
        listed = before if file and file.state == There else None
        self._writes.append(_Write(memory, line, data, file, listed, replaces, there))

    def _where(self, memory: Memory, path: PurePosixPath) -> tuple[PurePosixPath, bytes | None]:
        """Where its file is, and what it says. A killed writer may have moved it without its row."""
        there = self.read(path)
        other = layout.back(path) if layout.aside(path) == path else layout.aside(path)
        moved = self.read(other) if there is None else None
        return (other, moved) if moved is not None and self.as_written(memory, moved) else (path, there)

    def _left_by_a_killed_writer(self, memory: Memory, opened: Opened) -> tuple[PurePosixPath | None, bytes | None]:
        """The file of a memory that was discarded before its file had a row."""
        for path in layout.candidates(memory, opened, self.rules):
            found = self.read(path)
            if found is None:
                break
            if self.as_written(memory, found):
                return path, found
        return None, None

    def _place(
        self, memory: Memory, opened: Opened, file: VaultFile | None, old: PurePosixPath | None, there: bytes | None
    ) -> tuple[PurePosixPath, bytes | None]:
        """Where its file goes, and what is there now: the file itself, or one that a killed writer left. A file keeps
        its name while its folder stays the same."""
        candidates = layout.candidates(memory, opened, self.rules)
        folder = paths.folder(memory.category, memory.project, self.rules)
        if file and old and file.rules_version and layout.back(old).parent == folder:
            candidates = chain([layout.back(old)], candidates)
        taken = {each.line.path for each in self._writes}
        for path in candidates if memory.discarded_at is None else map(layout.aside, candidates):
            if path in taken:
                continue
            found = there if path == old and there is not None else self.read(path)
            if found is None and self.disk.is_free(path):
                return path, None
            if found is not None and (found is there or self.as_written(memory, found)):
                return path, found
        raise FileFault(f"{self.disk.path}: no free name for a file", "no free name")

    def keep(self, memory: Memory, path: PurePosixPath) -> None:
        """Move a file that somebody changed to .discarded/. The copy is sealed if the memory is private."""
        self.disk.out_of_the_way(path)
        self._seal_copies({path: memory}, since=len(self.disk.put_aside) - 1)

    def _seal_copies(self, memories: Mapping[PurePosixPath, Memory], *, since: int) -> None:
        for nth, (path, kept) in enumerate(self.disk.put_aside[since:], since):
            memory = memories.get(path)
            if memory is not None and paths.is_private(memory.category, self.rules):
                target = self._seal_copy(memory, kept)
                self.disk.put_aside[nth] = path, target

    def _seal_copy(self, memory: Memory, path: PurePosixPath) -> PurePosixPath:
        """Put a sealed file in the place of a copy in .discarded/. Returns its path: that of the copy as it is, if
        somebody is writing to it or if it is too large. Raises FileFault."""
        data = self.disk.read(path) or b""
        if len(data) >= LARGEST or self.disk.is_written(path):
            return path
        kept = copy(memory)
        try:
            kept.sealed = self.silo.seal(memory.number, data.decode(), ())
        except UnicodeDecodeError:
            kept.sealed = self.silo.seal(memory.number, data.decode("latin-1"), ())  # each byte as it is
        folder = paths.folder(memory.category, memory.project, self.rules)
        is_in_place = path.parent == PurePosixPath(ASIDE, folder)
        target = path if is_in_place else self.disk.free_aside(folder / paths.file_name(memory.number))
        shown = rendering.rendered(kept, None, self.version, timezone.now())
        self.disk.stage(target, shown, expected=data if is_in_place else None)
        if target in self.disk.publish():
            return path
        if not is_in_place and self.disk.read(path) == data:
            self.disk.remove(path)
        return target

    def _retire(self, memory: Memory, path: PurePosixPath, expected: bytes) -> None:
        """Remove a file from its old place. One that somebody just changed is kept."""
        since = len(self.disk.put_aside)
        if self.disk.retire(path, expected):
            self._seal_copies({path: memory}, since=since)
        else:
            self.keep(memory, path)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove every file of redacted memories."""
        known = VaultFile.objects.filter(agent_id=self.agent.pk, number__in=numbers)
        former: dict[int, PurePosixPath | None] = dict.fromkeys(numbers)
        self.are_pages_stale = True
        try:
            removing.remove(self.disk, former | {row.number: Line.open(self.silo, row).path for row in known})
        except FileFault as fault:
            self._note(fault)
        else:
            known.delete()

    # --- to their places

    def finish(self, *, again: bool = False) -> None:
        """Publish the staged files and read them back, then write their lines and rows. A file that somebody changed
        meanwhile is taken once more. Raises FileFault."""
        since = len(self.disk.put_aside)
        refused = set(self.disk.publish())
        self._seal_copies({each.line.path: each.memory for each in self._writes}, since=since)
        done = [each for each in self._writes if each.line.path not in refused]
        left = [each.memory.number for each in self._writes if each.line.path in refused]
        self._writes = []
        if left and again:
            raise FileFault(f"{self.disk.path}: {_IS_CHANGING}", _IS_CHANGING)
        for each in done:
            if self.disk.read(each.line.path) != each.data:
                reason = "not read back as it was written"
                raise FileFault(f"{self.disk.path}: a file was {reason}", reason)
            if each.replaces is not None:
                self._retire(each.memory, each.replaces, each.replaced or b"")
        if not self.are_pages_stale:
            changed = [each for each in done if each.before != each.line or each.state == SetAside]
            added = [each.line for each in changed if each.state == There]
            gone = [each.before for each in changed if each.before is not None]
            layout.add(self.disk, added, gone)
        with without_disk_sync():  # a lost row does no harm: the file is found again
            VaultFile.objects.bulk_create([self._row(each) for each in done if each.file is None])
            update_many([self._row(each) for each in done if each.file is not None], _CHANGEABLE)
        if left:
            self.take(left)
            self.finish(again=True)

    def _row(self, each: _Write) -> VaultFile:
        return VaultFile(
            pk=each.file.pk if each.file else None,
            agent_id=self.agent.pk,
            number=each.memory.number,
            version=each.memory.version,
            rules_version=self.version,
            state=each.state,
            sealed_path=each.line.seal(self.silo, each.memory.number),
            digest=self.silo.digest_of_file(each.data),
        )

    # --- what a file says

    def read(self, path: PurePosixPath) -> bytes | None:
        """None if there is no file, or something that is not a file."""
        try:
            return self.disk.read(path)
        except NoFile:
            return None

    def is_in_clear(self, memory: Memory, path: PurePosixPath) -> bool:
        """Whether the path is outside private/, and the memory is private now."""
        return paths.is_private(memory.category, self.rules) and layout.back(path).parts[0] != PRIVATE

    def is_known(self, file: VaultFile, memory: Memory, data: bytes) -> bool:
        """Whether this service wrote the file, and nobody changed it."""
        return self.silo.digest_of_file(data) == bytes(file.digest) or self.as_written(memory, data)

    def is_anothers(self, memory: Memory, data: bytes) -> bool:
        """Whether a file names another memory. If it names none, an edit has removed the number."""
        return rendering.number_in(data.decode(errors="replace")) not in (None, memory.number)

    def as_written(self, memory: Memory, data: bytes) -> bool:
        """Whether a file is one of the last versions of a memory: a killed writer left it without its row."""
        said = rendering.read_again(data)
        if said is None or said.number != memory.number:
            return False
        return any(
            rendering.rendered(before, opened if said.sealed is None else None, said.version, at) == data
            for before, opened, at in self._versions(memory)
        )

    def _versions(self, memory: Memory) -> Iterator[tuple[Memory, Opened, datetime]]:
        changes = Change.objects.filter(agent_id=self.agent.pk, number=memory.number).order_by("-seq")[:_BACK]
        entries = AuditEntry.objects.filter(agent_id=self.agent.pk, seq__in=[change.seq for change in changes])
        times = dict(entries.values_list("seq", "at"))
        for change in changes:
            before = copy(memory)
            for name, value in fields_of(bytes(change.after or b"")).items():
                setattr(before, name, value)
            if before.sealed:  # its body was not redacted
                yield before, shown(before, self.silo.open(before), self.rules), times[change.seq]


def open_file(agent: Agent, data: bytes) -> Opened:
    """What the sealed block of a file says, for the agent itself. Raises Invalid, SealBroken, Erased, MemoryDisabled,
    CategoryDisabled."""
    edits.require_key(agent)
    switches.require_on(agent)
    said = rendering.read_again(data)
    if said is None:
        raise Invalid("file", "is not the file of a memory")
    if said.sealed is None:
        raise Invalid("file", "is not sealed: read it as it is")
    switches.require_readable(agent, edits.fetch(agent, [said.number]))
    return Silo.for_agent(agent).open_sealed(said.number, said.sealed)
