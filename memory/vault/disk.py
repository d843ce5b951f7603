"""A vault's folder: files put there whole or not at all, read back, moved, set aside, removed; one writer at a time.

Paths are below the folder, and each part of one is opened in the part before it: a link leads nowhere (`placing`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from memory.errors import FileFault
from memory.placing import Folder, Place, folder_of, lock, told, walked
from memory.replacement import write

LOCK = ".palimpsest"
ASIDE = ".discarded"
NEW = ".palimpsest-new-"
LARGEST = 4_000_000  # bytes of a file that is read: ours have some 200,000 at most
_SYNCED_AT_ONCE = 16  # syncs that wait for the disk together are as quick as one
_FEW = 4


@dataclass(slots=True)
class _Staged:
    folder: Folder
    name: str
    temporary: str
    number: int
    expected: bytes | None  # what the file says now; None where there is none
    replaces_all: bool = False  # whatever it says


@dataclass(frozen=True, slots=True)
class _At:
    """A path, put together only where it is told."""

    base: Path
    path: PurePosixPath

    def __str__(self) -> str:
        return str(self.base / self.path)


class Disk:
    """A vault's folder, open, and locked by its holder. Raises FileFault where the system refuses something."""

    def __init__(self, folder: Folder) -> None:
        self.path = folder.path
        self._base = folder
        self._folders: dict[tuple[str, ...], Folder] = {(): folder}
        self._staged: list[_Staged] = []

    def read(self, path: PurePosixPath) -> bytes | None:
        """What a file says; None where there is none."""
        with told("read", _At(self.path, path)):
            folder = self._folder(path.parent.parts)
            return None if folder is None else _read(folder, path.name, _At(self.path, path))

    def exists(self, path: PurePosixPath) -> bool:
        with told("read", _At(self.path, path)):
            folder = self._folder(path.parent.parts)
            return folder is not None and folder.exists(path.name)

    def stage(self, path: PurePosixPath, data: bytes, *, expected: bytes | None) -> None:
        """Write a file beside its place, which it takes with `publish`."""
        with told("write", _At(self.path, path)):
            folder = self._made(path.parent.parts)
            temporary = NEW + hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
            number = _anew(folder, temporary)
            self._staged.append(_Staged(folder, path.name, temporary, number, expected))
            write(number, data)

    def begin(self, path: PurePosixPath) -> Callable[[bytes], None]:
        """The same for a file that is written piece by piece; what is there is replaced, whatever it says."""
        self.stage(path, b"", expected=None)
        staged = self._staged[-1]
        staged.replaces_all = True

        def more(data: bytes) -> None:
            with told("write", _At(self.path, path)):
                write(staged.number, data)

        return more

    def publish(self) -> list[PurePosixPath]:
        """Give every staged file its place, on the disk when this returns. Those whose place somebody has written to
        meanwhile are left out, and returned."""
        refused = []
        try:
            with told("write", self.path):
                _sync([each.number for each in self._staged])
                for each in self._staged:
                    if not _placed(each):
                        refused.append(PurePosixPath(each.folder.path.relative_to(self.path).as_posix(), each.name))
                self._sync_folders(each.folder for each in self._staged)
        finally:
            self._drop_staged()
        return refused

    def move(self, path: PurePosixPath, to: PurePosixPath) -> None:
        """To another folder or name of the vault. Raises FileFault where there is a file already."""
        with told("move", _At(self.path, path)):
            folder = self._folder(path.parent.parts)
            if folder is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            target = self._made(to.parent.parts)
            folder.move(path.name, target, to.name)
            self._sync_folders((target, folder))

    def remove(self, path: PurePosixPath) -> None:
        """One that is not there is removed already."""
        with told("remove", _At(self.path, path)), suppress(FileNotFoundError):
            folder = self._folder(path.parent.parts)
            if folder is not None:
                folder.remove(path.name)
                self._sync_folders((folder,))

    def append(self, path: PurePosixPath, data: bytes) -> None:
        """To a file that can be made anew from others: not synced. What ends in the midst of a line is ended first."""
        with told("write", _At(self.path, path)):
            folder = self._made(path.parent.parts)
            number = folder.open(path.name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                size = os.fstat(number).st_size
                if size:
                    os.lseek(number, size - 1, os.SEEK_SET)
                    data = data if os.read(number, 1) == b"\n" else b"\n" + data
                write(number, data)
            finally:
                os.close(number)

    def files(self) -> Iterator[PurePosixPath]:
        """Every file, those that were set aside included; the lock is not."""
        with told("read", self.path):
            for above, folders, names in os.walk(self.path, followlinks=False):
                here = PurePosixPath(Path(above).relative_to(self.path).as_posix())
                folders.sort()
                yield from (here / name for name in sorted(names) if name != LOCK)

    def _folder(self, parts: tuple[str, ...]) -> Folder | None:
        """None where there is none."""
        if parts in self._folders:
            return self._folders[parts]
        try:
            return self._opened(parts, create=False)
        except FileNotFoundError:
            return None

    def _made(self, parts: tuple[str, ...]) -> Folder:
        """… made where there is none."""
        return self._folders.get(parts) or self._opened(parts, create=True)

    def _opened(self, parts: tuple[str, ...], *, create: bool) -> Folder:
        path = self.path.joinpath(*parts)
        if self._base.number is None:  # where folders are not opened
            path.mkdir(mode=0o700, parents=create, exist_ok=True) if create else path.stat()
            folder = Folder(path, None, "")
        else:
            folder = Folder(path, walked(os.dup(self._base.number), parts, create=create), "")
        self._folders[parts] = folder
        return folder

    def _sync_folders(self, folders: Iterable[Folder]) -> None:
        for folder in {id(folder): folder for folder in folders}.values():
            folder.sync()

    def _drop_staged(self) -> None:
        for each in self._staged:
            os.close(each.number)
            if each.temporary:
                with suppress(OSError):
                    each.folder.remove(each.temporary)
        self._staged = []

    def close(self) -> None:
        self._drop_staged()
        for parts, folder in self._folders.items():
            if parts and folder.number is not None:
                os.close(folder.number)
        self._folders = {}


@contextmanager
def held(base: Path, roots: tuple[Path, ...], *, create: bool = True) -> Iterator[Disk]:
    """A vault's folder, which lies under the operator's roots wherever links lead, locked against other writers of
    ours. Raises FileFault, FileElsewhere."""
    place = Place(base / LOCK, roots)
    with folder_of(place, create=create) as folder:
        if folder is None:
            raise FileFault(f"open {base}: there is no such folder", "there is no such folder")
        with told("lock", base):
            number = folder.open(LOCK, os.O_RDWR | os.O_CREAT)
        disk = Disk(folder)
        try:
            with told("lock", base):
                lock(number)
            yield disk
        finally:
            disk.close()
            os.close(number)


def _anew(folder: Folder, name: str) -> int:
    """A new file, open for writing, in the place of what a killed writer left under this name."""
    try:
        return folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        folder.remove(name)
        return folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def _placed(each: _Staged) -> bool:
    """Whether a staged file was given its place: of a new one, that nobody has taken; else as somebody saw it."""
    if each.expected is None and not each.replaces_all:
        try:
            each.folder.link(each.temporary, each.name)
        except FileExistsError:
            return False
        return True
    if each.replaces_all or _read(each.folder, each.name, each.folder.path / each.name) == each.expected:
        each.folder.replace(each.name, by=each.temporary)
        each.temporary = ""
        return True
    return False


def _read(folder: Folder, name: str, path: object) -> bytes | None:
    try:
        number = folder.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise FileFault(f"read {path}: is not a file", "is not a file")
        return file.read(LARGEST)


def _sync(numbers: list[int]) -> None:
    if len(numbers) <= _FEW:
        for number in numbers:
            os.fsync(number)
        return
    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as together:
        list(together.map(os.fsync, numbers))
