"""The framework these memory rules come from: the tree its settings lead to (docs/migration-sources.md)."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from memory.transfer.formats import tree_files
from memory.transfer.formats.found import LeftOut, Part, Reader
from memory.transfer.pages import LARGEST
from memory.transfer.system import Answer, Places, System, Way
from memory.transfer.walk import Kind, Tree

_SETTINGS = "memory-rules/settings.json"
_DEFAULT = "memory"
_LARGEST, _MOST = 2**20, 20  # bytes of settings; trees in one folder
_PARTS = ("common", "private", "projects")


def find(tree: Tree, *, is_named: bool) -> Places:
    bases: list[str] = []
    left_out: list[LeftOut] = []
    for path, entry in tree.entries.items():
        if entry.kind is Kind.FILE and (path == _SETTINGS or path.endswith(f"/{_SETTINGS}")):
            found = _base(tree, path) if len(bases) < _MOST else LeftOut(path, f"is one of more than {_MOST} settings")
            if isinstance(found, LeftOut):
                left_out.append(found)
            else:
                bases.append(found)
    if is_named and not bases and not left_out:
        bases = [_DEFAULT if _DEFAULT in tree.entries else ""]
    ways = {base: Way(_reader(base)) for base in bases}

    def file(path: str) -> Answer:
        base = _of(path, bases) if path.endswith(".md") else None
        return None if base is None else ways[base]

    return Places(file, lambda path: _of(path, bases) is not None, tuple(left_out))


def _of(path: str, bases: list[str]) -> str | None:
    """The tree that a path is of."""
    for base in bases:
        inner = path.removeprefix(f"{base}/") if base else path
        if path == base or ((inner != path or not base) and (base or inner.partition("/")[0] in _PARTS)):
            return base
    return None


def _base(tree: Tree, path: str) -> str | LeftOut:
    """The folder that settings lead to."""
    given = _given(tree, path)
    if isinstance(given, LeftOut):
        return given
    root = posixpath.dirname(posixpath.dirname(path))
    base = (
        posixpath.relpath(given, tree.root) if given.startswith("/") else posixpath.normpath(f"{root or '.'}/{given}")
    )
    if base == ".." or base.startswith("../"):
        return LeftOut(path, "names a base_path outside the folder")
    return "" if base == "." else base


def _given(tree: Tree, path: str) -> str | LeftOut:
    try:
        with tree.opened(path, tree.stamp(path)) as file:
            settings = _loaded(file)
    except OSError:
        return LeftOut(path, "cannot be read")
    if not isinstance(settings, dict):
        return LeftOut(path, "is not JSON, so that nobody knows where memories are")
    storage = settings.get("storage")
    base = storage.get("base_path") if isinstance(storage, dict) else None
    return base if isinstance(base, str) and base.strip() and "\0" not in base else f"./{_DEFAULT}"


def _loaded(file: IO[bytes]) -> Any:
    data = file.read(_LARGEST + 1)
    try:
        return json.loads(data.decode("utf-8-sig")) if len(data) <= _LARGEST else None
    except (ValueError, RecursionError):
        return None


def _reader(base: str) -> Reader:
    def read(file: IO[bytes], path: str) -> Iterator[Part]:
        within = PurePosixPath(path).relative_to(base or ".")
        return tree_files.read(file.read(LARGEST), path, within)

    return read


SYSTEM = System(
    "framework",
    "The framework of the memory rules",
    "custom_agent_frameworks",
    "the tree that memory-rules/settings.json leads to",
    find,
)
