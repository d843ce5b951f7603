"""Where a memory file is: found below the folders it may lie in, opened there, locked.

A link is followed when a file is looked for, and never afterwards: from the folder that is trusted downward each part
of the path is opened in the one before it, so that nobody who may write there leads out of it, whenever they swap what.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from memory.errors import FileElsewhere, FileFault

fcntl: Any
try:
    import fcntl
except ImportError:  # where there is none, writers are not kept apart
    fcntl = None

PATIENCE = 10.0  # seconds for which a lock is waited for
PLAIN = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY"))  # a pipe would wait for a writer
_NOT_LINKED = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_BY_FOLDER = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")


@dataclass(frozen=True, slots=True)
class Place:
    """A path, and the folders below one of which it must lie wherever links lead; no folders: anywhere."""

    path: Path
    bases: tuple[Path, ...] = ()

    def __str__(self) -> str:
        return str(self.path)

    def real(self) -> tuple[Path, Path]:
        """The folder that is trusted, and the path below it that links lead to. Raises FileElsewhere."""
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
    """The folder a file is in, open, and the file's name in it."""

    def __init__(self, path: Path, number: int | None, name: str) -> None:
        self.path, self.number, self.name = path, number, name

    def open(self, name: str, flags: int) -> int:
        return os.open(self._of(name), flags | PLAIN | _NOT_LINKED, 0o600, dir_fd=self.number)

    def has(self, name: str, number: int) -> bool:
        """Whether the file of this name is the one that is open under this number."""
        try:
            there = os.stat(self._of(name), dir_fd=self.number, follow_symlinks=False)
        except FileNotFoundError:
            return False
        here = os.fstat(number)
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def replace(self, name: str, by: str) -> None:
        os.replace(self._of(by), self._of(name), src_dir_fd=self.number, dst_dir_fd=self.number)

    def move(self, name: str, to: Folder, as_: str) -> None:
        """Raises FileExistsError where there is one of that name, as far as the system tells."""
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
        """Raises FileExistsError where there is one of that name."""
        os.link(self._of(name), self._of(as_), src_dir_fd=self.number, dst_dir_fd=self.number, follow_symlinks=False)

    def remove(self, name: str) -> None:
        os.unlink(self._of(name), dir_fd=self.number)

    def sync(self) -> None:
        """So that names outlive a power cut, where folders can be synced."""
        if self.number is not None:
            os.fsync(self.number)

    def close(self) -> None:
        if self.number is not None:
            os.close(self.number)

    def _of(self, name: str) -> str:
        return name if self.number is not None else str(self.path / name)


@contextmanager
def folder_of(place: Place, *, create: bool = False) -> Iterator[Folder | None]:
    """The folder of a place; None where there is none. With `create` it is made, for its owner alone. Raises FileFault,
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
    """The folder of a file whose path below `base` has no links in it; None where there is none. With `create` it is
    made. Raises OSError, also for a link."""
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
    """The folder below the one that is open under `number`, which is closed: each part opened in the one before
    it, none of them a link. Raises OSError."""
    for part in parts:
        above = number
        try:
            if create:
                _made(part, above)
            number = os.open(part, _FOLDER | _NOT_LINKED, dir_fd=above)
        finally:
            os.close(above)
    return number


def _made(part: str, above: int) -> None:
    try:
        os.mkdir(part, 0o700, dir_fd=above)
    except FileExistsError:
        return


# --- files


def opened(folder: Folder, flags: int, place: Place) -> BinaryIO | None:
    """The place's file; None where there is none. Raises FileFault for what is no file, OSError."""
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
    except FileNotFoundError:  # removed since
        return False


def lock(number: int, patience: float | None = None) -> None:
    """Until it is closed, nobody else of ours writes to this file. Raises OSError (EAGAIN) where somebody holds it too
    long, `patience` seconds or PATIENCE: whoever may read a file may lock it."""
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
        time.sleep(random.uniform(0.001, 0.005))  # noqa: S311  in no step with others who wait


def lease(number: int) -> bool | None:
    """Keep others from opening this file, open for reading here, for writing: they wait until `release`. False where
    somebody has it open for writing already, None where that cannot be told.

    Linux grants a lease to read a file only while nobody has it open to write. The signal by which it says that
    somebody waits is one that does nothing.
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
    """Whether another program has this file open for writing. None where that cannot be told."""
    leased = lease(number)
    if leased:
        release(number)
    return None if leased is None else not leased


@contextmanager
def told(doing: str, what: object) -> Iterator[None]:
    """What the system says of a file, as an error of ours: path and reason, nothing of what is in it."""
    try:
        yield
    except OSError as problem:
        reason = (problem.strerror or type(problem).__name__).lower()
        if problem.errno == errno.EAGAIN:
            reason = "is locked by another program"
        raise FileFault(f"{doing} {what}: {reason}", reason) from None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP wait for the end of this block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
