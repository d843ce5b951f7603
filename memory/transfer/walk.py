"""What lies in a folder of somebody else, its files opened, and the `@path` imports that a file of instructions follows
(docs/reference/import-formats.md, "Claude Code").

Symlinks are never followed: each part of a path is opened in the one before it with O_NOFOLLOW. Only plain files and
folders are opened. The number of entries and the depth are bounded.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO

from memory.run_log.files import Folder, Place, file_errors, open_file, walked
from memory.transfer.formats.parts import LeftOut, unfenced
from memory.vault.disk import LOCK

MAX_ENTRIES, MAX_DEPTH = 200_000, 128
# Packages, environments, histories, data of tests, and skills that other people wrote.
_NOT_ENTERED = frozenset(
    {"node_modules", "bower_components", "vendor", "third_party", "venv", ".venv", "virtualenv", "site-packages"}
    | {"__pycache__", ".tox", ".nox", ".git", ".hg", ".svn", "fixtures", "__fixtures__", "testdata"}
)
_SKILLS = ("/.agents/skills", "/.claude/skills")
_ENVIRONMENT = "pyvenv.cfg"  # in a virtual environment, whatever its name
NO_FILE, UNREADABLE, NO_TEXT_NAME = "is no file", "cannot be read", "has a name that is no text"
OUTSIDE, NOWHERE = "is a link that leads out of the folder", "is a link that leads nowhere"


class Kind(Enum):
    FILE = auto()
    FOLDER = auto()
    LINK = auto()
    OTHER = auto()


@dataclass(slots=True)
class Tree:
    """An open folder. `entries` in order of path, with `/`."""

    root: Path  # real
    number: int
    entries: dict[str, Kind] = field(default_factory=dict)
    vaults: list[str] = field(default_factory=list)  # folders in which this service keeps files for agents
    left_out: list[LeftOut] = field(default_factory=list)

    def open(self, path: str) -> BinaryIO:
        """Raises OSError, FileFault for what is no file."""
        *folders, name = path.split("/")
        with closing(Folder(self.root, walked(os.dup(self.number), tuple(folders), create=False), name)) as folder:
            file = open_file(folder, os.O_RDONLY, Place(Path(path)))
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return file

    def target(self, path: str) -> tuple[str, str]:
        """The path in the folder that a path with links leads to, or "" and why it leads to none. Nothing is opened."""
        real = os.path.relpath(os.path.realpath(self.root / path), self.root)
        if real == ".." or real.startswith("../"):
            return "", OUTSIDE
        is_there = real == "." or self.entries.get(real) in (Kind.FILE, Kind.FOLDER)
        return (real, "") if is_there else ("", NOWHERE)


def shown(path: str) -> str:
    """A path as text: bytes that are no text are replaced."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def is_text(path: str) -> bool:
    return shown(path) == path


