"""Find, open, lock and replace a file below a trusted folder.

A stored path has no symlinks. Each folder of the path below the trusted folder is opened relative to its parent folder,
and a symlink is an error. So a user who can write in the trusted folder cannot redirect the path to another file. This
is true during the operation, too.
"""

import ctypes
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
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from memory.errors import FileFault, FileOutsideRoots, NotAFile

PATIENCE = 10.0  # seconds to wait for a lock
PLAIN = os.O_CLOEXEC | os.O_NONBLOCK  # without O_NONBLOCK, opening a pipe would block
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_FILE = (errno.ELOOP, errno.ENXIO)  # the path is a symlink, or a socket
_LIBC = ctypes.CDLL(None)
_RENAME = getattr(_LIBC, "renameat2", None) or getattr(_LIBC, "renameatx_np", None)  # of Linux, of macOS
_EXCHANGE = 2


class Place(NamedTuple):
    """A path without symlinks, and the folders (`bases`) in which this path is allowed."""

    path: Path
    bases: tuple[Path, ...]

    def __str__(self) -> str:
        return str(self.path)

    def real(self) -> tuple[Path, Path]:
        """Return the trusted folder, and the path relative to this folder. Raises FileOutsideRoots, also if the path
        now has a symlink."""
        if os.path.realpath(self.path) != str(self.path):
            raise FileOutsideRoots(
                f"{self.path}: a symlink in the path now points elsewhere", "a symlink points elsewhere"
            )
        for base in self.bases:
            if (trusted := Path(os.path.realpath(base))) in self.path.parents:
                return trusted, self.path.relative_to(trusted)
        where = f"is not under {' or '.join(map(str, self.bases))} (VAULT_ROOTS)"
        raise FileOutsideRoots(f"{self.path}: {where}", where)


class Folder(NamedTuple):
    """An open folder, and the name of a file in it."""

    path: Path
    number: int
    name: str

    def open(self, name: str, flags: int) -> int:
        return os.open(name, flags | PLAIN | os.O_NOFOLLOW, 0o600, dir_fd=self.number)

    def has(self, name: str, number: int) -> bool:
        """Return whether the file with this name is the file that is open with the descriptor `number`."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.stat(name, dir_fd=self.number, follow_symlinks=False), os.fstat(number))
        return False

    def replace(self, name: str, by: str) -> None:
        os.replace(by, name, src_dir_fd=self.number, dst_dir_fd=self.number)

    def exchange(self, name: str, other: str) -> bool:
        """Exchange the names of two files in one step. Return False if the system cannot do this, or if one of the
        files does not exist."""
        names = os.fsencode(name), os.fsencode(other)
        return _RENAME is not None and _RENAME(self.number, names[0], self.number, names[1], _EXCHANGE) == 0

    def move(self, name: str, to: Self, as_: str) -> None:
        """Move a file to another folder and name. Raises FileExistsError if the new name exists. However, if another
        program creates a file with this name at the same moment, that file is overwritten."""
        if to.exists(as_):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(name, as_, src_dir_fd=self.number, dst_dir_fd=to.number)

    def exists(self, name: str) -> bool:
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=self.number, follow_symlinks=False)
            return True
        return False

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


def opened_below(base: Path, below: Path, *, create: bool = False) -> Folder:
    """`below` is the path of a file, relative to `base`. Open the folder of this file. With `create`, create the folder
    if it does not exist. Only the owner can access a created folder. Raises OSError, also if one of the folders is a
    symlink."""
    if create and not base.exists():
        for above in (*reversed(base.parents), base):
            above.mkdir(mode=0o700, exist_ok=True)
    number = walked(os.open(base, _FOLDER), below.parent.parts, create=create)
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


def open_file(folder: Folder, name: str, what: object, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a file for reading. Raises OSError. Raises NotAFile if the name belongs to something that is not a
    regular file. The error says `what` was opened."""
    mode = 0
    try:
        number = folder.open(name, flags)
    except OSError as problem:
        if problem.errno not in _NO_FILE:
            raise
    else:
        mode = os.fstat(number).st_mode
        if stat.S_ISREG(mode):
            return os.fdopen(number, "rb")
        os.close(number)
    reason = "is a directory" if stat.S_ISDIR(mode) else "is not a file"
    raise NotAFile(f"read {what}: {reason}", reason)


def lock(number: int, patience: float | None = None) -> None:
    """Lock a file until it is closed. The lock stops only other writers of this service. Raises OSError (EAGAIN) if
    another process holds the lock for more than `patience` seconds (default: PATIENCE). Every user who can read a file
    can lock it."""
    until = time.monotonic() + (PATIENCE if patience is None else patience)
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() >= until:
                raise
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
    if leased := lease(number):
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


@contextmanager
def replacement(folder: Folder) -> Iterator[int]:
    """Create a new, locked file in the folder of the old file. Yield its descriptor. The new file has a temporary name
    until the caller replaces the old file. The caller then syncs the new file and the folder."""
    name = name_beside(folder.name)
    with file_errors("failed to create temp file: open", folder.path / name):
        number = folder.open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
    try:
        lock(number)  # other writers of this service wait until late writes are copied
        yield number
    finally:
        clear(folder)  # before the lock ends, because the next trim uses the same name
        os.close(number)


def be_like(new: int, old: int, path: Path) -> None:
    """Copy the owner, the mode and the extended attributes of the old file. Then sync the new file."""
    kept, mine = os.fstat(old), os.fstat(new)
    if (mine.st_uid, mine.st_gid) != (kept.st_uid, kept.st_gid):
        try:
            os.fchown(new, kept.st_uid, kept.st_gid)
        except PermissionError:
            lost = "belongs to another user or group, and the new file cannot get the same owner and group"
            raise FileFault(f"{path} {lost}") from None
    os.fchmod(new, stat.S_IMODE(kept.st_mode))
    _take_attributes(new, old)
    os.fsync(new)


def _take_attributes(new: int, old: int) -> None:
    """Copy the extended attributes of the old file. Remove all other attributes of the new file, because a default ACL
    could let other users read the new file."""
    theirs = _attributes(old)
    for name in set(_attributes(new)) - set(theirs):
        with suppress(OSError):  # some attributes can be set only by the system
            os.removexattr(new, name)
    for name in theirs:
        with suppress(OSError):
            os.setxattr(new, name, os.getxattr(old, name))


def _attributes(number: int) -> list[str]:
    with suppress(OSError, AttributeError):  # not every system has extended attributes
        return os.listxattr(number)
    return []
