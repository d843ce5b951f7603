"""A new file that takes the place of another as a whole or not at all, with its owner, mode and attributes."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from memory.errors import FileFault
from memory.run_log.files import Folder, lock, told

PREFIX = ".palimpsest-trim-"


def write(number: int, data: bytes) -> None:
    """Write all the data."""
    while data:
        data = data[os.write(number, data) :]


def name_beside(name: str) -> str:
    """The name of the new file until it has its place. It depends only on the name of the old file, so that the next
    trim, which holds the same lock, removes what a killed trim left."""
    return PREFIX + hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def clear(folder: Folder) -> None:
    """Remove what a killed trim left. If this fails, the next trim fails to create its file, and says why."""
    with suppress(OSError):
        folder.remove(name_beside(folder.name))


def _nameable(number: int) -> int:
    """Returns `number` if the file can get a name later. Raises OSError if this process may not use /proc."""
    try:
        Path(f"/proc/self/fd/{number}").stat()
    except OSError:
        os.close(number)
        raise
    return number


class Replacement:
    """A locked file in the folder of the old file. It has no name, or a temporary one, until `put`."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.name = name_beside(folder.name)
        self.is_named = False

    def __enter__(self) -> Replacement:
        with told("failed to create temp file: open", self.folder.path / self.name):
            self.number = self._open()
        lock(self.number)  # our own writers wait until the late writes are copied, too
        return self

    def _open(self) -> int:
        unnamed, flags = getattr(os, "O_TMPFILE", None), os.O_RDWR | os.O_APPEND
        if unnamed is not None:
            with suppress(OSError):  # if not for want of O_TMPFILE, it fails again below
                return _nameable(self.folder.open(".", unnamed | flags))
        number = self.folder.open(self.name, flags | os.O_CREAT | os.O_EXCL)
        self.is_named = True
        return number

    def write(self, data: bytes) -> None:
        write(self.number, data)

    def size(self) -> int:
        return os.fstat(self.number).st_size

    def cut(self, size: int) -> None:
        os.ftruncate(self.number, size)

    def be_like(self, old: BinaryIO) -> None:
        """Copy the owner, mode and attributes of the old file, where the system has them, and sync the new file."""
        if hasattr(os, "fchown"):
            self._take_owner(old)
            os.fchmod(self.number, stat.S_IMODE(os.fstat(old.fileno()).st_mode))
            self._take_attributes(old.fileno())
        os.fsync(self.number)

    def _take_owner(self, old: BinaryIO) -> None:
        kept, mine = os.fstat(old.fileno()), os.fstat(self.number)
        if (mine.st_uid, mine.st_gid) == (kept.st_uid, kept.st_gid):
            return
        try:
            os.fchown(self.number, kept.st_uid, kept.st_gid)
        except PermissionError:
            lost = "belongs to another user or group, which replacing it would lose"
            raise FileFault(f"{self.folder.path / self.folder.name} {lost}") from None

    def _take_attributes(self, old: int) -> None:
        """Also removes attributes that the old file does not have: a default ACL could let others read the file."""
        theirs = _attributes(old)
        for name in set(_attributes(self.number)) - set(theirs):
            with suppress(OSError):  # only the system sets some of them
                os.removexattr(self.number, name)
        for name in theirs:
            with suppress(OSError):
                os.setxattr(self.number, name, os.getxattr(old, name))

    def put(self, old: BinaryIO) -> None:
        """Put the new file in the place of the old one. Call `sync` after it."""
        if os.name == "nt":  # Windows replaces no open file
            os.close(self.number)
            self.number = -1
            old.close()
        if not self.is_named:
            # Without a folder, Python would link the symlink in /proc itself.
            target = f"/proc/self/fd/{self.number}"
            os.link(target, self.name, src_dir_fd=self.folder.number, dst_dir_fd=self.folder.number)
            self.is_named = True
        self.folder.replace(self.folder.name, by=self.name)
        self.is_named = False

    def sync(self) -> None:
        """Make the content and the name survive a power cut."""
        if self.number >= 0:
            os.fsync(self.number)
        self.folder.sync()

    def __exit__(self, *_: object) -> None:
        if self.number >= 0:
            os.close(self.number)
        if self.is_named:
            clear(self.folder)


def _attributes(number: int) -> list[str]:
    if not hasattr(os, "listxattr"):
        return []
    with suppress(OSError):
        return os.listxattr(number)
    return []
