"""The files in a vault's folder: written whole or not at all, read, moved, removed.

All paths are below the folder. Each part of a path is opened in the part before it, so that no symlink is followed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from memory.errors import FileFault, NotAFile
from memory.run_log.files import Folder, file_errors, is_file, is_written, walked, write

LOCK = ".palimpsest"
ASIDE = ".discarded"
NEW = ".palimpsest-new-"
ANOTHERS, NO_MARK = "is another agent's vault", f"its {LOCK} is no mark of a vault"
LARGEST = 4_000_000  # bytes of a file that is read: ours have some 200,000 at most
_SYNCED_AT_ONCE = 16  # syncs that wait for the disk together are as quick as one
_BLOCK = 4_096  # bytes
_MARK = re.compile(r"[0-9a-f]{32}")
_MOST_OF_MARK = 1_000  # bytes
_OPEN = 64  # files at once: a system has a limit
_NO_FILE = (errno.ELOOP, errno.ENXIO)  # a link; a socket
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
_PATIENCE = 1.0  # seconds for somebody who opened a file just before another took its place


@dataclass(slots=True)
class _Staged:
    path: PurePosixPath
    temporary: str
    expected: bytes | None  # what the file says now; None where there is none
    replaces_all: bool


class Disk:
    """A vault's folder, open, and locked by its holder (-1: it is only looked at). Raises FileFault where the system
    refuses something: it names a folder, and no file, whose name has words of its memory in it."""

    def __init__(self, folder: Folder, lock: int) -> None:
        self.path = folder.path
        self._lock = lock
        self._base = folder
        self._staged: list[_Staged] = []
        self.put_aside: list[tuple[PurePosixPath, PurePosixPath]] = []  # from where to where, by `out_of_the_way`

    def whose(self) -> str:
        """What its mark says: that of the agent whose vault this is; "" of one that nobody has begun, or that nobody
        has any more."""
        if self._lock < 0:
            said = self.read(PurePosixPath(LOCK), _MOST_OF_MARK) or b""
        else:
            with file_errors("read", self.path):
                said = os.pread(self._lock, _MOST_OF_MARK, 0)
        return said.decode("ascii", "replace").strip()  # an editor ends it with a line

    def require_nobody_elses(self, mark: str) -> bool:
        """Whether it is this agent's already; half of its mark is a killed writer's. Raises FileFault where it is
        another's, of this service or another, or something that is no mark: who writes there is not known."""
        whose = self.whose()
        if not mark.startswith(whose):
            why = ANOTHERS if _MARK.fullmatch(whose) else NO_MARK
            raise FileFault(f"{self.path}: {why}", why)
        return whose == mark

    def claim(self, mark: str) -> None:
        """Have it be this agent's. Raises FileFault where it is another's."""
        if self.require_nobody_elses(mark):
            return
        with file_errors("write", self.path):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, mark.encode("ascii"), 0)
            os.fsync(self._lock)

    def give_up(self) -> None:
        """Have it be nobody's, without the folder where nothing is left in it."""
        with suppress(OSError):
            self._base.remove(LOCK)
            self.path.rmdir()

    def read(self, path: PurePosixPath, most: int = LARGEST) -> bytes | None:
        """What a file says, up to so many bytes; None if it does not exist. Raises NotAFile if it is not a file."""
        with file_errors("read", self._folder_of(path)), suppress(FileNotFoundError), self._in(path) as folder:
            number = _opened(folder, path.name)
            try:
                return None if number is None else _said(number, most)
            finally:
                if number is not None:
                    os.close(number)
        return None

    def is_free(self, path: PurePosixPath) -> bool:
        """Whether nothing has this name, be it no file."""
        with file_errors("read", self._folder_of(path)), suppress(FileNotFoundError), self._in(path) as folder:
            return not folder.exists(path.name)
        return True

    def is_written(self, path: PurePosixPath) -> bool:
        """Whether another program has a file open for writing, as far as the system tells."""
        with file_errors("read", self._folder_of(path)), self._in(path) as folder:
            number = _opened(folder, path.name)
            if number is None:
                return False
            try:
                return bool(is_written(number))
            finally:
                os.close(number)

    def stage(self, path: PurePosixPath, data: bytes, *, expected: bytes | None, replaces_all: bool = False) -> None:
        """Write a temporary file beside the path. `publish` gives it its place if the file there still says what is
        `expected`, or anything with `replaces_all`."""
        with file_errors("write", self._folder_of(path)), self._in(path, create=True) as folder:
            temporary = NEW + hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
            number = _created(folder, temporary)
            self._staged.append(_Staged(path, temporary, expected, replaces_all))
            try:
                write(number, data)
            except OSError:
                self._drop(self._staged.pop())
                raise
            finally:
                os.close(number)

    def publish(self) -> list[PurePosixPath]:
        """Give every staged file its place. They are on the disk when this returns. Returns the paths that were left
        out, because somebody changed the file there or has it open for writing."""
        try:
            with file_errors("write", self.path):
                for start in range(0, len(self._staged), _OPEN):
                    self._sync(self._staged[start : start + _OPEN])
                refused = [each.path for each in self._staged if not self._put(each)]
                for path in {each.path.parent: each.path for each in self._staged}.values():
                    with self._in(path) as folder:
                        folder.sync()
        finally:
            self.drop_staged()
        return refused

    def _sync(self, staged: Sequence[_Staged]) -> None:
        numbers: list[int] = []
        try:
            for each in staged:
                with self._in(each.path) as folder:
                    numbers.append(folder.open(each.temporary, os.O_RDONLY))
            with ThreadPoolExecutor(_SYNCED_AT_ONCE) as together:
                list(together.map(os.fsync, numbers))
        finally:
            for number in numbers:
                os.close(number)

    def _put(self, each: _Staged) -> bool:
        """Give a file its place. False if the file there is not as expected, or somebody has it open for writing."""
        name = each.path.name
        with self._in(each.path) as folder:
            if each.replaces_all:
                return self._replaced(folder, each)
            if each.expected is None:
                return _linked(folder, each.temporary, name) or (
                    not folder.exists(name) and self._replaced(folder, each)  # where there are no links
                )
            old = _opened(folder, name)
            if old is None:
                return self._replaced(folder, each)
            with os.fdopen(old, "rb") as file:
                if is_written(old) or file.read(LARGEST) != each.expected:
                    return False
                self._replaced(folder, each)
                self._keep_what_came_last(each.path, each.expected, file)
        return True

    def _replaced(self, folder: Folder, each: _Staged) -> bool:
        folder.replace(each.path.name, by=each.temporary)
        each.temporary = ""
        return True

    def _keep_what_came_last(self, path: PurePosixPath, expected: bytes, old: BinaryIO) -> None:
        """What somebody wrote to a file that was replaced or removed, and that was opened before."""
        until = time.monotonic() + _PATIENCE
        while is_written(old.fileno()) and time.monotonic() < until:
            time.sleep(0.005)
        old.seek(0)
        said = old.read(LARGEST)
        if said != expected:
            free = self.free_aside(path)
            self.append(free, said)
            self.put_aside.append((path, free))

    def out_of_the_way(self, path: PurePosixPath) -> PurePosixPath:
        """What nobody knows where it comes from is kept, beside what was discarded. Where it is."""
        free = self.free_aside(path)
        self.move(path, free)
        self.put_aside.append((path, free))
        return free

    def free_aside(self, path: PurePosixPath) -> PurePosixPath:
        """A name for what was found there, which nothing has."""
        target = path if path.parts[0] == ASIDE else PurePosixPath(ASIDE, path)
        for nth in range(1, 1_000):
            free = target.with_name(f"{target.stem}-found-{nth}{target.suffix}")
            if self.is_free(free):
                return free
        raise FileFault(f"{self.path}: too many files that were found", "no free name")

    def move(self, path: PurePosixPath, to: PurePosixPath) -> None:
        """To another folder or name of the vault. Raises FileFault if there is a file already."""
        with file_errors("move", self._folder_of(path)), self._in(path) as folder, self._in(to, create=True) as target:
            folder.move(path.name, target, to.name)
            target.sync()
            folder.sync()

    def remove(self, path: PurePosixPath) -> None:
        """One that is not there is removed already."""
        with file_errors("remove", self._folder_of(path)), suppress(FileNotFoundError), self._in(path) as folder:
            folder.remove(path.name)
            folder.sync()

    def retire(self, path: PurePosixPath, expected: bytes) -> bool:
        """Remove a file that says what is expected. False if somebody changed it, or has it open for writing."""
        with file_errors("remove", self._folder_of(path)), suppress(FileNotFoundError), self._in(path) as folder:
            number = _opened(folder, path.name)
            if number is None:
                return True
            with os.fdopen(number, "rb") as file:
                if is_written(number) or file.read(LARGEST) != expected or not folder.has(path.name, number):
                    return False
                folder.remove(path.name)
                folder.sync()
                self._keep_what_came_last(path, expected, file)
        return True

    def append(self, path: PurePosixPath, data: bytes) -> None:
        """To a file that can be made from others: not synced. What ends in the midst of a line is ended first."""
        with file_errors("write", self._folder_of(path)), self._in(path, create=True) as folder:
            number = folder.open(path.name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                size = os.fstat(number).st_size
                if size:
                    os.lseek(number, size - 1, os.SEEK_SET)
                    data = data if os.read(number, 1) == b"\n" else b"\n" + data
                write(number, data)
            finally:
                os.close(number)

    def files(self, faults: list[FileFault] | None = None) -> Iterator[PurePosixPath]:
        """Every file, those that were set aside included; the lock is not, nor what is no file: a link, a pipe. Folders
        that cannot be looked into are added to `faults`, where it is given."""

        def unless_gone(problem: OSError) -> None:
            if isinstance(problem, FileNotFoundError):
                return
            if faults is None:
                raise problem
            faults.append(FileFault(f"read {self.path}: {problem.strerror}", str(problem.strerror).lower()))

        with file_errors("read", self.path):
            for above, folders, names in os.walk(self.path, onerror=unless_gone, followlinks=False):
                here = PurePosixPath(Path(above).relative_to(self.path).as_posix())
                folders.sort()
                yield from (here / name for name in sorted(names) if name != LOCK and is_file(Path(above, name)))

    def _folder_of(self, path: PurePosixPath) -> Path:
        return self.path / path.parent

    def _in(self, path: PurePosixPath, *, create: bool = False) -> closing[Folder]:
        """The open folder of a file. Raises OSError."""
        number = walked(os.dup(self._base.number), path.parent.parts, create=create)
        return closing(Folder(self._folder_of(path), number, ""))

    def drop_staged(self) -> None:
        """Remove the temporary files that were not published."""
        while self._staged:
            self._drop(self._staged.pop())

    def _drop(self, staged: _Staged) -> None:
        if staged.temporary:
            with suppress(OSError), self._in(staged.path) as folder:
                folder.remove(staged.temporary)


def _opened(folder: Folder, name: str) -> int | None:
    """A file, open to read; None where there is none. Raises FileFault for what is no file."""
    try:
        number = folder.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as problem:
        if problem.errno not in _NO_FILE:
            raise
    else:
        if stat.S_ISREG(os.fstat(number).st_mode):
            return number
        os.close(number)
    raise NotAFile(f"read {folder.path}: what has the name of a file of ours is none", "is not a file")


def _said(number: int, most: int) -> bytes:
    """What the rest of an open file says, up to so many bytes. It may grow meanwhile."""
    found = [os.read(number, min(most, os.fstat(number).st_size + 1))]
    while found[-1] and (most := most - len(found[-1])) > 0:
        found.append(os.read(number, min(most, _BLOCK)))
    return b"".join(found)


def _created(folder: Folder, name: str) -> int:
    """A new file, open for writing. One that a killed writer left under this name is removed."""
    try:
        return folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        folder.remove(name)
        return folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def _linked(folder: Folder, name: str, as_: str) -> bool:
    """Whether a file has a second name now, which nothing had; not where a file has one name only."""
    try:
        folder.link(name, as_)
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno in _NO_LINKS:
            return False
        raise
    return True
