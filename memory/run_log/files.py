"""Find, open, lock and replace a file below a trusted folder.

Symlinks are resolved once. After that, each folder of the path below the trusted folder is opened relative to its
parent folder, and a symlink is an error. So a user who can write in the trusted folder cannot redirect the path to a
folder outside. This is true during the operation, too.
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
PLAIN = os.O_CLOEXEC | os.O_NONBLOCK  # without O_NONBLOCK, opening a pipe would block
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Place:
    """A path, and the folders (`bases`) in which this path is allowed. After all symlinks in the path are resolved, the
    path must be inside one of these folders. Without `bases`, every path is allowed."""

    path: Path
    bases: tuple[Path, ...] = ()

    def __str__(self) -> str:
        return str(self.path)

    def real(self) -> tuple[Path, Path]:
        """Resolve the symlinks in the path. Return the trusted folder, and the path relative to this folder. Raises
        FileOutsideRoots."""
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
        """Return whether the file with this name is the file that is open with the descriptor `number`."""
        try:
            named = os.stat(name, dir_fd=self.number, follow_symlinks=False)
        except FileNotFoundError:
            return False
        opened = os.fstat(number)
        return (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)

    def replace(self, name: str, by: str) -> None:
        os.replace(by, name, src_dir_fd=self.number, dst_dir_fd=self.number)

    def move(self, name: str, to: Folder, as_: str) -> None:
        """Move a file to another folder and name. Raises FileExistsError if the new name exists. However, if another
        program creates a file with this name at the same moment, that file is overwritten."""
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
        """Give a file a second name (a hard link). Raises FileExistsError."""
        os.link(name, as_, src_dir_fd=self.number, dst_dir_fd=self.number, follow_symlinks=False)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self.number)

    def sync(self) -> None:
        """Sync the folder, so that its file names survive a power failure."""
        os.fsync(self.number)

    def close(self) -> None:
        os.close(self.number)


@contextmanager
def folder_of(place: Place, *, create: bool = False) -> Iterator[Folder | None]:
    """Open the folder that contains the file of a place. If the folder does not exist, yield None. With `create`,
    create the folder instead. Only the owner can access a created folder. Raises FileFault, FileOutsideRoots."""
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
    """`below` is the path of a file, relative to `base`. Open the folder of this file. Return None if the folder does
    not exist. With `create`, create the folder instead. Raises OSError, also if one of the folders is a symlink."""
    try:
        if create and not base.exists():
            for above in (*reversed(base.parents), base):
                above.mkdir(mode=0o700, exist_ok=True)
        number = walked(os.open(base, _FOLDER), below.parent.parts, create=create)
    except FileNotFoundError:
        return None
    return Folder(base / below.parent, number, below.name)


def walked(number: int, parts: tuple[str, ...], *, create: bool) -> int:
    """Open each folder of a path relative to its parent folder. Return the descriptor of the last folder. `number` is
    the descriptor of the first parent folder. This function closes this descriptor. Raises OSError, also if one of the
    folders is a symlink."""
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
    """Open the file of a place. Return None if the file does not exist. Raises FileFault if the path is not a regular
    file. Raises OSError."""
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
    """Lock a file until it is closed. The lock stops only other writers of this service. Raises OSError (EAGAIN) if
    another process holds the lock for more than `patience` seconds (default: PATIENCE). Every user who can read a file
    can lock it."""
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
    """Take a lease on this file. After that, a process that opens the file for writing waits until `release` is called.
    Return False if a process already has the file open for writing. Return None if the system does not support leases.

    Linux grants a read lease only while no process has the file open for writing. When a process waits, Linux sends the
    signal SIGURG to the owner of the lease. By default, this signal is ignored.
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
    """Return whether another program has this file open for writing. Return None if the system does not support
    leases."""
    leased = lease(number)
    if leased:
        release(number)
    return None if leased is None else not leased


@contextmanager
def file_errors(doing: str, what: object) -> Iterator[None]:
    """Replace an OSError from this block by a FileFault. The FileFault has the path and the reason from the system, but
    no content of the file."""
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
    """Write all of the data to a descriptor."""
    while data:
        data = data[os.write(number, data) :]


def name_beside(name: str) -> str:
    """Return the temporary name of the new file. This name depends only on the name of the old file. So if a trim is
    killed, the next trim finds the temporary file and removes it."""
    return PREFIX + hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def clear(folder: Folder) -> None:
    """If a trim was killed, remove its temporary file. If the file cannot be removed, this function raises no error.
    The error is raised later, when a file gets this temporary name."""
    with suppress(OSError):
        folder.remove(name_beside(folder.name))


def _nameable(number: int) -> int:
    """Check that an open file can get a name later. Return its descriptor `number`. Raises OSError if this process
    cannot use /proc."""
    try:
        Path(f"/proc/self/fd/{number}").stat()
    except OSError:
        os.close(number)
        raise
    return number


class Replacement:
    """A new, locked file in the folder of the old file. Until `put` is called, the new file has no name or a temporary
    name."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.name = name_beside(folder.name)
        self.is_named = False

    def __enter__(self) -> Replacement:
        with file_errors("failed to create temp file: open", self.folder.path / self.name):
            self.number = self._open()
        lock(self.number)  # other writers of this service wait until late writes are copied
        return self

    def _open(self) -> int:
        unnamed, flags = getattr(os, "O_TMPFILE", None), os.O_RDWR | os.O_APPEND
        if unnamed is not None:
            with suppress(OSError):  # if the cause is not a missing O_TMPFILE, the error occurs again below
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
        """Copy the owner, the mode and the extended attributes of the old file. Then sync the new file."""
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
            lost = "belongs to another user or group, and the new file cannot get the same owner and group"
            raise FileFault(f"{self.folder.path / self.folder.name} {lost}") from None

    def _take_attributes(self, old: int) -> None:
        """Copy the extended attributes of the old file. Remove all other attributes of the new file, because a default
        ACL could let other users read the new file."""
        theirs = _attributes(old)
        for name in set(_attributes(self.number)) - set(theirs):
            with suppress(OSError):  # some attributes can be set only by the system
                os.removexattr(self.number, name)
        for name in theirs:
            with suppress(OSError):
                os.setxattr(self.number, name, os.getxattr(old, name))

    def put(self) -> None:
        """Replace the old file with the new file. Call `sync` afterwards."""
        if not self.is_named:
            # Without the folder arguments, Python would create a link to the symlink in /proc.
            target = f"/proc/self/fd/{self.number}"
            os.link(target, self.name, src_dir_fd=self.folder.number, dst_dir_fd=self.folder.number)
            self.is_named = True
        self.folder.replace(self.folder.name, by=self.name)
        self.is_named = False

    def sync(self) -> None:
        """Sync the file and its folder, so that the content and the name survive a power failure."""
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
