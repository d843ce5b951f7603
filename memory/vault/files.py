"""Sync the files of memories with the silo: write files, move them and remove them. The file of a discarded memory is
moved to .discarded/.

If somebody changed a file, that file is first moved to .discarded/. Files of a category that is off are neither
written nor moved. But the files of a redacted memory are always removed. If a memory has become private, its
unencrypted file is always removed, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from audit.bulk import update_many
from audit.models import AuditEntry, Change
from memory.access import authority
from memory.errors import FileFault, NotAFile, SealBroken
from memory.models import Agent, Kind, Memory, Source, Vault, VaultFile
from memory.policy import paths, settings_document, switches
from memory.policy.categories import PRIVATE, SCOPES
from memory.silo.silo import Opened, Silo
from memory.vault import layout, removing, rendering
from memory.vault.disk import ASIDE, LARGEST, Disk
from memory.vault.layout import Line
from memory.vault.rendering import mask_for_file
from memory.writing.edits import fields_of

AT_ONCE = 250  # files that are written before their database rows
There, SetAside = VaultFile.State.THERE, VaultFile.State.SET_ASIDE
_CHANGEABLE = ("version", "rules_version", "state", "sealed_path", "digest")
_BACK = 50  # number of the newest versions that are compared with a file
_IS_CHANGING = "another program is writing to a file"


class _Write(NamedTuple):
    """A staged file of a memory. `file` is the database row of the memory's file. `before` is the old line of this file
    in an index page. `replaces` is the path of an old file that is removed afterwards. `replaced` is the content of the
    old file."""

    memory: Memory
    line: Line
    data: bytes
    file: VaultFile | None
    before: Line | None
    replaces: PurePosixPath | None
    replaced: bytes | None

    @property
    def state(self) -> VaultFile.State:
        return There if self.memory.layer in Kind.values else SetAside


def resets(agent: Agent) -> QuerySet[Vault, int]:
    """How often all files of the agent's vault became due again, as a query with one value."""
    return Vault.objects.filter(agent_id=agent.pk).values_list("resets", flat=True)


def _settings_of(agent: Agent) -> tuple[Any, ...]:
    """What decides where an agent's files are, and what they show."""
    return agent.vault_path, agent.claimed_at, agent.rules, agent.memory_enabled, bool(agent.wrapped_key)


class AgentChanged(FileFault):
    """The agent was claimed or erased, or has another vault or other rules. No more files are written."""