@contextmanager
def opened(folder: Path, own_vault: str = "") -> Iterator[Tree]:
    """Everything in a folder, except the vault at this path. Raises FileFault if it is no folder or cannot be read."""
    with file_errors("read", folder):
        root = Path(os.path.realpath(folder))
        tree = Tree(root, os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        tree.entries = dict(sorted(_walked(tree, os.path.realpath(own_vault) if own_vault else "")))
        yield tree
    finally:
        os.close(tree.number)


def _walked(tree: Tree, own_vault: str) -> Iterator[tuple[str, Kind]]:
    """Each folder before the folders in it, so that a bound cuts off what is far away."""
    waiting, left = deque([""]), MAX_ENTRIES
    while waiting:
        path = waiting.popleft()
        if own_vault and str(tree.root / path) == own_vault:
            tree.left_out.append(LeftOut(shown(path) or ".", "is this agent's own vault"))
            continue
        found = _listed(tree, path, left)
        if len(found) > left:
            tree.left_out.append(LeftOut(".", f"holds more than {MAX_ENTRIES:,} entries; the rest is not looked at"))
            return
        if path and _ENVIRONMENT in found:
            continue
        if LOCK in found:
            tree.vaults.append(path)
        left -= len(found)
        for name, kind in found.items():
            below = f"{path}/{name}" if path else name
            yield below, kind
            if kind is Kind.FOLDER and name not in _NOT_ENTERED and not f"/{below}".endswith(_SKILLS):
                if below.count("/") + 1 < MAX_DEPTH:
                    waiting.append(below)
                else:
                    tree.left_out.append(LeftOut(shown(below), f"lies {MAX_DEPTH} folders deep"))


def _listed(tree: Tree, path: str, most: int) -> dict[str, Kind]:
    """The entries of a folder in order of name: one more than `most` if there are more."""
    found: dict[str, Kind] = {}
    try:
        number = walked(os.dup(tree.number), tuple(path.split("/")) if path else (), create=False)
        try:
            with os.scandir(number) as entries:
                for entry in entries:
                    found[entry.name] = _kind(entry)
                    if len(found) > most:
                        break
        finally:
            os.close(number)
    except OSError:
        tree.left_out.append(LeftOut(shown(path) or ".", UNREADABLE))
    return dict(sorted(found.items()))


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return Kind.LINK
    if entry.is_dir(follow_symlinks=False):
        return Kind.FOLDER
    return Kind.FILE if entry.is_file(follow_symlinks=False) else Kind.OTHER


MAX_HOPS = 4  # imports from one file to the next
MAX_IMPORTS = 1_000  # of one file
MAX_LINE = 2_000  # characters of a line that are searched
_AT = re.compile(r"(?<!\S)@(?!['\"])((?:[^\s\\]|\\[ ]|\\(?![ ]))+)")
_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")
_PUNCTUATION = ".,;:!?)]}>'\"*_"  # what ends a sentence, and no path


def followed(
    tree: Tree, roots: Iterable[str], text_of: Callable[[str], str]
) -> tuple[dict[str, list[str]], list[LeftOut]]:
    """The files that are imported, each with the files that import it, and the imports that are left out. `text_of`
    returns the text of a file, or "" if it has none."""
    imported: dict[str, list[str]] = {}
    left_out: list[LeftOut] = []
    hops = dict.fromkeys(sorted(roots), 0)
    waiting = deque(hops)
    while waiting:
        path = waiting.popleft()
        for number, written in enumerate(dict.fromkeys(_written(text_of(path)))):
            if number == MAX_IMPORTS:
                left_out.append(LeftOut(f"{path}#@", f"has more than {MAX_IMPORTS:,} imports; the rest is not read"))
                break
            target = _target(tree, path, written)
            if not isinstance(target, LeftOut) and target not in hops and hops[path] == MAX_HOPS:
                target = LeftOut(f"{path}#@{written}", "is more than four imports away")
            if isinstance(target, LeftOut):
                left_out.append(target)
            elif target and target != path:
                imported.setdefault(target, [])
                if path not in imported[target]:
                    imported[target].append(path)
                if target not in hops:
                    hops[target] = hops[path] + 1
                    waiting.append(target)
    return imported, left_out


def _target(tree: Tree, path: str, written: str) -> str | LeftOut:
    """The file that is meant; "" if the text is no import but a name."""
    key, told = f"{path}#@{written}", written.replace("\\ ", " ")
    if told == "~" or told.startswith("~/"):
        told = str(Path.home()) + told[1:]
    target, why = tree.target(posixpath.join(posixpath.dirname(path), told))
    if target and tree.entries.get(target) is Kind.FILE and is_text(target):
        return target
    if why == OUTSIDE:
        return LeftOut(key, "imported file lies outside the folder")
    return LeftOut(key, "imported file is missing") if "/" in told or "." in told else ""


def _written(text: str) -> Iterator[str]:
    for _, line in unfenced(text):
        if "@" in line:
            for found in _AT.finditer(_CODE.sub(" ` ", line[:MAX_LINE])):
                if path := found[1].rstrip(_PUNCTUATION):
                    yield path
