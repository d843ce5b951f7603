"""Memories as a folder of markdown: the files of a vault (seed 004, "Storage Format"), those that are private readable,
too, in a tar archive, for a folder that is sent comes in one piece. In and out; one file is read by `tree_files`."""

from __future__ import annotations

import io
import json
import math
import tarfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import PurePosixPath
from typing import IO, Any

from audit.models import AuditEntry
from memory.markdown import sections
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.silo.silo import Read
from memory.transfer.exporting import Export, NotHeld
from memory.transfer.formats import tree_files
from memory.transfer.formats.found import LeftOut, Part
from memory.transfer.formats.tar_files import Member, members
from memory.transfer.formats.text import Unfit
from memory.vault import naming, rendering

NO_MARKDOWN = "is no markdown"
SETTINGS, MEMORIES = "memory-rules/settings.json", "memory"
_AT_ONCE = 250  # memories whose dates are asked for together


def _written(agent: Agent, memories: Iterable[Read], noted: NotHeld) -> Iterator[bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|gz") as archive:
        for path, data, at in _files(agent, iter(memories), noted):
            header = tarfile.TarInfo(path)
            header.size, header.mtime, header.mode = len(data), at, 0o600
            archive.addfile(header, io.BytesIO(data))
            archive.getmembers().clear()  # it would keep them all
            yield _taken(buffer)
    yield _taken(buffer)


def _taken(buffer: io.BytesIO) -> bytes:
    data = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return data


def _files(agent: Agent, memories: Iterator[Read], noted: NotHeld) -> Iterator[tuple[str, bytes, int]]:
    """(path, bytes, seconds since 1970) of each file."""
    rules = switches.rules_of(agent)
    whole = settings_document.whole(rules, enabled=agent.memory_enabled)
    yield SETTINGS, json.dumps(whole, indent=2, ensure_ascii=False).encode() + b"\n", _seconds(agent.created_at)
    named: set[PurePosixPath] = set()  # by a service, and not by a number, which no two share
    while batch := list(islice(memories, _AT_ONCE)):
        versions = {read.memory.version for read in batch}
        times = dict(AuditEntry.objects.filter(agent_id=agent.pk, seq__in=versions).values_list("seq", "at"))
        for read in batch:
            memory = read.memory
            changed_at = times.get(memory.version, memory.created_at)
            data = rendering.rendered(memory, read.opened, settings_document.value(rules, "version"), changed_at)
            path = _path(read, rules, named)
            noted.update(_lost(read, data, path))
            yield str(MEMORIES / path), data, _seconds(memory.origin)


def _path(read: Read, rules: Mapping[str, Any], named: set[PurePosixPath]) -> PurePosixPath:
    path = next(path for path in naming.candidates(read.memory, read.opened, rules) if path not in named)
    if not path.name.startswith(f"{read.memory.number:06}"):
        named.add(path)
    return path


def _lost(read: Read, data: bytes, path: PurePosixPath) -> Iterator[str]:
    """What is not there when the file is read: found out by reading it."""
    memory, opened = read.memory, read.opened
    if memory.kind == "journal":
        yield "its file does not say that it is of the journal"
    if memory.constitutional:
        yield "its file does not say that it is constitutional"
    found, *more = tree_files.read(data, "", path, _time(_seconds(memory.origin)))
    if more:
        yield "its file says more than one memory holds, and becomes several"
    if isinstance(found, LeftOut):
        yield "its file says nothing, for each of its sections says what stands for nothing"
        return
    if sections.parted(found.content, memory.category) != sections.parted(opened.content, memory.category):
        yield "a section says what stands for nothing"
    if found.tags != tuple(dict.fromkeys(" ".join(tag.split()) for tag in opened.tags)):
        yield "a tag of it says what stands for nothing"
    if (found.category, found.project) != (memory.category, memory.project):
        yield "its category or project is not what its folder says"
    if found.date != memory.origin.replace(microsecond=0):
        yield "its date is not told"


EXPORT = Export(
    name="markdown",
    media_type="application/gzip",
    ending=".tar.gz",
    what="a folder of markdown in the structure of the memory rules, with their settings",
    write=_written,
)


# --- in


def parts(file: IO[bytes], path: str) -> Iterator[Part]:
    """Of an archive, as we write it or as a folder is packed: all of it is looked at before anything is given."""
    try:
        deque(members(file), maxlen=0)
    except Unfit as unfit:
        yield LeftOut(path, unfit.why)
        return
    for member in members(file):
        yield from _of_member(member, f"{path}/{member.path}" if path else member.path)


def _of_member(member: Member, key: str) -> Iterator[Part]:
    folders = PurePosixPath(member.path).parts
    if folders[-2:] == tuple(PurePosixPath(SETTINGS).parts):
        return
    if member.why or not member.path.endswith(".md"):
        yield LeftOut(key, member.why or NO_MARKDOWN)
        return
    base = folders.index(MEMORIES) + 1 if MEMORIES in folders[:-1] else 0
    yield from tree_files.read(member.data, key, PurePosixPath(*folders[base:]), _time(member.at))


def _seconds(at: datetime) -> int:
    return max(math.floor(at.timestamp()), 0)


def _time(seconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None
    except (ValueError, OverflowError, OSError):
        return None
