"""A file put in another's place as a whole, or not at all: with its owner, mode and attributes, and on the disk."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from memory.errors import FileFault

try:
    import fcntl
except ImportError:  # where there is none, writers are not kept apart
    fcntl = None  # type: ignore[assignment]

PLAIN = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY"))  # a pipe would wait for a writer


def lock(number: int) -> None:
    """Until it is closed, nobody else of ours writes to this file."""
    if fcntl is not None:
        fcntl.flock(number, fcntl.LOCK_EX)


def write(number: int, data: bytes) -> None:
    """All of it."""
    while data:
        data = data[os.write(number, data) :]


def _nameable(number: int) -> int:
    """The same, if it can be given a name later. Raises OSError where /proc is closed to this process."""
    try:
        Path(f"/proc/self/fd/{number}").stat()
    except OSError:
        os.close(number)
        raise
    return number


class Replacement:
    """A file in the same folder without a name, or with one of its own, until it is put in another's place; locked.

    One name for each file: what a killed process left is removed by the next, which holds the same lock.
    """

    def __init__(self, real: Path) -> None:
        self.real = real
        name = hashlib.sha256(os.fsencode(real.name)).hexdigest()[:16]
        self.name = real.with_name(f".palimpsest-trim-{name}")
        self.is_named = False

    def __enter__(self) -> Replacement:
        self._remove()
        self.number = self._open()
        lock(self.number)
        return self

    def _open(self) -> int:
        unnamed, flags = getattr(os, "O_TMPFILE", None), os.O_RDWR | os.O_APPEND | PLAIN
        if unnamed is not None:
            with suppress(OSError):  # not every file system has it; what else is wrong is met again below
                return _nameable(os.open(self.real.parent, unnamed | flags, 0o600))
        number = os.open(self.name, flags | os.O_CREAT | os.O_EXCL, 0o600)
        self.is_named = True
        return number

    def write(self, data: bytes) -> None:
        write(self.number, data)

    def _be_like(self, old: BinaryIO) -> None:
        """Give it the owner, mode and attributes of the file it replaces, where there are such things."""
        if not hasattr(os, "fchown"):
            return
        kept, mine = os.fstat(old.fileno()), os.fstat(self.number)
        if (mine.st_uid, mine.st_gid) != (kept.st_uid, kept.st_gid):
            try:
                os.fchown(self.number, kept.st_uid, kept.st_gid)
            except PermissionError:
                lost = "belongs to another user or group, which replacing it would lose"
                raise FileFault(f"{self.real} {lost}") from None
        os.fchmod(self.number, stat.S_IMODE(kept.st_mode))
        for name in _attributes(self.real):
            with suppress(OSError):  # one that only the system sets
                os.setxattr(self.number, name, os.getxattr(self.real, name))

    def put(self, old: BinaryIO) -> None:
        """Give it its place. What is written to it from then on, `keep` has to follow."""
        self._be_like(old)
        os.fsync(self.number)
        if os.name == "nt":  # where nothing that is open can be replaced
            os.close(self.number)
            self.number = -1
            old.close()
        if not self.is_named:
            self._name()
        self.name.replace(self.real)
        self.is_named = False

    def _name(self) -> None:
        folder = os.open(self.real.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:  # a folder given, or Python would link the link in /proc
            os.link(f"/proc/self/fd/{self.number}", self.name.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)
        self.is_named = True

    def keep(self) -> None:
        """See to it that content and name outlive a power cut."""
        if self.number >= 0:
            os.fsync(self.number)
        _sync_folder(self.real.parent)

    def __exit__(self, *_: object) -> None:
        if self.number >= 0:
            os.close(self.number)
        if self.is_named:
            self._remove()

    def _remove(self) -> None:
        with suppress(FileNotFoundError):
            self.name.unlink()


def _attributes(path: Path) -> list[str]:
    if not hasattr(os, "listxattr"):
        return []
    with suppress(OSError):
        return os.listxattr(path)
    return []


def _sync_folder(folder: Path) -> None:
    """So that the new name outlives a power cut, where folders can be synced."""
    directory = getattr(os, "O_DIRECTORY", None)
    if directory is None:
        return
    number = os.open(folder, os.O_RDONLY | directory)
    try:
        os.fsync(number)
    finally:
        os.close(number)
