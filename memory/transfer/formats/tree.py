"""Write and read memories as a folder of Markdown files in a tar archive. The files are the same as in a vault, but
private files are not sealed. The module `tree_files` reads a single file.

An archive is not trusted. So files are read one at a time, nothing is written to the disk, links and devices are
skipped, and the number of members and all sizes are limited.
"""

import gzip
import io
import json
import math
import re
import tarfile
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import PurePosixPath
from typing import IO, Any

from audit.models import AuditEntry
from memory.errors import Invalid
from memory.markdown import sections
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.silo.silo import Read
from memory.transfer.exporting import Losses
from memory.transfer.formats import tree_files
from memory.transfer.formats.parts import LeftOut, Part, Unfit
from memory.vault import layout, rendering

# --- archives


MAX_UNPACKED = 2**30  # bytes
# Unpacked bytes per packed byte. This limit is for archives with more than RATIO_FROM unpacked bytes.
MAX_RATIO, RATIO_FROM = 200, 2**24
MAX_FILES = 1_000_000
MAX_FILE = 2**20  # bytes
MAX_EMPTY = 100  # reads after the end: a header can claim a size that takes for ever to skip
GZIP_PART, MOST_PARTS = b"\x1f\x8b\x08", 1_000
MAX_HEADERS = 2**16  # bytes of headers for one member
MAX_GLOBAL = 2**12  # of a header for all later files: its bytes, and the number of values of earlier ones
NO_ARCHIVE = "is not a complete tar archive, packed with gzip"
_BUFFER, _PIECE = 10_240, 1_024  # bytes read at a time


@dataclass(frozen=True, slots=True, repr=False)
class Member:
    """A file in an archive. If the file was not read, `why` is the reason."""

    path: str
    data: bytes = b""
    at: int = 0  # seconds since 1970
    why: str = ""


class _Unpacked:
    """Reads the unpacked bytes of an archive, up to a limit."""

    def __init__(self, file: IO[bytes]) -> None:
        file.seek(0)
        self._packed, self._file = file, gzip.GzipFile(fileobj=file, mode="rb")
        self.count = self.headers = 0  # number of bytes that were read, and number of these since the last member
        self.empty = 0  # number of reads after the end

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.count += len(data)
        self.headers += len(data)
        if self.count > MAX_UNPACKED or self.count > max(RATIO_FROM, MAX_RATIO * self._packed.tell()):
            raise Unfit("is too large when unpacked")
        if self.headers > MAX_HEADERS + 2 * _BUFFER:
            raise Unfit(f"has more than {MAX_HEADERS:,} bytes of headers before a file")
        self.empty += not data
        if self.empty > MAX_EMPTY:
            raise Unfit(NO_ARCHIVE)
        return data


class _Packed(io.BytesIO):
    """A packed body. The names and comments in its gzip headers are limited, because `gzip` reads each of their bytes
    alone. It reads few bytes at once, because `gzip` keeps what it has read of the next header."""

    single = 0  # number of bytes that were read alone

    def read(self, size: int | None = -1, /) -> bytes:
        self.single += size == 1
        if self.single > MAX_HEADERS:
            raise Invalid("file", f"has more than {MAX_HEADERS:,} bytes in gzip headers. Nothing was imported")
        return super().read(min(size or 0, _PIECE))


def unpacked_size(body: bytes, most: int) -> tuple[int, int]:
    """Return the size of a packed body when it is unpacked, and the number of its lines. Unpacking stops at an error.
    Raises Invalid if the size is more than `most` bytes, or more than 100 times the packed size and 1 MB. Raises
    Invalid, too, if the body has very many parts, each of which takes time."""
    if body.count(GZIP_PART) > MOST_PARTS:
        raise Invalid("file", f"has more than {MOST_PARTS:,} gzip parts. Pack it again as one. Nothing was imported")
    most, size, lines = min(most, max(2**20, 100 * len(body))), 0, 0
    with suppress(EOFError, zlib.error, gzip.BadGzipFile), gzip.open(_Packed(body)) as file:
        while size <= most and (piece := file.read(2**16)):
            size, lines = size + len(piece), lines + piece.count(b"\n")
    if size > most:
        raise Invalid("file", f"has more than {most:,} bytes when it is unpacked. Nothing was imported")
    return size, lines


def members(file: IO[bytes]) -> Iterator[Member]:
    """Yield the files of an archive. Raises Unfit if the archive is not valid. Some errors are found only at the end of
    the archive."""
    with suppress(tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, OverflowError):
        yield from _members(file)
        return
    raise Unfit(NO_ARCHIVE)  # not in a handler: the caught error has names in it


