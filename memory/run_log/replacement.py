"""A file put in another's place as a whole, or not at all: with its owner, mode and attributes, and on the disk."""

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
    """All of it."""
    while data:
        data = data[os.write(number, data) :]


def name_beside(name: str) -> str:
    """What a new file is called until it has its place: one name for each file, so that the next one, which holds the
    same lock, removes what a killed one left."""
    return PREFIX + hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def clear(folder: Folder) -> None:
    """Remove what a killed trim left. Where this fails, creating the next temporary file fails too and says why."""
    with suppress(OSError):
        folder.remove(name_beside(folder.name))


def _nameable(number: int) -> int:
    """The same, if it can be given a name later. Raises OSError where /proc is closed to this process."""
    try:
        Path(f"/proc/self/fd/{number}").stat()
    except OSError:
        os.close(number)
        raise
    return number


class Replacement:
    """A file in the same folder without a name, or with one of its own, until it is put in another's place; locked."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.name = name_beside(folder.name)
        self.is_named = False

    def __enter__(self) -> Replacement:
        with told("failed to create temp file: open", self.folder.path / self.name):
            self.number = self._open()
        lock(self.number)  # for who finds it in its place before all is in it
        return self

    def _open(self) -> int:
        unnamed, flags = getattr(os, "O_TMPFILE", None), os.O_RDWR | os.O_APPEND
        if unnamed is not None:
            with suppress(OSError):  # not every file system has it; what else is wrong is met again below
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
        """Give it the owner, mode and attributes of the file it replaces, where there are such things, and sync it."""
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
        """Also the lack of some: what a folder gives its new files could let others read this one."""
        theirs = _attributes(old)
        for name in set(_attributes(self.number)) - set(theirs):
            with suppress(OSError):  # one that only the system sets
                os.removexattr(self.number, name)
        for name in theirs:
            with suppress(OSError):
                os.setxattr(self.number, name, os.getxattr(old, name))

    def put(self, old: BinaryIO) -> None:
        """Give it its place. What is written to it from then on, `keep` has to follow."""
        if os.name == "nt":  # where nothing that is open can be replaced
            os.close(self.number)
            self.number = -1
            old.close()
        if not self.is_named:
            # A folder given, or Python would link the link in /proc.
            target = f"/proc/self/fd/{self.number}"
            os.link(target, self.name, src_dir_fd=self.folder.number, dst_dir_fd=self.folder.number)
            self.is_named = True
        self.folder.replace(self.folder.name, by=self.name)
        self.is_named = False

    def keep(self) -> None:
        """See to it that content and name outlive a power cut."""
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
