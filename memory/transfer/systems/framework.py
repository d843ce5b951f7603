"""Trees of markdown: of the framework that the memory rules come from, found by its settings, and vaults of this
service (docs/migration-sources.md, "The framework these memory rules come from")."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO

from memory.errors import FileFault
from memory.transfer.formats import tree_files
from memory.transfer.formats.pages import LARGEST
from memory.transfer.formats.parts import LeftOut, Part, Reader, parsed
from memory.transfer.walk import UNREADABLE, Kind, Tree
from memory.vault.disk import ASIDE

_LAYOUTS = ("modules/memory-rules/settings.json", "memory-rules/settings.json")  # the longer first
_DEFAULT = "memory"
_MAX_SETTINGS, _MAX_TREES = 2**20, 20  # bytes; in one folder
_PARTS = ("common", "private", "projects")


def found(tree: Tree, *, is_named: bool) -> tuple[list[str], list[LeftOut]]:
    """The folders that settings lead to, and the settings that lead to none. If there are no settings and the system is
    asked for by name, the folder `memory`, or the folder itself."""
    bases: list[str] = []
    left_out: list[LeftOut] = []
    for path, kind in tree.entries.items():
        layout = next((each for each in _LAYOUTS if f"/{path}".endswith(f"/{each}")), "")
        if kind is not Kind.FILE or not layout:
            continue
        full = LeftOut(path, f"is one of more than {_MAX_TREES} settings")
        base = _base(tree, path, path[: -len(layout)].rstrip("/")) if len(bases) < _MAX_TREES else full
        if isinstance(base, LeftOut):
            left_out.append(base)
        else:
            bases.append(base)
    if is_named and not bases and not left_out:
        bases = [_DEFAULT if _DEFAULT in tree.entries else ""]
    return bases, left_out


def base_of(path: str, bases: list[str]) -> str | None:
    """The tree that a file or folder belongs to, if it is one of its memories."""
    for base in bases:
        inner = path.removeprefix(f"{base}/") if base else path
        if (base and path == base) or ((inner != path or not base) and (base or inner.partition("/")[0] in _PARTS)):
            return None if inner.partition("/")[0] == ASIDE else base
    return None


def reader(base: str) -> Reader:
    def read(file: IO[bytes], path: str) -> Iterator[Part]:
        return tree_files.read(file.read(LARGEST), path, PurePosixPath(path).relative_to(base or "."))

    return read


def _base(tree: Tree, path: str, root: str) -> str | LeftOut:
    try:
        with tree.open(path) as file:
            settings, _ = parsed(file.read(_MAX_SETTINGS))
    except (OSError, FileFault):
        return LeftOut(path, UNREADABLE)
    if not isinstance(settings, dict):
        return LeftOut(path, "is not JSON, so that nobody knows where memories are")
    storage = settings.get("storage")
    given = storage.get("base_path") if isinstance(storage, dict) else None
    if not isinstance(given, str) or not given.strip() or "\0" in given:
        given = f"./{_DEFAULT}"
    is_absolute = given.startswith("/")
    base = posixpath.relpath(given, tree.root) if is_absolute else posixpath.normpath(f"{root or '.'}/{given}")
    if base == ".." or base.startswith("../"):
        return LeftOut(path, "names a base_path outside the folder")
    return "" if base == "." else base
