"""A vault follows its silo: after each commit the files of the memories it touched are written, moved or removed.

The trail is the outbox. A vault knows up to which entry it has followed; what came since names the memories to look at,
and each file's row says which version of its memory was written. So nothing is noted beside the edit itself, an attempt
that failed is made again by whoever comes next, and one that was made twice finds nothing to do.

A file that somebody wrote to is left as it is, and told (`memory.vault.mending`). Nothing of a category that is
switched off is written or moved; what was redacted is removed all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path, PurePosixPath
from threading import local
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils import timezone

from audit import rowset
from audit.models import AuditEntry, Change
from memory.errors import FileFault, MemoryFault
from memory.models import Agent, Memory, Source
from memory.rules import document, gate
from memory.rules.categories import SCOPES
from memory.rules.rows import Vault, VaultFile
from memory.silo.silo import Opened, Silo
from memory.snapshot import restore
from memory.vault import naming, pages, rendering
from memory.vault.disk import Disk, held

log = structlog.get_logger("palimpsest.vault")

_BACK = 50  # versions that are looked through for what a crash left
AT_ONCE = 250  # files written before their rows are: as many are open
There, SetAside = VaultFile.State.THERE, VaultFile.State.SET_ASIDE
_OF_NEW = ("agent_id", "number", "version", "rules_version", "state", "sealed_path", "digest")
_OF_CHANGED = ("id", *_OF_NEW[2:])


def follow(agent_id: int) -> None:
    """Have the agent's vault say what its silo says. What keeps it from that is logged and kept, and raises nothing:
    the edit that it follows stands."""
    agent = Agent.objects.select_related("tenant").filter(pk=agent_id).exclude(vault_path="").first()
    if agent is None or agent_id in _held_here.agents or not is_behind(agent):
        return
    try:
        bring(agent)
    except FileFault as fault:
        _note_fault(agent, fault.reason)
    except (MemoryFault, DatabaseError) as fault:  # a key that is gone, a database that is: by its class
        _note_fault(agent, type(fault).__name__)


def is_behind(agent: Agent) -> bool:
    seen = Vault.objects.filter(agent_id=agent.pk).values_list("seq", flat=True).first()
    return seen is None or seen < agent.audit_seq


def bring(agent: Agent, numbers: Iterable[int] | None = None) -> Following | None:
    """The same for these memories, or for those that entries touched which it has not followed yet. None for an agent
    that was erased: its files are removed. Raises FileFault, MemoryFault."""
    with opened(agent) as disk:
        now = Agent.objects.select_related("tenant").get(pk=agent.pk)  # as it stands while nobody else writes
        if now.vault_path != agent.vault_path:
            raise FileFault("The vault of this agent is another one since.", "another vault since")
        if not now.wrapped_key:
            pages.remove_all(disk)
            _let_go(now)
            return None
        following = Following(now, disk)
        for batch in _batched(_touched(now) if numbers is None else numbers):
            following.take(batch)
        if following.removed:  # a struck name would still say something of it
            pages.rebuild(disk, now, following.rules)
        else:
            pages.add(disk, following.added, following.gone)
        if numbers is None:
            Vault.objects.update_or_create(
                agent_id=now.pk, defaults={"seq": now.audit_seq, "fault": "", "fault_at": None}
            )
        return following


def file_of(agent: Agent, number: int) -> str | None:
    """Where a memory's file is, as the memory stands: None where it has none, or one of an earlier version."""
    file = VaultFile.objects.filter(agent_id=agent.pk, number=number, state=There).first()
    memory = Memory.objects.filter(agent_id=agent.pk, number=number).values_list("version", flat=True).first()
    if file is None or file.version != memory:
        return None
    path = Path(agent.vault_path) / Silo.for_agent(agent).open_text("vault", number, bytes(file.sealed_path))
    return str(path) if path.is_file() else None


class _HeldHere(local):
    """Agents whose vaults this thread holds: whoever does follows their silo itself, once it is done."""

    def __init__(self) -> None:
        self.agents: set[int] = set()


_held_here = _HeldHere()


@contextmanager
def opened(agent: Agent) -> Iterator[Disk]:
    """The agent's vault, held. Raises FileFault, FileElsewhere."""
    with held(Path(agent.vault_path), tuple(Path(root) for root in settings.VAULT_ROOTS)) as disk:
        _held_here.agents.add(agent.pk)
        try:
            yield disk
        finally:
            _held_here.agents.discard(agent.pk)


def _touched(agent: Agent) -> Iterator[int]:
    seen = Vault.objects.filter(agent_id=agent.pk).values_list("seq", flat=True).first()
    changes = Change.objects.filter(agent_id=agent.pk, seq__gt=seen or 0)
    yield from changes.order_by("number").values_list("number", flat=True).distinct().iterator(chunk_size=2_000)


