"""List and open files in a folder. Other tools or people wrote these files. Also find the files that these files import
with `@path` (docs/reference/import-formats.md, "Claude Code").

Symlinks are not followed: each folder of a path is opened relative to its parent folder, with O_NOFOLLOW. Only regular
files and folders are opened. The number of entries and the depth are limited.
"""

import os
import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from memory.run_log.files import Folder, file_errors, open_file, walked
from memory.transfer.formats.parts import LeftOut, unfenced
from memory.vault.disk import LOCK

MAX_ENTRIES, MAX_DEPTH = 200_000, 128
# Folders with packages, environments, version control data, test data, or skills that other people wrote.
_NOT_ENTERED = frozenset(
    {"node_modules", "bower_components", "vendor", "third_party", "venv", ".venv", "virtualenv", "site-packages"}
    | {"__pycache__", ".tox", ".nox", ".git", ".hg", ".svn", "fixtures", "__fixtures__", "testdata"}
)
_SKILLS = ("/.agents/skills", "/.claude/skills")
_OWN_SOURCE = frozenset({"manage.py", "audit", "memory", "refinement"})  # names in Palimpsest's own source tree
NO_FILE, UNREADABLE, NO_TEXT_NAME = "is not a file", "cannot be read", "has a name that is not valid text"
OUTSIDE, NOWHERE = "is a symlink that points outside the folder", "is a symlink whose target is missing or skipped"


class Kind(Enum):
    FILE, FOLDER, LINK, OTHER = range(4)


@dataclass(slots=True)
class Tree:
    """An open folder. `entries` has the sorted paths of all files and folders inside this folder. The separator is
    `/`."""

    root: Path  # without symlinks
    number: int
    entries: dict[str, Kind] = field(default_factory=dict)
    vaults: list[str] = field(default_factory=list)  # folders that are vaults of agents
    left_out: list[LeftOut] = field(default_factory=list)

    def open(self, path: str) -> BinaryIO:
        """Open a file of the folder. Raises OSError. Raises FileFault if the path is not a regular file."""
        *folders, name = path.split("/")
        with closing(Folder(self.root, walked(os.dup(self.number), tuple(folders), create=False), name)) as folder:
            return open_file(folder, name, path)

    def target(self, path: str) -> tuple[str, str]:
        """Resolve the symlinks of a path. Return the target as a path in the folder. If there is no target in the
        folder, return "" and the reason. Opens no file."""
        real = os.path.relpath(os.path.realpath(self.root / path), self.root)
        if real == ".." or real.startswith("../"):
            return "", OUTSIDE
        is_there = real == "." or self.entries.get(real) in (Kind.FILE, Kind.FOLDER)
        return (real, "") if is_there else ("", NOWHERE)


def as_text(path: str) -> str:
    """Return a path as valid text. Invalid bytes are replaced."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def is_text(path: str) -> bool:
    return as_text(path) == path


@contextmanager
def opened(folder: Path, own_vault: str = "") -> Iterator[Tree]:
    """List the contents of a folder. The agent's own vault, at the path `own_vault`, is left out. Raises FileFault if
    the path is not a folder or cannot be read."""
    with file_errors("read", folder):
        root = Path(os.path.realpath(folder))
        tree = Tree(root, os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        tree.entries = dict(sorted(_walked(tree, os.path.realpath(own_vault) if own_vault else "")))
        yield tree
    finally:
        os.close(tree.number)


def _walked(tree: Tree, own_vault: str) -> Iterator[tuple[str, Kind]]:
    """Yield each folder before its contents. So if there are too many entries, the deepest ones are left out."""
    waiting, left = deque([""]), MAX_ENTRIES
    while waiting:
        path = waiting.popleft()
        if own_vault and str(tree.root / path) == own_vault:
            tree.left_out.append(LeftOut(as_text(path) or ".", "is this agent's own vault"))
            continue
        found = _listed(tree, path, left)
        if len(found) > left:
            tree.left_out.append(LeftOut(".", f"has more than {MAX_ENTRIES:,} entries; the others are skipped"))
            return
        if path and "pyvenv.cfg" in found:  # a virtual environment
            continue
        if found.keys() >= _OWN_SOURCE:
            tree.left_out.append(LeftOut(as_text(path) or ".", "is the source tree of Palimpsest itself"))
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
                    tree.left_out.append(LeftOut(as_text(below), f"is nested too deeply ({MAX_DEPTH} folders)"))


def _listed(tree: Tree, path: str, most: int) -> dict[str, Kind]:
    """Return a dict from the names of a folder's entries to their kinds. Stop after `most` + 1 entries."""
    found: dict[str, Kind] = {}
    try:
        number = walked(os.dup(tree.number), tuple(path.split("/")) if path else (), create=False)
        try:
            with os.scandir(number) as entries:
                found.update((entry.name, _kind(entry)) for entry in islice(entries, most + 1))
        finally:
            os.close(number)
    except OSError:
        tree.left_out.append(LeftOut(as_text(path) or ".", UNREADABLE))
    return dict(sorted(found.items()))


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return Kind.LINK
    if entry.is_dir(follow_symlinks=False):
        return Kind.FOLDER
    return Kind.FILE if entry.is_file(follow_symlinks=False) else Kind.OTHER


