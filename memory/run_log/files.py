"""Finds, opens, locks and replaces a file below a trusted folder.

Symlinks are resolved once. After that, each part of the path below the trusted folder is opened in the part before it,
and a symlink there is an error. So a user who can write there cannot redirect the path out of the folder, not even
during the operation.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import random
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from memory.errors import FileFault, FileOutsideRoots

PATIENCE = 10.0  # seconds to wait for a lock
PLAIN = os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe would block
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Place:
    """A path, and the folders it may be in after its symlinks are resolved; without folders, it may be anywhere."""

    path: Path
    bases: tuple[Path, ...] = ()

    def __str__(self) -> str:
        return str(self.path)

    def real(self) -> tuple[Path, Path]:
        """The trusted folder, and the path below it without symlinks. Raises FileOutsideRoots."""
        real = Path(os.path.realpath(self.path))
        if not self.bases:
            return real.parent, Path(real.name)
        for base in self.bases:
            trusted = Path(os.path.realpath(base))
            if real.is_relative_to(trusted) and real != trusted:
                return trusted, real.relative_to(trusted)
        where = f"is not under {' or '.join(map(str, self.bases))} (VAULT_ROOTS)"
        raise FileOutsideRoots(f"{self.path}: {where}", where)


@dataclass(frozen=True, slots=True)
class Folder:
    """An open folder, and the name of a file in it."""

    path: Path
    number: int
    name: str

    def open(self, name: str, flags: int) -> int:
        return os.open(name, flags | PLAIN | os.O_NOFOLLOW, 0o600, dir_fd=self.number)

    def has(self, name: str, number: int) -> bool:
        """Whether the file with this name is the one that is open as `number`."""
        try:
            named = os.stat(name, dir_fd=self.number, follow_symlinks=False)
        except FileNotFoundError:
            return False
        opened = os.fstat(number)
        return (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)

    def replace(self, name: str, by: str) -> None:
        os.replace(by, name, src_dir_fd=self.number, dst_dir_fd=self.number)

    def move(self, name: str, to: Folder, as_: str) -> None:
        """Raises FileExistsError if the new name exists, unless it is created at this very moment."""
        if to.exists(as_):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(name, as_, src_dir_fd=self.number, dst_dir_fd=to.number)

    def exists(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self.number, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def link(self, name: str, as_: str) -> None:
        """Raises FileExistsError."""
        os.link(name, as_, src_dir_fd=self.number, dst_dir_fd=self.number, follow_symlinks=False)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self.number)

    def sync(self) -> None:
        """Make names survive a power cut."""
        os.fsync(self.number)

    def close(self) -> None:
        os.close(self.number)


@contextmanager
def folder_of(place: Place, *, create: bool = False) -> Iterator[Folder | None]:
    """The folder of a place, or None. With `create` it is created, for its owner only. Raises FileFault,
    FileOutsideRoots."""
    with file_errors("open", place):
        base, below = place.real()
        folder = opened_below(base, below, create=create)
    if folder is None:
        yield None
        return
    try:
        yield folder
    finally:
        folder.close()


def opened_below(base: Path, below: Path, *, create: bool = False) -> Folder | None:
    """The folder of the file `below` a base, or None. With `create` it is created. Raises OSError, also
    for a symlink."""
    try:
        if create and not base.exists():
            for above in (*reversed(base.parents), base):
                above.mkdir(mode=0o700, exist_ok=True)
        number = walked(os.open(base, _FOLDER), below.parent.parts, create=create)
    except FileNotFoundError:
        return None
    return Folder(base / below.parent, number, below.name)


def walked(number: int, parts: tuple[str, ...], *, create: bool) -> int:
    """Opens each part in the part before it, and returns the number of the last. Closes `number`, where it starts.
    Raises OSError, also for a symlink."""
    for part in parts:
        above = number
        try:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=above)
            number = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
    return number


# --- files


def open_file(folder: Folder, flags: int, place: Place) -> BinaryIO | None:
    """The file of a place; None if it does not exist. Raises FileFault if it is not a file, OSError."""
    try:
        number = folder.open(folder.name, flags)
    except FileNotFoundError:
        return None
    mode = os.fstat(number).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(number, "rb")
    os.close(number)
    raise FileFault(f"read {place}: {'is a directory' if stat.S_ISDIR(mode) else 'is not a file'}")


def is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def lock(number: int, patience: float | None = None) -> None:
    """Lock a file against our own writers, until it is closed. Raises OSError (EAGAIN) if another process holds the
    lock for more than `patience` seconds (default: PATIENCE). Every user who can read a file can lock it."""
    until = time.monotonic() + (PATIENCE if patience is None else patience)
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() >= until:
                raise
        else:
            return
        time.sleep(random.uniform(0.001, 0.005))  # noqa: S311  so that waiting processes do not retry together


def lease(number: int) -> bool | None:
    """Make other processes that open this file for writing wait until `release`. False if a process already has it open
    for writing, None if the system does not support leases.

    Linux grants a read lease only while no process has the file open for writing. It sends a signal when one waits:
    SIGURG, which is ignored by default.
    """
    set_lease, set_signal = getattr(fcntl, "F_SETLEASE", None), getattr(fcntl, "F_SETSIG", None)
    if set_lease is None or set_signal is None:
        return None
    try:
        fcntl.fcntl(number, set_signal, signal.SIGURG)
        fcntl.fcntl(number, set_lease, fcntl.F_RDLCK)
    except OSError as problem:
        return False if problem.errno == errno.EAGAIN else None
    return True


def release(number: int) -> None:
    fcntl.fcntl(number, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def is_written(number: int) -> bool | None:
    """Whether another program has this file open for writing; None if the system does not support leases."""
    leased = lease(number)
    if leased:
        release(number)
    return None if leased is None else not leased


@contextmanager
def file_errors(doing: str, what: object) -> Iterator[None]:
    """Turns an OSError into a FileFault with the path and the system's reason, and nothing of the content."""
    try:
        yield
    except OSError as problem:
        reason = (problem.strerror or type(problem).__name__).lower()
        if problem.errno == errno.EAGAIN:
            reason = "is locked by another program"
        raise FileFault(f"{doing} {what}: {reason}", reason) from None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C, SIGTERM and SIGHUP until the end of this block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


