"""The files of some memories, brought to what the silo says: written, moved, put aside, removed.

A file that somebody wrote to is left as it is, and told (`memory.vault.mending`). Nothing of a category that is
switched off is written or moved; what was redacted is removed all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from django.utils import timezone

from audit import rowset
from audit.models import AuditEntry, Change
from audit.patience import not_awaited
from memory.errors import FileFault, NoFile, SealBroken
from memory.models import Agent, Memory, Source
from memory.rules import document, gate, places
from memory.rules.categories import SCOPES
from memory.rules.rows import Vault, VaultFile
from memory.silo.silo import Opened, Silo
from memory.snapshot import restore
from memory.vault import naming, pages, removing, rendering
from memory.vault.disk import Disk
from memory.vault.shown import shown

AT_ONCE = 250  # files written before their rows are: as many are open
_BACK = 50  # versions that are looked through for what a crash left
There, SetAside = VaultFile.State.THERE, VaultFile.State.SET_ASIDE
_OF_NEW = ("agent_id", "number", "version", "rules_version", "state", "sealed_path", "digest")
_OF_CHANGED = ("id", *_OF_NEW[2:])


def closed(agent: Agent) -> frozenset[str]:
    """The categories nothing is written of: those that are switched off, all while memory is."""
    return gate.closed(agent) if agent.memory_enabled else frozenset(SCOPES)


def _as_it_was(memory: Memory, state: bytes) -> Memory | None:
    """None for a state whose body was redacted."""
    before = copy(memory)
    for name, value in restore(state).items():
        setattr(before, name, value)
    return before if before.sealed else None


@dataclass(slots=True)
class _Write:
    """A file that is written: what it will say, and where."""

    memory: Memory
    path: PurePosixPath
    data: bytes
    is_listed: bool = False  # in its index, already


def has_followed(agent: Agent, seq: int, *, before: int, fault: FileFault | None = None, is_all: bool = False) -> None:
    """That the vault says what entry `seq` left, but for what could not be written (`fault`); unless, since it was at
    `before`, it is to look at all of it again. `is_all`: and of what was owed before, nothing is any more."""
    told: dict[str, Any] = {"fault": "", "fault_at": None} if is_all else {}
    if fault is not None:
        told = {"fault": fault.reason[:200], "fault_at": timezone.now()}
    Vault.objects.filter(agent_id=agent.pk, seq=before).update(seq=seq, **told)


@dataclass(slots=True)
class Files:
    """The files of some memories brought to what the silo says."""

    agent: Agent
    disk: Disk
    edited: list[int] = field(default_factory=list)  # memories whose files somebody wrote to: left alone
    written: list[int] = field(default_factory=list)
    aside: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    hidden: list[int] = field(default_factory=list)  # sealed from now on
    added: list[pages.Line] = field(default_factory=list)
    gone: list[pages.Line] = field(default_factory=list)
    fault: FileFault | None = None  # the first, of a file that could not be written or read: it keeps no other waiting
    owes_removal: bool = False  # a file of what was redacted could not be removed
    _refusing: set[PurePosixPath] = field(default_factory=set)  # folders that take no file
    _writes: list[_Write] = field(default_factory=list)
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _taken: set[PurePosixPath] = field(default_factory=set)
    _known: Mapping[int, VaultFile] = field(default_factory=dict)
    _looks: bool = False  # before it writes, whether something is there

    silo: Silo = field(init=False)
    rules: Mapping[str, Any] = field(init=False)
    version: str = field(init=False)
    closed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.silo = Silo.for_agent(self.agent)
        self.rules = gate.rules_of(self.agent)
        self.version = document.value(self.rules, "version")
        self.closed = closed(self.agent)

    @property
    def are_pages_anew(self) -> bool:
        """Whether the indexes have to be written anew: the name of a file, though it is struck, would say something."""
        return bool(self.removed or self.hidden)

    def take(self, numbers: Sequence[int], *, again: bool = False) -> None:
        """At most AT_ONCE of them, which `finish` gives their places. `again`: where something is already, too."""
        memories = rowset.select(Memory, '"agent_id" = %s', [self.agent.pk], among=("number", numbers))
        self.take_these(memories, again=again)

    def take_these(self, memories: Sequence[Memory], *, are_new: bool = False, again: bool = False) -> None:
        """The same, as they stand. New ones have no files yet."""
        among = ("number", [memory.number for memory in memories])
        found = [] if are_new else rowset.select(VaultFile, '"agent_id" = %s', [self.agent.pk], among=among)
        self._known, self._looks = {file.number: file for file in found}, again
        times = self._times(memories)
        redacted = [memory.number for memory in memories if memory.redacted_at is not None]
        if redacted:
            self._remove(redacted)
        for memory in memories:
            if memory.redacted_at is None and memory.source != Source.SYSTEM and memory.category not in self.closed:
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
        folder, staged = places.folder(memory.category, memory.project, self.rules), self.disk.staged
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
        if memory.discarded_at is not None:
            if file is not None:
                self._set_aside(memory, file)
            return
        opened = self.shown(memory)
        is_private = places.is_private(memory.category, self.rules)
        data = rendering.rendered(memory, None if is_private else opened, self.version, changed_at)
        if file is None:
            self._write_first(memory, opened, data)
        else:
            self._rewrite(memory, file, opened, data)

    # --- what there is to do with one

    def _write_first(self, memory: Memory, opened: Opened, data: bytes) -> None:
        """Where nothing is, as nearly always: where something is, that is found when it takes its place."""
        path = next(naming.candidates(memory, opened, self.rules))
        if self._looks or path in self._taken:
            self._write_beside(memory, opened, data)
        else:
            self.disk.stage(path, data, expected=None)
            self._note(_Write(memory, path, data))

    def _write_beside(self, memory: Memory, opened: Opened, data: bytes) -> None:
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
            self._note(_Write(memory, path, data))
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
        target = self._target(path, memory, opened)
        if (target != path or there is None) and not self.disk.is_free(target):
            self._write_beside(memory, opened, data)
            return
        self.disk.stage(target, data, expected=there)
        if target != path and there is not None:
            self.disk.move(path, target)
            self.gone += [pages.Line.of(memory, path)] if path == naming.back(path) else []
            self.hidden += [memory.number] if places.is_private(memory.category, self.rules) else []
        self._note(_Write(memory, target, data, is_listed=was_there and path == target))

    def _target(self, path: PurePosixPath, memory: Memory, opened: Opened) -> PurePosixPath:
        """Where its file is from now on: where it was, or in the folder that the settings have by now."""
        if naming.back(path).parent == places.folder(memory.category, memory.project, self.rules):
            return naming.back(path)
        candidates = naming.candidates(memory, opened, self.rules)
        return next(each for each in candidates if self.disk.is_free(each))

    def _set_aside(self, memory: Memory, file: VaultFile) -> None:
        path, there = self.where(file, memory)
        target = naming.aside(path)
        if there is not None and path != target:
            if not self.disk.is_free(target):
                target = target.with_name(f"{target.stem}-{memory.version}.md")
            self.disk.move(path, target)
            self.gone.append(pages.Line.of(memory, path))
        if there is not None and self.is_known(file, memory, there):
            file.digest = self.silo.digest_of_file(there)
        file.state, file.version = SetAside, memory.version
        file.sealed_path = self.sealed_path(memory.number, target)
        self._rows.append(vars(file))

    def where(self, file: VaultFile, memory: Memory) -> tuple[PurePosixPath, bytes | None]:
        """Where its file is, and what it says: where its row has it, or where a crash left it on its way."""
        path = self.path_of(file)
        there = self._read(path)
        if there is None:
            other = naming.back(path) if naming.aside(path) == path else naming.aside(path)
            found = self._read(other)
            if found is not None and self.is_known(file, memory, found):
                return other, found
        return path, there

    def _read(self, path: PurePosixPath) -> bytes | None:
        """What a file says. What is no file has taken its place: its own is gone."""
        try:
            return self.disk.read(path)
        except NoFile:
            return None

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
        paths: dict[int, PurePosixPath | None] = dict.fromkeys(numbers)
        self.removed += numbers
        try:
            removing.remove(self.disk, paths | {file.number: self.path_of(file) for file in known})
        except FileFault as fault:
            self.owes_removal = True
            self.owe(fault)
        else:
            known.delete()

    def is_known(self, file: VaultFile, memory: Memory, data: bytes) -> bool:
        """Whether a file says what was written to it, and nobody else's words."""
        return self.silo.digest_of_file(data) == bytes(file.digest) or self._as_written(memory, data) is not None

    def is_left_by_a_crash(self, memory: Memory, path: PurePosixPath, data: bytes) -> bool:
        """Whether a file nobody knows of is one that was written, and whose row was not."""
        before = self._as_written(memory, data)
        return before is not None and path in islice(naming.candidates(*before, self.rules), 3)

    def _as_written(self, memory: Memory, data: bytes) -> tuple[Memory, Opened] | None:
        """The memory as it was when it said what this file says; None where it never did."""
        said = rendering.read_again(data)
        if said is None or said.number != memory.number:
            return None
        changes = Change.objects.filter(agent_id=self.agent.pk, number=memory.number).order_by("-seq")[:_BACK]
        entries = AuditEntry.objects.filter(agent_id=self.agent.pk, seq__in=[change.seq for change in changes])
        times = dict(entries.values_list("seq", "at"))
        for change in changes:
            before = _as_it_was(memory, bytes(change.after or b""))
            opened = self.shown(before) if before else None
            told = opened if said.sealed is None else None
            if before and opened and rendering.rendered(before, told, said.version, times[change.seq]) == data:
                return before, opened
        return None

    def shown(self, memory: Memory) -> Opened:
        """What a memory's file shows of it."""
        return shown(memory, self.silo.open(memory), self.rules)

    def _is_anothers(self, memory: Memory, data: bytes) -> bool:
        """Whether a file says that it is another memory's. One that says none has lost its number to an edit."""
        number = rendering.number_in(data.decode(errors="replace"))
        return number not in (None, memory.number)

    def _is_of(self, memory: Memory, data: bytes) -> bool:
        said = rendering.read_again(data)
        return said is not None and said.number == memory.number

    # --- rows

    def path_of(self, file: VaultFile) -> PurePosixPath:
        return PurePosixPath(self.silo.open_text("vault", file.number, bytes(file.sealed_path)))

    def sealed_path(self, number: int, path: PurePosixPath) -> bytes:
        return self.silo.seal_text("vault", number, str(path))

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
        if not self.are_pages_anew:
            pages.add(self.disk, self.added, self.gone)
        with not_awaited():  # what is lost of it is found again, for the files are there
            rowset.insert(VaultFile, [row for row in self._rows if row["id"] is None], _OF_NEW)
            rowset.update(VaultFile, [row for row in self._rows if row["id"] is not None], _OF_CHANGED)
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
            self.added.append(pages.Line.of(each.memory, each.path))
        self._rows.append(self._row(each, known))
        self.written.append(each.memory.number)

    def _row(self, each: _Write, known: VaultFile | None) -> dict[str, Any]:
        return {
            "id": known.pk if known else None,
            "agent_id": self.agent.pk,
            "number": each.memory.number,
            "version": each.memory.version,
            "rules_version": self.version,
            "state": There,
            "sealed_path": self.sealed_path(each.memory.number, each.path),
            "digest": self.silo.digest_of_file(each.data),
        }
