"""Memories as a folder of markdown: the files of a vault (seed 004, "Storage Format"), those that are private readable,
too, in a tar archive, for a folder that is sent comes in one piece."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from audit.models import AuditEntry
from memory.formats.export import Export, NotHeld
from memory.models import Agent
from memory.reading import Read
from memory.rules import document, gate
from memory.vault import naming, rendering

SETTINGS, MEMORIES = "memory-rules/settings.json", "memory"
_AT_ONCE = 250  # memories whose dates are asked for together


class _Buffer(io.RawIOBase):
    """What an archive is written to, until it is taken."""

    def __init__(self) -> None:
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._held += data
        return len(data)

    def taken(self) -> bytes:
        found, self._held = bytes(self._held), bytearray()
        return found


def _written(agent: Agent, memories: Iterable[Read], noted: NotHeld) -> Iterator[bytes]:
    buffer = _Buffer()
    with tarfile.open(fileobj=buffer, mode="w|gz") as archive:
        for path, data, at in _files(agent, iter(memories), noted):
            header = tarfile.TarInfo(path)
            header.size, header.mtime, header.mode = len(data), max(int(at), 0), 0o600
            archive.addfile(header, io.BytesIO(data))
            yield buffer.taken()
    yield buffer.taken()


def _files(agent: Agent, memories: Iterator[Read], noted: NotHeld) -> Iterator[tuple[str, bytes, float]]:
    """(path, bytes, seconds since 1970) of each file."""
    rules = gate.rules_of(agent)
    whole = document.whole(rules, enabled=agent.memory_enabled)
    yield SETTINGS, json.dumps(whole, indent=2, ensure_ascii=False).encode() + b"\n", agent.created_at.timestamp()
    named: set[PurePosixPath] = set()  # by a service, and not by a number, which no two share
    while batch := list(islice(memories, _AT_ONCE)):
        versions = {read.memory.version for read in batch}
        times = dict(AuditEntry.objects.filter(agent_id=agent.pk, seq__in=versions).values_list("seq", "at"))
        for read in batch:
            _note(read, noted)
            memory = read.memory
            changed_at = times.get(memory.version, memory.created_at)
            data = rendering.rendered(memory, read.opened, document.value(rules, "version"), changed_at)
            yield str(MEMORIES / _path(read, rules, named)), data, memory.origin.timestamp()


def _path(read: Read, rules: Mapping[str, Any], named: set[PurePosixPath]) -> PurePosixPath:
    path = next(path for path in naming.candidates(read.memory, read.opened, rules) if path not in named)
    if not path.name.startswith(f"{read.memory.number:06}"):
        named.add(path)
    return path


def _note(read: Read, noted: NotHeld) -> None:
    if read.memory.kind == "journal":
        noted.note("its file does not say that it is of the journal")
    if read.memory.constitutional:
        noted.note("its file does not say that it is constitutional")


EXPORT = Export(
    name="markdown",
    media_type="application/gzip",
    ending=".tar.gz",
    what="a folder of markdown in the structure of the memory rules, with their settings",
    not_held=("kind", "constitutional", "parts of a second", "line breaks within tags"),
    write=_written,
)
