"""The files of a compressed tar archive, one at a time, from whoever sent it: no more of it is held than one file has,
nothing is written anywhere, and only plain files are given."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO

from memory.transfer.formats.text import Unfit

MOST = 2**30  # bytes of an archive, unpacked
MOST_FILES = 1_000_000
LARGEST = 2**20  # bytes of a file
MOST_HEADERS = 2**16  # bytes of what stands before a file with a long name, or one that was packed with attributes
MOST_ATTRIBUTES = 5_000_000  # of all files: a gigabyte of the shortest would be read for minutes
_TAKEN = frozenset({b"path", b"size", b"mtime"})  # of a file's attributes; of the others nothing is held
_BLOCK = tarfile.BLOCKSIZE
_AT_ONCE = 2**18
_WITHOUT_DATA = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
NO_ARCHIVE = "is no whole tar archive, packed with gzip"


@dataclass(frozen=True, slots=True, repr=False)
class Member:
    """A file in an archive. `why`: it is not given, and this is why."""

    path: str
    data: bytes = b""
    at: int = 0  # seconds since 1970
    why: str = ""


def members(file: IO[bytes]) -> Iterator[Member]:
    """From its beginning. Raises Unfit, at the latest at the end."""
    file.seek(0)
    archive = _Unpacked(file)
    for number, header in enumerate(_headers(archive), 1):
        if number > MOST_FILES:
            raise Unfit(f"holds more than {MOST_FILES:,} files")
        yield _member(archive, header)
    archive.to_the_end()


class _Unpacked:
    """An archive's bytes, so many at most."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = gzip.GzipFile(fileobj=file, mode="rb")
        self._left = MOST

    def read(self, size: int) -> bytes:
        """Raises Unfit where there are fewer."""
        data = self._read(size)
        if len(data) < size:
            raise Unfit(NO_ARCHIVE)
        return data

    def pass_over(self, size: int) -> None:
        while size > 0:
            size -= len(self.read(min(size, _AT_ONCE)))

    def to_the_end(self) -> None:
        """Whether it is whole is told there."""
        while self._read(_AT_ONCE):
            pass

    def _read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            data = None
        if data is None:
            raise Unfit(NO_ARCHIVE)
        self._left -= len(data)
        if self._left < 0:
            raise Unfit("is too large, unpacked")
        return data


def _headers(archive: _Unpacked) -> Iterator[tarfile.TarInfo]:
    """Of what it holds, with long names put in. Whoever takes one reads what belongs to it."""
    ahead = _Ahead()
    while True:
        block = archive.read(_BLOCK)
        if not block.strip(b"\0"):
            return
        header = _header(block)
        if header.type in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
            ahead.take(header, archive)
        elif header.type in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
            archive.pass_over(_padded(header.size))
        else:
            ahead.put_in(header)
            if not header.isdir():
                yield header


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        header = None
    if header is None or header.size < 0:
        raise Unfit(NO_ARCHIVE)
    return header


class _Ahead:
    """What stands before a file, and is said of it. Raises Unfit."""

    def __init__(self) -> None:
        self._size = 0  # bytes
        self._said: dict[str, str] = {}
        self._attributes = 0  # of all files so far

    def take(self, header: tarfile.TarInfo, archive: _Unpacked) -> None:
        self._size += header.size
        if self._size > MOST_HEADERS:
            raise Unfit(f"has more than {MOST_HEADERS:,} bytes of headers before a file")
        data = archive.read(_padded(header.size))[: header.size]
        if header.type == tarfile.GNUTYPE_LONGNAME:
            self._said["path"] = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
            return
        for name, value in _attributes(data):
            self._attributes += 1
            if name in _TAKEN:
                self._said[name.decode()] = value.decode("utf-8", "surrogateescape")
        if self._attributes > MOST_ATTRIBUTES:
            raise Unfit(f"has more than {MOST_ATTRIBUTES:,} attributes of files")

    def put_in(self, header: tarfile.TarInfo) -> None:
        """Names, and numbers that a header has no room for."""
        said, self._said, self._size = self._said, {}, 0
        header.name = said.get("path", header.name)
        try:
            header.size = int(said["size"]) if "size" in said else header.size
            header.mtime = int(float(said["mtime"])) if "mtime" in said else int(header.mtime)
        except (ValueError, OverflowError):
            header.size = -1
        if header.size < 0:
            raise Unfit(NO_ARCHIVE)


def _attributes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(data):
        length = data[at : at + 6].partition(b" ")[0]  # of all that follows, itself included
        end = at + int(length) if length.isdigit() and len(length) < 6 else 0
        if not at + len(length) < end <= len(data):
            raise Unfit(NO_ARCHIVE)
        name, _, value = data[at + len(length) + 1 : end - 1].partition(b"=")
        yield name, value
        at = end


def _member(archive: _Unpacked, header: tarfile.TarInfo) -> Member:
    path, why = _path(header.name), _why_not(header)
    if why:
        archive.pass_over(_padded(header.size) if header.type not in _WITHOUT_DATA else 0)
        return Member(path, why=why)
    return Member(path, archive.read(_padded(header.size))[: header.size], int(header.mtime))


def _why_not(header: tarfile.TarInfo) -> str:
    name = PurePosixPath(header.name)
    if any("\ud800" <= character <= "\udfff" for character in header.name) or "\0" in header.name:
        return "has a name that is no text"
    if name.is_absolute() or ".." in name.parts:
        return "has a path that leads out of the folder"
    if header.issym() or header.islnk():
        return "is a link"
    if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        return "is no file"
    return "is too large" if header.size > LARGEST else ""


def _path(name: str) -> str:
    return str(PurePosixPath(name.encode(errors="replace").decode().replace("\0", "?")))


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
