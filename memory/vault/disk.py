"""Read, move and remove the files in a vault's folder, and write files atomically.

All paths are relative to the vault's folder. Each folder of a path is opened relative to its parent folder, so symlinks
are not followed.
"""

import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from memory.errors import FileFault, NotAFile
from memory.run_log.files import Folder, file_errors, is_written, open_file, walked, write

LOCK = ".palimpsest"
ASIDE, BENEATH = ".discarded", ".beneath"
NEW = ".palimpsest-new-"
ANOTHERS, NO_MARK = "is another agent's vault", f"its {LOCK} is not the mark of a vault"
INSIDE, CONTAINS = "is inside another agent's vault", "contains another agent's vault"
LARGEST = 4_000_000  # bytes of a file that are read at most; files of memories have at most about 200,000
_SYNCED_AT_ONCE = 16  # several syncs in parallel take as long as one sync
_MARK = re.compile(r"[0-9a-f]{32}")
_MOST_OF_MARK = 1_000  # bytes
_DEEPEST = 30  # levels of folders; a vault needs 4, and os.walk calls itself for each level
_OPEN = 64  # files that are open at the same time
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
_PATIENCE = 1.0  # seconds to wait for a program that still writes to a replaced file


@dataclass(slots=True)
class _Staged:
    path: PurePosixPath
    temporary: str
    expected: bytes | None  # the file's current content; None if there is no file
    replaces_all: bool