class Files:
    """An agent's vault: its folder and its database rows. `fault` is the first error with a file. After an error with
    one file, the other files are still written."""

    def __init__(self, agent: Agent, disk: Disk) -> None:
        self.agent, self.disk = agent, disk
        self.silo, self.rules = Silo.for_agent(agent), switches.rules_of(agent)
        self.version: str = settings_document.value(self.rules, "version")
        self.resets = resets(agent).first()
        self.closed = switches.closed(agent) if agent.memory_enabled else frozenset(SCOPES)
        self.fault: FileFault | None = None
        self.are_pages_stale = False  # a crossed-out line may show text of a memory, so the pages must be written again
        self._writes: list[_Write] = []

    # --- batches

    def sync(self, numbers: Iterable[int]) -> None:
        """Sync the files of these memories. The first error is stored in `fault`. Raises AgentChanged."""
        remaining = iter(numbers)
        while batch := list(islice(remaining, AT_ONCE)):
            try:
                self._sync_batch(batch)
            except AgentChanged:
                self.drop()
                raise
            except FileFault:  # retry the files one by one
                self.drop()
                for number in batch:
                    try:
                        self._sync_batch([number])
                    except FileFault as fault:
                        self._note(fault)
                        self.drop()

    def _sync_batch(self, numbers: Sequence[int]) -> None:
        self.take(numbers)
        self._require_same()
        self.finish()

    def _require_same(self) -> None:
        """Raise AgentChanged if the agent has changed since this began to read. Raise AuthorityBroken if SQL put an
        older row back."""
        row = Agent.objects.get(pk=self.agent.pk)
        if _settings_of(row) != _settings_of(self.agent):
            raise AgentChanged("The agent, its vault or its rules have changed. Try again.", "the agent has changed")
        authority.require(row)

    def rebuild(self) -> int:
        """Write the index pages again, and return the number of their lines. After an error, return 0."""
        rows = VaultFile.objects.filter(agent_id=self.agent.pk, state=There).order_by("number")
        if self.closed:
            mine = Memory.objects.of(self.agent).filter(category__in=self.closed)
            rows = rows.exclude(number__in=mine.values("number"))
        lines = []
        for row in rows.iterator(chunk_size=2_000):
            try:
                lines.append(Line.open(self.silo, row))
            except SealBroken:
                self._note(FileFault(f"{self.disk.path}: a file's row is broken", "a file's row is broken"))
        try:
            self._require_same()
            return layout.rebuild(self.disk, lines)
        except FileFault as fault:
            self._note(fault)
            self.drop()
            return 0

    def drop(self) -> None:
        """Remove the staged files."""
        self.disk.drop_staged()
        self._writes = []

    def _note(self, fault: FileFault) -> None:
        self.fault = self.fault or fault

    # --- staging one memory's file

    def take(self, numbers: Sequence[int]) -> None:
        """Stage the files of at most AT_ONCE memories. `finish` publishes the staged files. The owner is checked before
        anything is written to the folder, also to a temporary file. Raises AgentChanged."""
        memories = list(Memory.objects.of(self.agent).numbered(numbers))
        rows = VaultFile.objects.filter(agent_id=self.agent.pk, number__among=list(numbers))
        files = {row.number: row for row in rows}
        times = self._times(memories)
        self._require_same()
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
        """Return the time of the last change of each topic memory. The memory's file shows this time."""
        versions = [memory.version for memory in memories if memory.category == "topic"]
        return dict(AuditEntry.objects.filter(agent_id=self.agent.pk, seq__in=versions).values_list("seq", "at"))

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
        opened = mask_for_file(memory, self.silo.open(memory), self.rules)
        is_gone = memory.layer not in Kind.values
        if is_gone and file is None:
            old, there = self._left_by_a_killed_writer(memory, opened)
            self.are_pages_stale |= there is not None  # an index page may list the file
        path, expected = self._place(memory, opened, file, old, there)
        if is_gone and file is None and expected is None and there is None:
            return  # the memory never had a file
        is_private = paths.is_private(memory.category, self.rules)
        data = rendering.render(memory, None if is_private else opened, self.version, changed_at)
        self.disk.stage(path, data, expected=expected)
        title = layout.title_in_index(memory, opened, path, self.rules)
        line = Line(path, f"{memory.origin:%Y-%m-%d} {memory.category}", title)
        replaces = old if there is not None and old != path else None
        listed = before if file and file.state == There else None
        self._writes.append(_Write(memory, line, data, file, listed, replaces, there))

    def _where(self, memory: Memory, path: PurePosixPath) -> tuple[PurePosixPath, bytes | None]:
        """Return the current path of a memory's file, and its content. A killed writer may have moved the file without
        an update of the database row."""
        there = self.read(path)
        for other in layout.everywhere(path) if there is None else ():
            moved = self.read(other)
            if moved is not None and self.as_written(memory, moved):
                return other, moved
        return path, there

    def _left_by_a_killed_writer(self, memory: Memory, opened: Opened) -> tuple[PurePosixPath | None, bytes | None]:
        """If a writer was killed, the file of a memory that is not active may exist without a database row. Return the
        path and the content of such a file. If there is no such file, return None for both."""
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
        """Choose the path for a memory's file. Return this path, and the content of the file that is already at this
        path. That file is the memory's own file, or comes from a writer that was killed. If there is no such file, the
        content is None. A file keeps its name as long as its folder does not change."""
        candidates = layout.candidates(memory, opened, self.rules)
        folder = paths.folder(memory.category, memory.project, self.rules)
        if file and old and file.rules_version and layout.back(old).parent == folder:
            candidates = chain([layout.back(old)], candidates)
        taken = {each.line.path for each in self._writes}
        for path in (layout.of_layer(memory, each) for each in candidates):
            if path in taken:
                continue
            found = there if path == old and there is not None else self.read(path)
            if found is None and self.disk.is_free(path):
                return path, None
            if found is not None and (found is there or self.as_written(memory, found)):
                return path, found
        raise FileFault(f"{self.disk.path}: no free name for a file", "no free name")

    def keep(self, memory: Memory, path: PurePosixPath) -> None:
        """Move a changed file to .discarded/. If the memory is private, the moved file is sealed."""
        self.disk.set_aside(path)
        self._seal_copies({path: memory}, since=len(self.disk.moved_aside) - 1)

    def _seal_copies(self, memories: Mapping[PurePosixPath, Memory], *, since: int) -> None:
        for nth, (path, kept) in enumerate(self.disk.moved_aside[since:], since):
            memory = memories.get(path)
            if memory is not None and paths.is_private(memory.category, self.rules):
                self.disk.moved_aside[nth] = path, self._seal_copy(memory, kept)

    def _seal_copy(self, memory: Memory, path: PurePosixPath) -> PurePosixPath:
        """Replace a copy in .discarded/ with a sealed file, and return the path of that file. If the copy is too large,
        or another program is writing to it, the copy does not change. Raises FileFault."""
        data = self.disk.read(path) or b""
        if len(data) >= LARGEST or self.disk.is_written(path):
            return path
        kept = copy(memory)
        try:
            kept.sealed = self.silo.seal(memory.number, data.decode(), ())
        except UnicodeDecodeError:
            kept.sealed = self.silo.seal(memory.number, data.decode("latin-1"), ())  # keeps every byte
        folder = paths.folder(memory.category, memory.project, self.rules)
        is_in_place = path.parent == PurePosixPath(ASIDE, folder)
        target = path if is_in_place else self.disk.free_aside(folder / paths.file_name(memory.number))
        sealed_file = rendering.render(kept, None, self.version, timezone.now())
        self.disk.stage(target, sealed_file, expected=data if is_in_place else None)
        if target in self.disk.publish():
            return path
        if not is_in_place and self.disk.read(path) == data:
            self.disk.remove(path)
        return target

    def _retire(self, memory: Memory, path: PurePosixPath, expected: bytes) -> None:
        """Remove a file from its old path. If somebody has just changed the file, move it to .discarded/."""
        since = len(self.disk.moved_aside)
        if self.disk.retire(path, expected):
            self._seal_copies({path: memory}, since=since)
        else:
            self.keep(memory, path)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove every file of these redacted memories."""
        known = VaultFile.objects.filter(agent_id=self.agent.pk, number__in=numbers)
        former: dict[int, PurePosixPath | None] = dict.fromkeys(numbers)
        self.are_pages_stale = True
        for row in known:
            with suppress(SealBroken):  # the other files of the memory are still found
                former[row.number] = Line.open(self.silo, row).path
        try:
            removing.remove(self.disk, former)
        except FileFault as fault:
            self._note(fault)
        else:
            known.delete()

    # --- publishing

    def finish(self, *, again: bool = False) -> None:
        """Publish the staged files, read them back, and write their index lines and database rows. If somebody changed
        a file in the meantime, retry this file once. Raises FileFault."""
        since = len(self.disk.moved_aside)
        refused = set(self.disk.publish())
        self._seal_copies({each.line.path: each.memory for each in self._writes}, since=since)
        done = [each for each in self._writes if each.line.path not in refused]
        left = [each.memory.number for each in self._writes if each.line.path in refused]
        self._writes = []
        if left and again:
            raise FileFault(f"{self.disk.path}: {_IS_CHANGING}", _IS_CHANGING)
        for each in done:
            if self.disk.read(each.line.path) != each.data:
                reason = "changed right after it was written"
                raise FileFault(f"{self.disk.path}: a file was {reason}", reason)
            if each.replaces is not None:
                self._retire(each.memory, each.replaces, each.replaced or b"")
        if not self.are_pages_stale:
            changed = [each for each in done if each.before != each.line or each.state == SetAside]
            added = [each.line for each in changed if each.state == There]
            gone = [each.before for each in changed if each.before is not None]
            try:
                layout.add(self.disk, added, gone)
            except NotAFile:  # the page is replaced, and its other name keeps the content
                self.are_pages_stale = True
        with transaction.atomic():
            # A category may have become private meanwhile. Then these files are due again.
            is_reset = resets(self.agent).select_for_update().first() != self.resets
            version = "" if is_reset else self.version
            VaultFile.objects.bulk_create([self._row(each, version) for each in done if each.file is None])
            update_many([self._row(each, version) for each in done if each.file is not None], _CHANGEABLE)
        if left:
            self.take(left)
            self._require_same()
            self.finish(again=True)

    def _row(self, each: _Write, rules_version: str) -> VaultFile:
        return VaultFile(
            pk=each.file.pk if each.file else None,
            agent_id=self.agent.pk,
            number=each.memory.number,
            version=each.memory.version,
            rules_version=rules_version,
            state=each.state,
            sealed_path=each.line.seal(self.silo, each.memory.number),
            digest=self.silo.digest_of_file(each.data),
        )

    # --- reading a file

    def read(self, path: PurePosixPath) -> bytes | None:
        """Return a file's content. Return None if the file does not exist, or if the path is not a file."""
        with suppress(NotAFile):
            return self.disk.read(path)
        return None

    def is_in_clear(self, memory: Memory, path: PurePosixPath) -> bool:
        """Return True if the memory is private now and its file is still outside private/."""
        return paths.is_private(memory.category, self.rules) and layout.back(path).parts[0] != PRIVATE

    def is_known(self, file: VaultFile, memory: Memory, data: bytes) -> bool:
        """Return whether this service wrote the file and nobody changed it afterwards."""
        return self.silo.digest_of_file(data) == bytes(file.digest) or self.as_written(memory, data)

    def is_anothers(self, memory: Memory, data: bytes) -> bool:
        """Return whether the file has the number of another memory. Return False if the file has no number, because
        somebody may have removed the number."""
        return rendering.number_in(data.decode(errors="replace")) not in (None, memory.number)

    def as_written(self, memory: Memory, data: bytes) -> bool:
        """Return whether the file has the content of one of the newest versions of the memory. A killed writer may
        leave such a file without a row."""
        info = rendering.read_file(data)
        if info is None or info.number != memory.number:
            return False
        return any(
            rendering.render(before, opened if info.sealed is None else None, info.version, at) == data
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
            if before.sealed:  # the version is not redacted
                yield before, mask_for_file(before, self.silo.open(before), self.rules), times[change.seq]