class _Info(tarfile.TarInfo):
    """A header of a member. Python before 3.11.10 and 3.12.6 searches extended headers in a time that grows with the
    square of the length of a number in them: 40 seconds for 64,000 digits. Each file gets a copy of all global headers.
    Such long numbers, and more global headers than `git archive` writes, are refused."""

    def _proc_pax(self, archive: Any) -> Any:
        stream = archive.fileobj
        data = stream.read(-(-self.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)
        is_global = self.type == tarfile.XGLTYPE
        if _LONG_NUMBER.search(data) or (is_global and len(data) + len(archive.pax_headers) > MAX_GLOBAL):
            raise tarfile.ReadError
        stream.buf, stream.pos = data + stream.buf, stream.pos - len(data)  # the method of tarfile reads it again
        return super()._proc_pax(archive)  # type: ignore[misc]  # it has no type


_LONG_NUMBER = re.compile(rb"\d{100}")


def _members(file: IO[bytes]) -> Iterator[Member]:
    unpacked: Any = _Unpacked(file)
    archive: Any
    with tarfile.open(fileobj=unpacked, mode="r|", bufsize=_BUFFER, encoding="utf-8", tarinfo=_Info) as archive:
        for count, info in enumerate(archive, 1):
            if count > MAX_FILES or info.size < 0:
                raise Unfit(NO_ARCHIVE if info.size < 0 else f"has more than {MAX_FILES:,} files")
            unpacked.headers = -info.size  # so that the file's content does not count
            if not info.isdir():
                why = _why_not(info)
                data = None if why else archive.extractfile(info)
                yield Member(_shown(info.name), data.read() if data else b"", 0 if why else int(info.mtime), why)
            archive.members.clear()  # otherwise it keeps every member
        while rest := archive.fileobj.read(_BUFFER):  # read to the end, to check that it is complete
            unpacked.headers = 0
            if rest.strip(b"\0"):  # tarfile stops silently at a broken header
                raise Unfit(NO_ARCHIVE)


def _why_not(info: tarfile.TarInfo) -> str:
    name = PurePosixPath(info.name)
    if _shown(info.name) != str(name):
        return "has a name that is not valid text"
    if name.is_absolute() or ".." in name.parts:
        return "has a path outside the folder"
    if info.issym() or info.islnk():
        return "is a link"
    if not info.isreg() or info.issparse():
        return "is not a file"
    return "is too large" if info.size > MAX_FILE else ""


def _shown(name: str) -> str:
    return str(PurePosixPath(name.encode(errors="replace").decode().replace("\0", "?")))


# --- writing


NO_MARKDOWN = "is not a Markdown file"
SETTINGS, MEMORIES = "memory-rules/settings.json", "memory"
_AT_ONCE = 250  # number of memories whose dates one query reads


def write(agent: Agent, memories: Iterable[Read], losses: Losses) -> Iterator[bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|gz") as archive:
        for path, data, at in _files(agent, iter(memories), losses):
            header = tarfile.TarInfo(path)
            header.size, header.mtime, header.mode = len(data), at, 0o600
            archive.addfile(header, io.BytesIO(data))
            archive.getmembers().clear()  # otherwise it keeps every member
            yield _taken(buffer)
    yield _taken(buffer)


def _taken(buffer: io.BytesIO) -> bytes:
    data = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return data


def _files(agent: Agent, memories: Iterator[Read], losses: Losses) -> Iterator[tuple[str, bytes, int]]:
    """Yield the path, the content and the time of each file. The time is in seconds since 1970."""
    rules = switches.rules_of(agent)
    whole = settings_document.whole(rules, enabled=agent.memory_enabled)
    yield SETTINGS, json.dumps(whole, indent=2, ensure_ascii=False).encode() + b"\n", _seconds(agent.created_at)
    named: set[PurePosixPath] = set()  # paths without a memory number; two memories may have the same path
    while batch := list(islice(memories, _AT_ONCE)):
        versions = {read.memory.version for read in batch}
        times = dict(AuditEntry.objects.filter(agent_id=agent.pk, seq__in=versions).values_list("seq", "at"))
        for read in batch:
            memory = read.memory
            changed_at = times.get(memory.version, memory.created_at)
            data = rendering.render(memory, read.opened, settings_document.value(rules, "version"), changed_at)
            path = _path(read, rules, named)
            losses.update(_lost(read, data, path))
            yield str(MEMORIES / path), data, _seconds(memory.origin)


def _path(read: Read, rules: Mapping[str, Any], named: set[PurePosixPath]) -> PurePosixPath:
    path = next(path for path in layout.candidates(read.memory, read.opened, rules) if path not in named)
    if not path.name.startswith(f"{read.memory.number:06}"):
        named.add(path)
    return path


def _lost(read: Read, data: bytes, path: PurePosixPath) -> Iterator[str]:
    """Read a written file back. For each detail of the memory that is missing in the file, yield a message."""
    memory, opened = read.memory, read.opened
    if memory.kind == "journal":
        yield "the file does not show that the memory is a journal entry"
    if memory.constitutional:
        yield "the file does not show that the memory is constitutional"
    found, *more = tree_files.read(data, "", path, _time(_seconds(memory.origin)))
    if more:
        yield "the file is too long for one memory, so an import makes several memories of it"
    if isinstance(found, LeftOut):
        yield "every section looks like an empty section, so the file cannot be imported again"
        return
    if sections.split(found.content, memory.category) != sections.split(opened.content, memory.category):
        yield "the content of a section looks like an empty section, so an import loses it"
    if found.tags != tuple(dict.fromkeys(" ".join(tag.split()) for tag in opened.tags)):
        yield "a tag looks like an empty list of tags, so an import loses it"
    if (found.category, found.project) != (memory.category, memory.project):
        yield "the file's folder belongs to another category or project"
    if found.date != memory.origin.replace(microsecond=0):
        yield "the file does not show the date"


# --- reading


def parts(file: IO[bytes], path: str) -> Iterator[Part]:
    """Read an archive that Palimpsest exported, or any packed folder. The whole archive is checked before the first
    part is returned."""
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
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None
    return None