def _batched(numbers: Iterable[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    for number in numbers:
        batch.append(number)
        if len(batch) == AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _note_fault(agent: Agent, why: str) -> None:
    log.error("vault not followed", agent=agent.pk, reason=why)
    Vault.objects.update_or_create(
        agent_id=agent.pk,
        defaults={"fault": why[:200], "fault_at": timezone.now()},
        create_defaults={"fault": why[:200], "fault_at": timezone.now(), "seq": 0},
    )


def _let_go(agent: Agent) -> None:
    """Of the vault of an agent that was erased, once nothing is in it."""
    with transaction.atomic():
        forget(agent)
        Agent.objects.filter(pk=agent.pk, wrapped_key=b"").update(vault_path="")


def begin_anew(agent: Agent) -> None:
    """Have its vault look at every memory again with the next commit."""
    Vault.objects.filter(agent_id=agent.pk).update(seq=0)


def forget(agent: Agent) -> None:
    """What is known of its files; the files stay."""
    VaultFile.objects.filter(agent_id=agent.pk).delete()
    Vault.objects.filter(agent_id=agent.pk).delete()


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


@dataclass(slots=True)
class Following:
    """The files of some memories brought to what the silo says."""

    agent: Agent
    disk: Disk
    edited: list[int] = field(default_factory=list)  # memories whose files somebody wrote to: left alone
    written: list[int] = field(default_factory=list)
    aside: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    added: list[pages.Line] = field(default_factory=list)
    gone: list[pages.Line] = field(default_factory=list)
    _writes: list[_Write] = field(default_factory=list)
    _rows: dict[int, VaultFile] = field(default_factory=dict)

    silo: Silo = field(init=False)
    rules: Mapping[str, Any] = field(init=False)
    version: str = field(init=False)
    closed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.silo = Silo.for_agent(self.agent)
        self.rules = gate.rules_of(self.agent)
        self.version = document.value(self.rules, "version")
        self.closed = closed(self.agent)

    def take(self, numbers: Sequence[int]) -> None:
        """At most AT_ONCE of them."""
        memories = rowset.select(Memory, '"agent_id" = %s', [self.agent.pk], among=("number", numbers))
        found = rowset.select(VaultFile, '"agent_id" = %s', [self.agent.pk], among=("number", numbers))
        files = {file.number: file for file in found}
        times = self._times(memories)
        redacted = [memory.number for memory in memories if memory.redacted_at is not None]
        if redacted:
            self._remove(redacted)
        for memory in memories:
            if memory.redacted_at is None and memory.source != Source.SYSTEM and memory.category not in self.closed:
                self._one(memory, files.get(memory.number), times.get(memory.version, memory.created_at))
        self._finish(files)

    def _times(self, memories: Sequence[Memory]) -> dict[int, datetime]:
        """When the topics among them became what they are."""
        versions = [memory.version for memory in memories if memory.category == "topic"]
        if not versions:
            return {}
        entries = AuditEntry.objects.filter(agent_id=self.agent.pk, seq__in=versions)
        return dict(entries.values_list("seq", "at"))

    def _one(self, memory: Memory, file: VaultFile | None, changed_at: datetime) -> None:
        if file is not None and file.version == memory.version:
            return
        if memory.discarded_at is not None:
            if file is not None:
                self._set_aside(memory, file)
            return
        data = rendering.rendered(memory, self.silo.open(memory), self.version, changed_at)
        if file is None:
            self._write_first(memory, data)
        else:
            self._rewrite(memory, file, data)

    # --- what there is to do with one

    def _write_first(self, memory: Memory, data: bytes) -> None:
        for path in naming.candidates(memory, self.silo.open(memory), self.rules):
            if any(each.path == path for each in self._writes):
                continue
            there = self.disk.read(path)
            if there is not None and there != data:
                if not self._is_of(memory, there):
                    continue
                if self._as_written(memory, there) is None:  # somebody's copy, which is not lost
                    self.out_of_the_way(path)
                    there = None
            if there != data:  # else left by a crash
                self.disk.stage(path, data, expected=there)
            self._writes.append(_Write(memory, path, data))
            return
        raise FileFault(f"{self.disk.path}: a memory's file finds no free name", "no free name")

    def _rewrite(self, memory: Memory, file: VaultFile, data: bytes) -> None:
        path = self.path_of(file)
        there = self.disk.read(path)
        if there is not None and not self._is_known(file, memory, there):
            if self._is_of(memory, there):
                self.edited.append(memory.number)
                return
            self._write_first(memory, data)  # its own was removed, and another has the name
            return
        target = naming.back(path)
        if there is not None and target != path:
            if self.disk.read(target) is not None:
                self._write_first(memory, data)
                return
            self.disk.move(path, target)
        self.disk.stage(target, data, expected=there)
        self._writes.append(_Write(memory, target, data))

    def _set_aside(self, memory: Memory, file: VaultFile) -> None:
        path = self.path_of(file)
        target = naming.aside(path)
        if path != target and self.disk.read(path) is not None:
            self.gone.append(pages.Line.of(memory, path))
            if self.disk.read(target) is not None:
                target = target.with_name(f"{target.stem}-{memory.version}.md")
            self.disk.move(path, target)
        file.state, file.version = SetAside, memory.version
        file.sealed_path = self.sealed_path(memory.number, target)
        self._rows[memory.number] = file
        self.aside.append(memory.number)

    def put_where_it_belongs(self, number: int) -> None:
        """A file that is in another folder than the settings have it."""
        file = VaultFile.objects.get(agent_id=self.agent.pk, number=number)
        memory = Memory.objects.get(agent_id=self.agent.pk, number=number)
        path = self.path_of(file)
        target = naming.moved_to(path, memory, self.rules)
        self.disk.move(path, target)
        VaultFile.objects.filter(pk=file.pk).update(sealed_path=self.sealed_path(number, target))

    def out_of_the_way(self, path: PurePosixPath) -> PurePosixPath:
        """What nobody knows where it comes from is kept, beside what was discarded. Where it is."""
        target = naming.aside(path)
        for nth in range(1, 1_000):
            free = target.with_name(f"{target.stem}-found-{nth}.md")
            if self.disk.read(free) is None:
                self.disk.move(path, free)
                return free
        raise FileFault(f"{self.disk.path}: too many files that were found", "no free name")

    def _remove(self, numbers: Sequence[int]) -> None:
        """Every file of theirs, copies too: what was redacted is nowhere."""
        gone = set(numbers)
        for path in list(self.disk.files()):
            data = self.disk.read(path)
            said = rendering.read_again(data) if data is not None else None
            if said is not None and said.number in gone:
                self.disk.remove(path)
        known = VaultFile.objects.filter(agent_id=self.agent.pk, number__in=gone)
        for file in known:
            self.disk.remove(self.path_of(file))
        known.delete()
        self.removed += numbers

    def _is_known(self, file: VaultFile, memory: Memory, data: bytes) -> bool:
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
        changes = Change.objects.filter(agent_id=self.agent.pk, number=memory.number).order_by("-seq")
        times = AuditEntry.objects.filter(agent_id=self.agent.pk)
        for change in changes[:_BACK]:
            before = _as_it_was(memory, bytes(change.after or b""))
            at = times.values_list("at", flat=True).get(seq=change.seq)
            opened = self.silo.open(before) if before else None
            if before and opened and rendering.rendered(before, opened, said.version, at) == data:
                return before, opened
        return None

    def _is_of(self, memory: Memory, data: bytes) -> bool:
        said = rendering.read_again(data)
        return said is not None and said.number == memory.number

    # --- rows

    def path_of(self, file: VaultFile) -> PurePosixPath:
        return PurePosixPath(self.silo.open_text("vault", file.number, bytes(file.sealed_path)))

    def sealed_path(self, number: int, path: PurePosixPath) -> bytes:
        return self.silo.seal_text("vault", number, str(path))

    def _finish(self, files: Mapping[int, VaultFile]) -> None:
        """Files to their places, read back; then their rows."""
        refused = set(self.disk.publish())
        for each in self._writes:
            if each.path in refused:
                self.edited.append(each.memory.number)
                continue
            self._require_written(each)
            known = files.get(each.memory.number)
            if known is None or self.path_of(known) != each.path:
                self.added.append(pages.Line.of(each.memory, each.path))
            self._rows[each.memory.number] = self._row(each, known)
            self.written.append(each.memory.number)
        rows = [vars(row) for row in self._rows.values()]
        with transaction.atomic():
            rowset.insert(VaultFile, [row for row in rows if row["id"] is None], _OF_NEW)
            rowset.update(VaultFile, [row for row in rows if row["id"] is not None], _OF_CHANGED)
        self._writes, self._rows = [], {}

    def _require_written(self, each: _Write) -> None:
        if self.disk.read(each.path) != each.data:
            raise FileFault(
                f"{self.disk.path}: a file does not say what was written", "not read back as it was written"
            )

    def _row(self, each: _Write, known: VaultFile | None) -> VaultFile:
        row = known or VaultFile(agent_id=self.agent.pk, number=each.memory.number)
        row.version, row.rules_version, row.state = each.memory.version, self.version, There
        row.sealed_path = self.sealed_path(row.number, each.path)
        row.digest = self.silo.digest_of_file(each.data)
        return row
