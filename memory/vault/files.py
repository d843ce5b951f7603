"""The files of some memories, brought to what the silo says: written, moved, put aside, removed.

A file that somebody wrote to is left as it is, and told (`memory.vault.repair`). Nothing of a category that is
switched off is written or moved; what was redacted is removed all the same, and what would be sealed by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from django.utils import timezone

from audit import bulk
from audit.models import AuditEntry
from audit.patience import not_awaited
from memory.errors import FileFault, SealBroken
from memory.models import Agent, Memory, Source, Vault, VaultFile
from memory.policy import paths
from memory.silo.silo import Opened
from memory.vault import index_pages, naming, removing, rendering
from memory.vault.known import Known

AT_ONCE = 250  # files written before their rows are: as many are open
There, SetAside = VaultFile.State.THERE, VaultFile.State.SET_ASIDE
_OF_NEW = ("agent_id", "number", "version", "rules_version", "state", "sealed_path", "digest")
_OF_CHANGED = ("id", *_OF_NEW[2:])


@dataclass(slots=True)
class _Write:
    """A file that is written: what it will say, and where."""

    memory: Memory
    path: PurePosixPath
    data: bytes
    is_listed: bool = False  # in its index, already
    state: VaultFile.State = There
    replaces: PurePosixPath | None = None  # a file of its own, which goes


def has_followed(agent: Agent, seq: int, *, before: int, fault: FileFault | None = None, is_all: bool = False) -> None:
    """That the vault says what entry `seq` left, but for what could not be written (`fault`); unless, since it was at
    `before`, it is to look at all of it again. `is_all`: and of what was owed before, nothing is any more."""
    told: dict[str, Any] = {"fault": "", "fault_at": None} if is_all else {}
    if fault is not None:
        told = {"fault": fault.reason[:200], "fault_at": timezone.now()}
    bulk.change(Vault, {"seq": seq, **told}, '"agent_id" = %s AND "seq" = %s', [agent.pk, before])


@dataclass(slots=True)
class Files(Known):
    """The files of some memories brought to what the silo says."""

    edited: list[int] = field(default_factory=list)  # memories whose files somebody wrote to: left alone
    written: list[int] = field(default_factory=list)
    aside: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    hidden: list[int] = field(default_factory=list)  # sealed from now on
    added: list[index_pages.Line] = field(default_factory=list)
    gone: list[index_pages.Line] = field(default_factory=list)
    fault: FileFault | None = None  # the first, of a file that could not be written or read: it keeps no other waiting
    owes_removal: bool = False  # a file of what was redacted could not be removed
    _refusing: set[PurePosixPath] = field(default_factory=set)  # folders that take no file
    _writes: list[_Write] = field(default_factory=list)
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _taken: set[PurePosixPath] = field(default_factory=set)
    _known: Mapping[int, VaultFile] = field(default_factory=dict)
    _looks: bool = False  # before it writes, whether something is there

    @property
    def are_pages_anew(self) -> bool:
        """Whether the indexes have to be written anew: the name of a file, though it is struck, would say something."""
        return bool(self.removed or self.hidden)

    def take(self, numbers: Sequence[int], *, again: bool = False) -> None:
        """At most AT_ONCE of them, which `finish` gives their places. `again`: where something is already, too."""
        memories = bulk.select(Memory, '"agent_id" = %s', [self.agent.pk], among=("number", numbers))
        self.take_these(memories, again=again)

    def take_these(self, memories: Sequence[Memory], *, are_new: bool = False, again: bool = False) -> None:
        """The same, as they stand. New ones have no files yet."""
        among = ("number", [memory.number for memory in memories])
        found = [] if are_new else bulk.select(VaultFile, '"agent_id" = %s', [self.agent.pk], among=among)
        self._known, self._looks = {file.number: file for file in found}, again
        times = self._times(memories)
        redacted = [memory.number for memory in memories if memory.redacted_at is not None]
        if redacted:
            self._remove(redacted)
        for memory in memories:
            if memory.redacted_at is None and memory.source != Source.SYSTEM:
                self._or_owed(memory, self._known.get(memory.number), times.get(memory.version, memory.created_at))

    def _times(self, memories: Sequence[Memory]) -> dict[int, datetime]:
        """When the topics among them became what they are."""
        versions = [memory.version for memory in memories if memory.category == "topic"]
        if not versions:
            return {}
        entries = AuditEntry.objects.filter(agent_id=self.agent.pk, seq__in=versions)
        return dict(entries.values_list("seq", "at"))

    def _or_owed(self, memory: Memory, file: VaultFile | None, changed_at: datetime) -> None:
        """One of them; what keeps it from being written keeps no other."""
        if file is not None and file.version == memory.version and file.rules_version:
            return
        folder, staged = paths.folder(memory.category, memory.project, self.rules), self.disk.staged
        if folder in self._refusing and memory.discarded_at is None:
            return
        try:
            self._one(memory, file, changed_at)
        except SealBroken:
            self.owe(FileFault(f"{self.disk.path}: a memory's seal is broken", "a memory's seal is broken"))
        except FileFault as fault:
            self.owe(fault)
            self.disk.drop_staged(after=staged)
            if memory.discarded_at is None and not self.disk.takes_files(folder):
                self._refusing.add(folder)

    def owe(self, fault: FileFault) -> None:
        self.fault = self.fault or fault

    def drop(self) -> None:
        """What was begun and is not finished."""
        self.disk.drop_staged()
        self._writes, self._rows, self._taken, self.added, self.gone = [], [], set(), [], []

    def _one(self, memory: Memory, file: VaultFile | None, changed_at: datetime) -> None:
        if memory.category in self.closed:
            if file is not None:
                self._hide(memory, file)
        elif memory.discarded_at is not None:
            if file is not None:
                self._set_aside(memory, file, changed_at)
        else:
            opened, data = self._rendered(memory, changed_at)
            if file is None:
                self._write_first(memory, opened, data)
            else:
                self._rewrite(memory, file, opened, data)

    def _rendered(self, memory: Memory, changed_at: datetime) -> tuple[Opened, bytes]:
        opened = self.shown(memory)
        is_private = paths.is_private(memory.category, self.rules)
        return opened, rendering.rendered(memory, None if is_private else opened, self.version, changed_at)

    def _hide(self, memory: Memory, file: VaultFile) -> None:
        """A file in clear, of a category that became private while it is off: it would be sealed, and is not written,
        so it goes until it is. What somebody wrote to stays."""
        path = self.path_of(file)
        if self.is_in_clear(memory, path):
            there = self._read(path)
            if there is not None and self.silo.digest_of_file(there) == bytes(file.digest):
                self.disk.remove(path)
            self.hidden.append(memory.number)

    # --- what there is to do with one

    def _write_first(self, memory: Memory, opened: Opened, data: bytes) -> None:
        """Where nothing is, as nearly always: where something is, that is found when it takes its place."""
        path = next(naming.candidates(memory, opened, self.rules))
        if self._looks or path in self._taken:
            self._write_beside(memory, opened, data)
        else:
            self.disk.stage(path, data, expected=None)
            self._note(_Write(memory, path, data))

    def _write_beside(
        self, memory: Memory, opened: Opened, data: bytes, *, replaces: PurePosixPath | None = None
    ) -> None:
        """Where something may be already."""
        for path in naming.candidates(memory, opened, self.rules):
            if path in self._taken:
                continue
            there = self._read(path)
            if there is None and not self.disk.is_free(path):
                continue
            if there is not None and there != data:
                if not self._is_of(memory, there):
                    continue
                if self._as_written(memory, there) is None:  # somebody's copy, which is not lost
                    self.disk.out_of_the_way(path)
                    there = None
            if there != data:  # else left by a crash
                self.disk.stage(path, data, expected=there)
            self._note(_Write(memory, path, data, replaces=replaces))
            return
        raise FileFault(f"{self.disk.path}: a memory's file finds no free name", "no free name")

    def _note(self, write: _Write) -> None:
        self._writes.append(write)
        self._taken.add(write.path)

    def _rewrite(self, memory: Memory, file: VaultFile, opened: Opened, data: bytes) -> None:
        path, there = self.where(file, memory)
        was_there = path == self.path_of(file)  # or half moved, and struck in its index
        if there is not None and not self.is_known(file, memory, there):
            if not self._is_anothers(memory, there):
                self.edited.append(memory.number)
                return
            self._write_beside(memory, opened, data)  # its own was removed, and another has the name
            return
        if self.is_in_clear(memory, self.path_of(file)):
            self.hidden.append(memory.number)
        target = self._target(path, memory, opened)
        if (target != path or there is None) and not self.disk.is_free(target):
            self._write_beside(memory, opened, data, replaces=path if there is not None else None)
            return
        self.disk.stage(target, data, expected=there)
        if target != path and there is not None:
            self.disk.move(path, target)
            self.gone += [index_pages.Line.of(memory, path)] if path == naming.back(path) else []
        day = f"{memory.origin:%Y-%m-%d}".encode()  # that its line in the index has, too
        is_dated_so = day not in _title(data) or day in _title(there or b"")
        self._note(_Write(memory, target, data, is_listed=was_there and path == target and is_dated_so))

    def _target(self, path: PurePosixPath, memory: Memory, opened: Opened) -> PurePosixPath:
        """Where its file is from now on: where it was, or in the folder that the settings have by now."""
        if naming.back(path).parent == paths.folder(memory.category, memory.project, self.rules):
            return naming.back(path)
        candidates = naming.candidates(memory, opened, self.rules)
        return next(each for each in candidates if self.disk.is_free(each))

    def _set_aside(self, memory: Memory, file: VaultFile, changed_at: datetime) -> None:
        path, there = self.where(file, memory)
        is_in_clear = self.is_in_clear(memory, path)
        if is_in_clear:
            self.hidden.append(memory.number)
        if there is not None and (is_in_clear or not file.rules_version) and self.is_known(file, memory, there):
            self._write_aside(memory, path, there, changed_at)
            return
        target = naming.aside(path)
        if there is not None and path != target:
            if not self.disk.is_free(target):
                target = target.with_name(f"{target.stem}-{memory.version}.md")
            self.disk.move(path, target)
            self.gone.append(index_pages.Line.of(memory, path))
        if there is not None and self.is_known(file, memory, there):
            file.digest = self.silo.digest_of_file(there)
        file.state, file.version, file.rules_version = SetAside, memory.version, file.rules_version or self.version
        file.sealed_path = self.sealed_path(memory.number, target)
        self._rows.append(vars(file))

    def _write_aside(self, memory: Memory, path: PurePosixPath, there: bytes, changed_at: datetime) -> None:
        """As it would be shown by now: sealed, or without secrets."""
        opened, data = self._rendered(memory, changed_at)
        if path == naming.back(path):
            self.gone.append(index_pages.Line.of(memory, path))
        candidates: Iterable[PurePosixPath] = naming.candidates(memory, opened, self.rules)
        if not self.is_in_clear(memory, path):
            candidates = chain([path], candidates)  # under the name it has
        for target in map(naming.aside, candidates):
            found = there if target == path else self._read(target)
            if target in self._taken or (found not in (None, data) and target != path):
                continue
            if found != data:
                self.disk.stage(target, data, expected=found)
            replaces = path if target != path else None
            self._note(_Write(memory, target, data, is_listed=True, state=SetAside, replaces=replaces))
            return
        raise FileFault(f"{self.disk.path}: a memory's file finds no free name", "no free name")

    def put_where_it_belongs(self, number: int) -> None:
        """A file that is in another folder than the settings have it: written anew there, sealed or not."""
        VaultFile.objects.filter(agent_id=self.agent.pk, number=number).update(version=0)
        self.take([number])
        self.finish()

    def remove_owed(self) -> bool:
        """What was redacted goes first. Whether there was any."""
        owed = list(removing.owed(self.agent).values_list("number", flat=True))
        if owed:
            self._remove(owed)
        return bool(owed)

    def _remove(self, numbers: Sequence[int]) -> None:
        """Every file of theirs: what was redacted is nowhere."""
        known = VaultFile.objects.filter(agent_id=self.agent.pk, number__in=numbers)
        former: dict[int, PurePosixPath | None] = dict.fromkeys(numbers)
        self.removed += numbers
        try:
            removing.remove(self.disk, former | {file.number: self.path_of(file) for file in known})
        except FileFault as fault:
            self.owes_removal = True
            self.owe(fault)
        else:
            known.delete()

    # --- to their places

    def finish(self, *, followed: int | None = None, again: bool = False) -> None:
        """Files to their places, read back; then their lines, and their rows, with the entry that is followed now.

        Those whose places somebody has written to meanwhile are looked at again, once. Raises FileFault.
        """
        refused = set(self.disk.publish())
        left = [each.memory.number for each in self._writes if each.path in refused]
        if left and again:
            raise FileFault(f"{self.disk.path}: somebody is writing to a file", "somebody is writing to a file")
        for each in self._writes:
            if each.path not in refused:
                self._note_written(each)
                if each.replaces is not None:
                    self.disk.remove(each.replaces)
        if not self.are_pages_anew:
            index_pages.add(self.disk, self.added, self.gone)
        with not_awaited():  # what is lost of it is found again, for the files are there
            bulk.insert(VaultFile, [row for row in self._rows if row["id"] is None], _OF_NEW)
            bulk.update(VaultFile, [row for row in self._rows if row["id"] is not None], _OF_CHANGED)
            self.aside += [row["number"] for row in self._rows if row["state"] == SetAside]
            if followed is not None and not left and not self.owes_removal:
                has_followed(self.agent, followed, before=followed - 1, fault=self.fault)
        self.drop()
        if left:
            self.take(left, again=True)
            self.finish(followed=followed, again=True)

    def _note_written(self, each: _Write) -> None:
        if self.disk.read(each.path) != each.data:
            raise FileFault(f"{self.disk.path}: a file is not as it was written", "not read back as it was written")
        known = self._known.get(each.memory.number)
        if not each.is_listed:
            self.added.append(index_pages.Line.of(each.memory, each.path))
        self._rows.append(self._row(each, known))
        if each.state == There:
            self.written.append(each.memory.number)

    def _row(self, each: _Write, known: VaultFile | None) -> dict[str, Any]:
        return {
            "id": known.pk if known else None,
            "agent_id": self.agent.pk,
            "number": each.memory.number,
            "version": each.memory.version,
            "rules_version": self.version,
            "state": each.state,
            "sealed_path": self.sealed_path(each.memory.number, each.path),
            "digest": self.silo.digest_of_file(each.data),
        }


def _title(data: bytes) -> bytes:
    return data.partition(b"\n")[0]
