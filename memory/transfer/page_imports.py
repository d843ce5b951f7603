"""The `@path` imports of a file of instructions (docs/migration-sources.md, "Claude Code")."""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from memory.transfer.formats.parts import LeftOut, unfenced
from memory.transfer.walk import OUTSIDE, Kind, Tree, is_text

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
