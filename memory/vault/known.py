"""What is known of an agent's files: where each is, and whether what one says was written by us."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from audit.models import AuditEntry, Change
from memory.errors import NoFile
from memory.models import Agent, Memory, VaultFile
from memory.policy import paths, settings_document, switches
from memory.policy.categories import PRIVATE, SCOPES
from memory.silo.silo import Opened, Silo
from memory.vault import naming, rendering
from memory.vault.disk import Disk
from memory.vault.shown import shown
from memory.writing.snapshots import restore

_BACK = 50  # versions that are looked through for what a crash left


def closed(agent: Agent) -> frozenset[str]:
    """The categories nothing is written of: those that are switched off, all while memory is."""
    return switches.closed(agent) if agent.memory_enabled else frozenset(SCOPES)


def _as_it_was(memory: Memory, state: bytes) -> Memory | None:
    """None for a state whose body was redacted."""
    before = copy(memory)
    for name, value in restore(state).items():
        setattr(before, name, value)
    return before if before.sealed else None


@dataclass(slots=True)
class Known:
    """An agent's vault, as its rows, its trail and its folder have it."""

    agent: Agent
    disk: Disk
    silo: Silo = field(init=False)
    rules: Mapping[str, Any] = field(init=False)
    version: str = field(init=False)
    closed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.silo = Silo.for_agent(self.agent)
        self.rules = switches.rules_of(self.agent)
        self.version = settings_document.value(self.rules, "version")
        self.closed = closed(self.agent)

    def path_of(self, file: VaultFile) -> PurePosixPath:
        return PurePosixPath(self.silo.open_text("vault", file.number, bytes(file.sealed_path)))

    def sealed_path(self, number: int, path: PurePosixPath) -> bytes:
        return self.silo.seal_text("vault", number, str(path))

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

    def is_in_clear(self, memory: Memory, path: PurePosixPath) -> bool:
        """Whether a file is where nothing is sealed, of a memory that is private by now."""
        return paths.is_private(memory.category, self.rules) and naming.back(path).parts[0] != PRIVATE

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