# --- following imports of a page


MAX_HOPS = 4  # imports in one chain
MAX_IMPORTS = 1_000  # imports in one file
MAX_LINE = 2_000  # characters of a line that are searched
_AT = re.compile(r"(?<!\S)@(?!['\"])((?:[^\s\\]|\\[ ]|\\(?![ ]))+)")
_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")
_PUNCTUATION = ".,;:!?)]}>'\"*_"  # such a character at the end is not part of the path


def follow_imports(
    tree: Tree, roots: Iterable[str], text_of: Callable[[str], str]
) -> tuple[dict[str, dict[str, None]], list[LeftOut]]:
    """Return the imported files and the imports that are left out. Each imported file has the files that import it, as
    keys. `text_of` returns the text of a file, or "" if it cannot be read."""
    imported: dict[str, dict[str, None]] = {}
    left_out: list[LeftOut] = []
    hops = dict.fromkeys(sorted(roots), 0)
    waiting = deque(hops)
    while waiting:
        path = waiting.popleft()
        for number, written in enumerate(dict.fromkeys(_written(text_of(path)))):
            if number == MAX_IMPORTS:
                left_out.append(LeftOut(f"{path}#@", f"has more than {MAX_IMPORTS:,} imports; the others are skipped"))
                break
            target = _target(tree, path, written)
            if not isinstance(target, LeftOut) and target not in hops and hops[path] == MAX_HOPS:
                target = LeftOut(f"{path}#@{written}", "is more than four imports away")
            if isinstance(target, LeftOut):
                left_out.append(target)
            elif target and target != path:
                imported.setdefault(target, {})[path] = None
                if target not in hops:
                    hops[target] = hops[path] + 1
                    waiting.append(target)
    return imported, left_out


def _target(tree: Tree, path: str, written: str) -> str | LeftOut:
    """Return the path of the imported file, or the reason to leave out the import. Return "" if the text after the @ is
    a name and not an import."""
    key, path_text = f"{path}#@{written}", written.replace("\\ ", " ")
    if path_text == "~" or path_text.startswith("~/"):
        path_text = str(Path.home()) + path_text[1:]
    target, why = tree.target(posixpath.join(posixpath.dirname(path), path_text))
    if target and tree.entries.get(target) is Kind.FILE and is_text(target):
        return target
    if why == OUTSIDE:
        return LeftOut(key, "points to a file outside the folder")
    return LeftOut(key, "points to a missing file") if "/" in path_text or "." in path_text else ""


def _written(text: str) -> Iterator[str]:
    for _, line in unfenced(text):
        if "@" in line:
            for found in _AT.finditer(_CODE.sub(" ` ", line[:MAX_LINE])):
                if path := found[1].rstrip(_PUNCTUATION):
                    yield path
