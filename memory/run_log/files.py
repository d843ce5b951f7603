"""Finds, opens and locks a file below a trusted folder.

Symlinks are resolved once. After that, each part of the path below the trusted folder is opened in the part before it,
and a symlink there is an error: nobody who may write there can lead us out of the folder, whatever they swap when.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from memory.errors import FileElsewhere, FileFault

fcntl: Any
try:
    import fcntl
except ImportError:  # on Windows there are no locks
    fcntl = None

PATIENCE = 10.0  # seconds to wait for a lock
PLAIN = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY"))  # opening a pipe would block
_NOT_LINKED = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_BY_FOLDER = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")


@dataclass(frozen=True, slots=True)
class Place:
    """A path, and the folders it may be in after its symlinks are resolved; without folders, it may be anywhere."""

    path: Path
    bases: tuple[Path, ...] = ()

    def __str__(self) -> str:
        return str(self.path)

    def real(self) -> tuple[Path, Path]:
        """The trusted folder, and the path below it without symlinks. Raises FileElsewhere."""
        real = Path(os.path.realpath(self.path))
        if not self.bases:
            return real.parent, Path(real.name)
        for base in self.bases:
            trusted = Path(os.path.realpath(base))
            if real.is_relative_to(trusted) and real != trusted:
                return trusted, real.relative_to(trusted)
        where = f"does not lie under {' or '.join(map(str, self.bases))} (VAULT_ROOTS)"
        raise FileElsewhere(f"{self.path}: {where}", where)


class Folder:
    """An open folder, and the name of a file in it. `number` is None on systems without `dir_fd`."""

    def __init__(self, path: Path, number: int | None, name: str) -> None:
        self.path, self.number, self.name = path, number, name

    def open(self, name: str, flags: int) -> int:
        return os.open(self._of(name), flags | PLAIN | _NOT_LINKED, 0o600, dir_fd=self.number)

    def has(self, name: str, number: int) -> bool:
        """Whether this name leads to the file that is open as `number`."""
        try:
            there = os.stat(self._of(name), dir_fd=self.number, follow_symlinks=False)
        except FileNotFoundError:
            return False
        here = os.fstat(number)
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def replace(self, name: str, by: str) -> None:
        os.replace(self._of(by), self._of(name), src_dir_fd=self.number, dst_dir_fd=self.number)

    def move(self, name: str, to: Folder, as_: str) -> None:
        """Raises FileExistsError if the new name exists, unless it is created at this very moment."""
        if to.exists(as_):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(self._of(name), to._of(as_), src_dir_fd=self.number, dst_dir_fd=to.number)

    def exists(self, name: str) -> bool:
        try:
            os.stat(self._of(name), dir_fd=self.number, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def link(self, name: str, as_: str) -> None:
        """Raises FileExistsError."""
        os.link(self._of(name), self._of(as_), src_dir_fd=self.number, dst_dir_fd=self.number, follow_symlinks=False)

    def remove(self, name: str) -> None:
        os.unlink(self._of(name), dir_fd=self.number)

    def sync(self) -> None:
        """Make names survive a power cut, on systems that can sync a folder."""
        if self.number is not None:
            os.fsync(self.number)

    def close(self) -> None:
        if self.number is not None:
            os.close(self.number)

    def _of(self, name: str) -> str:
        return name if self.number is not None else str(self.path / name)


@contextmanager
def folder_of(place: Place, *, create: bool = False) -> Iterator[Folder | None]:
    """The folder of a place, or None. With `create` it is created, for its owner only. Raises FileFault,
    FileElsewhere."""
    with told("open", place):
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
    path = base / below.parent
    try:
        if create and not base.exists():
            for above in (*reversed(base.parents), base):
                above.mkdir(mode=0o700, exist_ok=True)
        if not _BY_FOLDER:
            return _by_path(path, below.name, create=create)
        return Folder(path, walked(os.open(base, _FOLDER), below.parent.parts, create=create), below.name)
    except FileNotFoundError:
        return None


def _by_path(path: Path, name: str, *, create: bool) -> Folder | None:
    if os.path.realpath(path) != str(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if create:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Folder(path, None, name) if path.is_dir() else None


def walked(number: int, parts: tuple[str, ...], *, create: bool) -> int:
    """Opens each part in the part before it, and returns the number of the last. Closes `number`, where it starts.
    Raises OSError, also for a symlink."""
    for part in parts:
        above = number
        try:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=above)
            number = os.open(part, _FOLDER | _NOT_LINKED, dir_fd=above)
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
    """Lock a file against our own writers, until it is closed. Raises OSError (EAGAIN) if somebody else holds the lock
    for more than `patience` seconds (PATIENCE): everybody who may read a file may lock it."""
    if fcntl is None:
        return
    until = time.monotonic() + (PATIENCE if patience is None else patience)
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() >= until:
                raise
        else:
            return
        time.sleep(random.uniform(0.001, 0.005))  # noqa: S311  not in step with others who wait


def lease(number: int) -> bool | None:
    """Make others who open this file for writing wait until `release`. False if somebody has it open for writing
    already, None if the system does not say.

    Linux grants a read lease only while nobody has the file open for writing. It signals that somebody waits; SIGURG
    is a signal that is ignored.
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
    """Whether another program has this file open for writing; None if the system does not say."""
    leased = lease(number)
    if leased:
        release(number)
    return None if leased is None else not leased


@contextmanager
def told(doing: str, what: object) -> Iterator[None]:
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
    """Ctrl-C, SIGTERM and SIGHUP are held back until the end of this block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