PREFIX = ".palimpsest-trim-"


def write(number: int, data: bytes) -> None:
    """Write all the data."""
    while data:
        data = data[os.write(number, data) :]


def name_beside(name: str) -> str:
    """The temporary name of the new file. It depends only on the name of the old file, so that the next trim, which
    holds the same lock, removes what a killed trim left."""
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
        with file_errors("failed to create temp file: open", self.folder.path / self.name):
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
        """Copy the owner, mode and attributes of the old file, and sync the new file."""
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
            lost = "belongs to another user or group, so it cannot be replaced without losing that"
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

    def put(self) -> None:
        """Put the new file in the place of the old one. Call `sync` after it."""
        if not self.is_named:
            # Without a folder, Python would link the symlink in /proc itself.
            target = f"/proc/self/fd/{self.number}"
            os.link(target, self.name, src_dir_fd=self.folder.number, dst_dir_fd=self.folder.number)
            self.is_named = True
        self.folder.replace(self.folder.name, by=self.name)
        self.is_named = False

    def sync(self) -> None:
        """Make the content and the name survive a power cut."""
        os.fsync(self.number)
        self.folder.sync()

    def __exit__(self, *_: object) -> None:
        os.close(self.number)
        if self.is_named:
            clear(self.folder)


def _attributes(number: int) -> list[str]:
    if not hasattr(os, "listxattr"):
        return []
    with suppress(OSError):
        return os.listxattr(number)
    return []
