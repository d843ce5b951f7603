"""The files of a tar archive packed with gzip, one at a time, from a stranger. Nothing is written to a disk, links and
devices are never followed, and members, sizes and the unpacked size are bounded."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any

from memory.transfer.formats.parts import Unfit

MAX_UNPACKED = 2**30  # bytes
MAX_RATIO, RATIO_FROM = 200, 2**24  # unpacked bytes of a packed byte, of archives larger than this
MAX_FILES = 1_000_000
MAX_FILE = 2**20  # bytes
MAX_HEADERS = 2**16  # bytes of the headers of one member, which may hold a long name or attributes
NO_ARCHIVE = "is no whole tar archive, packed with gzip"
_BUFFER = 10_240  # bytes read at a time


@dataclass(frozen=True, slots=True, repr=False)
class Member:
    """A file in an archive. If `why` is given, it was not read."""

    path: str
    data: bytes = b""
    at: int = 0  # seconds since 1970
    why: str = ""


class _Unpacked:
    """The bytes of an archive, bounded in number."""

    def __init__(self, file: IO[bytes]) -> None:
        file.seek(0)
        self._packed, self._file = file, gzip.GzipFile(fileobj=file, mode="rb")
        self.count = self.headers = 0  # bytes so far, and since the last member

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.count += len(data)
        self.headers += len(data)
        if self.count > MAX_UNPACKED or self.count > max(RATIO_FROM, MAX_RATIO * self._packed.tell()):
            raise Unfit("is too large, unpacked")
        if self.headers > MAX_HEADERS + 2 * _BUFFER:
            raise Unfit(f"has more than {MAX_HEADERS:,} bytes of headers before a file")
        return data


def members(file: IO[bytes]) -> Iterator[Member]:
    """The files of an archive. Raises Unfit, at the latest at the end."""
    is_whole = True
    try:
        yield from _members(file)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, OverflowError):
        is_whole = False
    if not is_whole:
        raise Unfit(NO_ARCHIVE)  # outside the handler: the errors there hold names


def _members(file: IO[bytes]) -> Iterator[Member]:
    unpacked: Any = _Unpacked(file)
    archive: Any
    with tarfile.open(fileobj=unpacked, mode="r|", bufsize=_BUFFER, encoding="utf-8") as archive:
        for count, info in enumerate(archive, 1):
            if count > MAX_FILES or info.size < 0:
                raise Unfit(NO_ARCHIVE if info.size < 0 else f"holds more than {MAX_FILES:,} files")
            unpacked.headers = -info.size  # what follows is the file
            if not info.isdir():
                why = _why_not(info)
                data = None if why else archive.extractfile(info)
                yield Member(_shown(info.name), data.read() if data else b"", 0 if why else int(info.mtime), why)
            archive.members.clear()  # it would keep them all
        while rest := archive.fileobj.read(_BUFFER):  # the end tells whether the file is whole
            unpacked.headers = 0
            if rest.strip(b"\0"):  # tarfile stops without an error at a broken header
                raise Unfit(NO_ARCHIVE)


def _why_not(info: tarfile.TarInfo) -> str:
    name = PurePosixPath(info.name)
    if _shown(info.name) != str(name):
        return "has a name that is no text"
    if name.is_absolute() or ".." in name.parts:
        return "has a path that leads out of the folder"
    if info.issym() or info.islnk():
        return "is a link"
    if not info.isreg() or info.issparse():
        return "is no file"
    return "is too large" if info.size > MAX_FILE else ""


def _shown(name: str) -> str:
    return str(PurePosixPath(name.encode(errors="replace").decode().replace("\0", "?")))
