"""A folder of somebody's, looked through without trust: what lies in it, and its files opened.

Links are read, never followed: each part of a path is opened in the one before it, so that a link put there later leads
nowhere. Nothing but plain files and folders is opened; how many entries are looked at, and how deep, is bounded.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO, NamedTuple

from memory.errors import FileFault, FolderChanged
from memory.run_log.files import PLAIN, told, walked
from memory.transfer.formats.found import LeftOut
from memory.vault.disk import LOCK

MOST, DEEPEST = 200_000, 128  # entries, folders one in another
# What is somebody else's: packages, environments, the history.
NOT_ENTERED = frozenset(
    {"node_modules", "bower_components", "vendor", "venv", ".venv", "virtualenv", "site-packages", "__pycache__"}
    | {".tox", ".nox", ".git", ".hg", ".svn"}
)
_HELD_OPEN = 16  # folders
_ENVIRONMENT = "pyvenv.cfg"  # in a virtual environment, whatever it is called
VAULT = "is a vault of this service"
_NOT_LINKED = getattr(os, "O_NOFOLLOW", 0)
NO_FILE, UNREADABLE, NO_TEXT_NAME = "is no file", "cannot be read", "has a name that is no text"


class Kind(Enum):
    FILE = auto()
    FOLDER = auto()
    LINK = auto()
    OTHER = auto()


class Entry(NamedTuple):
    path: str  # from the folder that is looked at, with `/`
    kind: Kind

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Stamp(NamedTuple):
    """By which a file is known again."""

    device: int
    inode: int
    size: int
    modified: int  # nanoseconds since 1970


@dataclass(slots=True)
class Tree:
    """A folder, open. `entries` in order of path."""

    root: Path  # real
    number: int
    entries: dict[str, Entry] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    _open: dict[str, int] = field(default_factory=dict)  # folders, by path

    def stamp(self, path: str) -> Stamp:
        """Raises OSError; FileFault for what is no file any more."""
        with self._opened(path) as file:
            return _stamp(file)

    @contextmanager
    def opened(self, path: str, seen: Stamp) -> Iterator[BinaryIO]:
        """A file as it was when it was looked at, to its end. Raises FolderChanged."""
        try:
            opened = self._file(path)
        except (OSError, FileFault):
            raise FolderChanged(path) from None
        with told("read", path), opened as file:
            if _stamp(file) != seen:
                raise FolderChanged(path)
            yield file
            if _stamp(file) != seen:
                raise FolderChanged(path)

    @contextmanager
    def _opened(self, path: str) -> Iterator[BinaryIO]:
        with self._file(path) as file:
            yield file

    def _file(self, path: str) -> BinaryIO:
        folder, _, name = path.rpartition("/")
        number = os.open(name, os.O_RDONLY | PLAIN | _NOT_LINKED, dir_fd=self._folder(folder))
        if stat.S_ISREG(os.fstat(number).st_mode):
            return os.fdopen(number, "rb")
        os.close(number)
        raise FileFault(f"read {path}: {NO_FILE}", NO_FILE)

    def _folder(self, path: str) -> int:
        """A folder, open. One that was opened is taken again where its path leads to it still: so each file of a deep
        folder costs a question, and not its depth."""
        if not path:
            return self.number
        number = self._open.pop(path, None)
        if number is not None and not self._is_there(path, number):
            os.close(number)
            number = None
        if number is None:
            number = walked(os.dup(self.number), tuple(path.split("/")), create=False)
        self._open[path] = number  # the last used last
        if len(self._open) > _HELD_OPEN:
            os.close(self._open.pop(next(iter(self._open))))
        return number

    def _is_there(self, path: str, number: int) -> bool:
        """Whether a path leads to this open folder: should it do so by a link by now, it is still what was reached
        without one."""
        try:
            found = os.stat(path, dir_fd=self.number)
        except OSError:  # it is gone, or its path too long to be asked for at once
            return False
        return os.path.samestat(os.fstat(number), found)

    def close(self) -> None:
        for number in (*self._open.values(), self.number):
            os.close(number)
        self._open.clear()


def _stamp(file: BinaryIO) -> Stamp:
    found = os.fstat(file.fileno())
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def shown(path: str) -> str:
    """A path as text: what is none of a name is replaced."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def is_text(path: str) -> bool:
    return path.isascii() or shown(path) == path


@contextmanager
def opened(folder: Path) -> Iterator[Tree]:
    """All that lies in a folder. Raises FileFault where it is none, or cannot be read."""
    with told("read", folder):
        root = Path(os.path.realpath(folder))
        tree = Tree(root, os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        found = sorted(_walked(tree))
        tree.entries = {entry.path: entry for entry in found}
        yield tree
    finally:
        tree.close()


def _walked(tree: Tree) -> Iterator[Entry]:
    """Each folder before those in it, so that what lies near is found whatever lies below."""
    waiting, left = deque([""]), MOST
    while waiting:
        path = waiting.popleft()
        found = _listed(tree, path, left)
        if len(found) > left:
            tree.left_out.append(LeftOut(".", f"holds more than {MOST:,} entries; the rest is not looked at"))
            return
        names = {entry.name for entry in found}
        if path and _ENVIRONMENT in names:
            continue
        if LOCK in names:  # its files are of memories that are here, or in another silo
            tree.left_out.append(LeftOut(shown(path) or ".", VAULT))
            continue
        left -= len(found)
        for entry in found:
            yield entry
            if entry.kind is Kind.FOLDER and entry.name not in NOT_ENTERED:
                if entry.path.count("/") + 1 < DEEPEST:
                    waiting.append(entry.path)
                else:
                    tree.left_out.append(LeftOut(shown(entry.path), f"lies {DEEPEST} folders deep"))


def _listed(tree: Tree, path: str, most: int) -> list[Entry]:
    """What lies in a folder, in order; one more than `most` where there is more."""
    found: list[Entry] = []
    try:
        number = walked(os.dup(tree.number), tuple(path.split("/")) if path else (), create=False)
        try:
            with os.scandir(number) as listed:
                for each in listed:
                    found.append(Entry(f"{path}/{each.name}" if path else each.name, _kind(each)))
                    if len(found) > most:
                        break
        finally:
            os.close(number)
    except OSError:
        tree.left_out.append(LeftOut(shown(path) or ".", UNREADABLE))
    return sorted(found)


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return Kind.LINK
    if entry.is_dir(follow_symlinks=False):
        return Kind.FOLDER
    return Kind.FILE if entry.is_file(follow_symlinks=False) else Kind.OTHER