class Disk:
    """An open vault folder. `lock` is the descriptor of the locked lock file, or -1 if the folder is opened only for
    reading. A folder with the number -1 does not exist, so it has no files.

    The methods raise FileFault if the system refuses an operation. The error names the folder but not the file, because
    a file's name contains words of the memory.
    """

    def __init__(self, folder: Folder, lock: int) -> None:
        self.path = folder.path
        self._lock = lock
        self._base = folder
        self._staged: list[_Staged] = []
        self.moved_aside: list[tuple[PurePosixPath, PurePosixPath]] = []  # old and new path of each file in .discarded/

    def whose(self) -> str:
        """Return the vault's mark, or "" if the vault has no mark."""
        data = self.read(PurePosixPath(LOCK), _MOST_OF_MARK) or b""
        return data.decode("ascii", "replace").strip()  # an editor may have added a line end

    def require_no_other_owner(self, mark: str) -> bool:
        """Return whether the vault has this mark. If a killed writer left only the first part of the mark, return
        False. Raises FileFault if the vault has another agent's mark or an unknown mark, or is inside the vault of
        another agent."""
        if any(mark_in(above) not in ("", mark) for above in self.path.parents):
            raise FileFault(f"{self.path}: {INSIDE}", INSIDE)
        whose = self.whose()
        if not mark.startswith(whose):
            why = ANOTHERS if _MARK.fullmatch(whose) else NO_MARK
            raise FileFault(f"{self.path}: {why}", why)
        return whose == mark

    def claim(self, mark: str) -> None:
        """Write this mark to the vault. Raises FileFault if the vault has another agent's mark."""
        if self.require_no_other_owner(mark):
            return
        with file_errors("write", self.path):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, mark.encode("ascii"), 0)
            os.fsync(self._lock)

    def give_up(self) -> None:
        """Remove the mark. Then remove the folder if it is empty."""
        with suppress(OSError):
            self._base.remove(LOCK)
            self.path.rmdir()

    def read(self, path: PurePosixPath, most: int = LARGEST) -> bytes | None:
        """Return up to `most` bytes of a file. Return None if the file does not exist. Raises NotAFile if the path is
        not a file."""
        with self._errors("read", path), suppress(FileNotFoundError), self._file(path) as (file, _):
            return file.read(min(most, os.fstat(file.fileno()).st_size + 1))
        return None

    def is_free(self, path: PurePosixPath) -> bool:
        """Return whether the path is free: there is no file, folder or symlink with this name."""
        with self._errors("read", path), suppress(FileNotFoundError), self._in(path) as folder:
            return not folder.exists(path.name)
        return True

    def is_written(self, path: PurePosixPath) -> bool:
        """Return whether another program has the file open for writing. Return False if the system does not know
        this."""
        with self._errors("read", path), suppress(FileNotFoundError), self._file(path) as (file, _):
            return bool(is_written(file.fileno()))
        return False

    def stage(self, path: PurePosixPath, data: bytes, *, expected: bytes | None, replaces_all: bool = False) -> None:
        """Write a temporary file in the folder of the path. Later, `publish` moves this file to the path, but only if
        the file there still has the `expected` content. If `expected` is None, there must be no file at the path. If
        `replaces_all` is true, the temporary file replaces any file."""
        with self._errors("write", path), self._in(path, create=True) as folder:
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
        """Move every staged file to its path, and sync the files to the disk. A path is skipped if somebody changed the
        file there, or has this file open for writing. Return the skipped paths."""
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
        """Move one staged file to its path. Return False if the file there does not have the expected content, or if
        another program has it open for writing."""
        name = each.path.name
        with self._in(each.path) as folder:
            if each.replaces_all:
                return self._replaced(folder, each)
            if each.expected is None:
                return _linked(folder, each.temporary, name) or (
                    not folder.exists(name) and self._replaced(folder, each)  # the file system has no hard links
                )
            try:
                old = _opened(folder, name)
            except FileNotFoundError:
                return self._replaced(folder, each)
            with old:
                if is_written(old.fileno()) or old.read(LARGEST) != each.expected:
                    return False
                if not folder.exchange(name, each.temporary):
                    if folder.exists(name) and not folder.has(name, old.fileno()):
                        return False
                    self._replaced(folder, each)  # the system cannot exchange files, or the file is gone
                elif folder.has(each.temporary, old.fileno()):
                    self._drop(each)
                else:  # an editor replaced the file at the last moment
                    folder.exchange(name, each.temporary)
                    return False
                each.temporary = ""
                self._keep_what_came_last(each.path, each.expected, old)
        return True

    def _replaced(self, folder: Folder, each: _Staged) -> bool:
        folder.replace(each.path.name, by=each.temporary)
        each.temporary = ""
        return True

    def _keep_what_came_last(self, path: PurePosixPath, expected: bytes, old: BinaryIO) -> None:
        """A file was replaced or removed, while another program may have had it open. If that program changed the file,
        save the changed content in .discarded/."""
        until = time.monotonic() + _PATIENCE
        while is_written(old.fileno()) and time.monotonic() < until:
            time.sleep(0.005)
        old.seek(0)
        data = old.read(LARGEST)
        if data != expected:
            free = self.free_aside(path)
            self.append(free, data)
            self.moved_aside.append((path, free))

    def set_aside(self, path: PurePosixPath) -> PurePosixPath:
        """Move a file of unknown origin to .discarded/. Return its new path."""
        free = self.free_aside(path)
        self.move(path, free)
        self.moved_aside.append((path, free))
        return free

    def free_aside(self, path: PurePosixPath) -> PurePosixPath:
        """Return a free path in .discarded/ for a file that is moved there."""
        target = path if path.parts[0] == ASIDE else PurePosixPath(ASIDE, path)
        for nth in range(1, 1_000):
            free = target.with_name(f"{target.stem}-found-{nth}{target.suffix}")
            if self.is_free(free):
                return free
        raise FileFault(f"{self.path}: too many files were set aside", "no free name")

    def move(self, path: PurePosixPath, to: PurePosixPath) -> None:
        """Move a file to another folder or name in the vault. Raises FileFault if the target exists."""
        with self._errors("move", path), self._in(path) as folder, self._in(to, create=True) as target:
            folder.move(path.name, target, to.name)
            target.sync()
            folder.sync()

    def remove(self, path: PurePosixPath) -> None:
        """Remove a file if it exists."""
        with self._errors("remove", path), suppress(FileNotFoundError), self._in(path) as folder:
            folder.remove(path.name)
            folder.sync()

    def retire(self, path: PurePosixPath, expected: bytes) -> bool:
        """Remove a file if it has the expected content. If somebody changed the file, or has it open for writing, keep
        the file and return False."""
        with self._errors("remove", path), suppress(FileNotFoundError), self._file(path) as (old, folder):
            if is_written(old.fileno()) or old.read(LARGEST) != expected or not folder.has(path.name, old.fileno()):
                return False
            folder.remove(path.name)
            folder.sync()
            self._keep_what_came_last(path, expected, old)
        return True

    def append(self, path: PurePosixPath, data: bytes) -> None:
        """Append data to a file, such as an index page. If the last line of the file has no line end, add a line end
        first. The file is not synced to the disk, because an index page can be rebuilt. Raises NotAFile if the file has
        a second hard link and is too large to be replaced by a copy."""
        with self._errors("write", path), self._in(path, create=True) as folder:
            number = folder.open(path.name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                size = os.fstat(number).st_size
                if size and os.pread(number, 1, size - 1) != b"\n":
                    data = b"\n" + data
                if os.fstat(number).st_nlink > 1:  # a write would also change the other file
                    if size > LARGEST:
                        raise NotAFile(f"{self.path}: a large page has a second hard link", "has a second hard link")
                    self.stage(path, os.pread(number, size, 0) + data, expected=None, replaces_all=True)
                    self.publish()
                else:
                    write(number, data)
            finally:
                os.close(number)

    def files(self, faults: list[FileFault] | None = None) -> Iterator[PurePosixPath]:
        """Yield the path of every regular file, also in .discarded/. The lock file is left out. For `faults`, see
        `folders`."""
        for folder, names in self.folders(faults):
            for name in sorted(names):
                if name != LOCK and _may_be_file(folder / name):
                    yield PurePosixPath((folder / name).relative_to(self.path).as_posix())

    def folders(self, faults: list[FileFault] | None = None) -> Iterator[tuple[Path, list[str]]]:
        """Yield every folder and the names of its files. Every folder that is another agent's vault is left out. If a
        folder cannot be read or is too deep, the error is added to `faults`. Without `faults`, the error is raised."""
        mine = self.whose()

        def unless_gone(problem: OSError) -> None:
            if isinstance(problem, FileNotFoundError):
                return
            if faults is None:
                raise problem
            faults.append(FileFault(f"read {self.path}: {problem.strerror}", str(problem.strerror).lower()))

        with file_errors("read", self.path):
            for above, folders, names in os.walk(self.path, onerror=unless_gone, followlinks=False):
                here = Path(above)
                folders[:] = sorted(each for each in folders if mark_in(here / each) in ("", mine))
                if folders and len(here.parts) - len(self.path.parts) >= _DEEPEST:
                    folders.clear()
                    unless_gone(OSError(errno.ELOOP, "a folder is too deep"))
                yield here, names

    def _errors(self, doing: str, path: PurePosixPath) -> AbstractContextManager[None]:
        return file_errors(doing, self.path / path.parent)

    def _in(self, path: PurePosixPath, *, create: bool = False) -> closing[Folder]:
        """Open the folder of a file. Raises OSError."""
        if self._base.number < 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        number = walked(os.dup(self._base.number), path.parent.parts, create=create)
        return closing(Folder(self.path / path.parent, number, ""))

    @contextmanager
    def _file(self, path: PurePosixPath) -> Iterator[tuple[BinaryIO, Folder]]:
        """Open a file and its folder. Raises OSError, NotAFile."""
        with self._in(path) as folder, _opened(folder, path.name) as file:
            yield file, folder

    def drop_staged(self) -> None:
        """Remove the temporary files that were not published."""
        while self._staged:
            self._drop(self._staged.pop())

    def _drop(self, staged: _Staged) -> None:
        if staged.temporary:
            with suppress(OSError), self._in(staged.path) as folder:
                folder.remove(staged.temporary)


def mark_in(folder: Path) -> str:
    """Return the mark of the vault in this folder, or "" if the folder is not a vault."""
    with suppress(OSError):
        if (file := folder / LOCK).is_file():
            with file.open("rb") as opened:
                found = _MARK.match(opened.read(_MOST_OF_MARK).decode("ascii", "replace"))
                return found[0] if found else ""
    return ""


def _may_be_file(path: Path) -> bool:
    """Return whether this is a regular file, or may be one. Reading a file that the system does not show is a fault."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError as problem:
        return not isinstance(problem, FileNotFoundError)


def _opened(folder: Folder, name: str) -> BinaryIO:
    """Open a file for reading. Raises OSError, NotAFile. The errors do not contain the name."""
    return open_file(folder, name, f"a file in {folder.path}")


def _created(folder: Folder, name: str) -> int:
    """Create a file and open it for writing. If a killed writer left a file with this name, remove that file first."""
    try:
        return folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        folder.remove(name)
        return folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def _linked(folder: Folder, name: str, as_: str) -> bool:
    """Give a file a second name. Return False if the second name exists already, or if the file system has no hard
    links."""
    try:
        folder.link(name, as_)
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno in _NO_LINKS:
            return False
        raise
    return True
