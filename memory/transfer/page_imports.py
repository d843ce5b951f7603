"""What a file of instructions takes in by `@path`: where that leads, and what of it is left out
(docs/migration-sources.md, "Claude Code")."""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memory.transfer.formats.found import LeftOut
from memory.transfer.formats.parting import unfenced
from memory.transfer.symlinks import OUT, Links
from memory.transfer.walk import Kind, is_text

HOPS = 4  # imports that are followed, one from another
MOST, MOST_IN_ALL = 1_000, 20_000  # imports of one file, and of a folder
_LONGEST = 1_000  # characters of a path
_AT = re.compile(r"(?<!\S)@(?!['\"])((?:[^\s\\]|\\[ ]|\\(?![ ]))+)")
_TICKS = re.compile("`+")
_BEHIND = ".,;:!?)]}>'\"*_"  # what ends a sentence, and no path
MISSING, OUTSIDE = "imported file is missing", "imported file lies outside the folder"
CYCLE, TOO_FAR = "import cycle", "is more than four imports away"


@dataclass(slots=True)
class Imports:
    """`by`: the files that are taken in, and the files by which each is; `left_out` by the import's own key."""

    by: dict[str, list[str]] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    count: int = 0


def followed(links: Links, files: Iterable[str], text_of: Callable[[str], str]) -> Imports:
    """From these files on. `text_of` gives a file's text, "" where it has none that can be read."""
    found = Imports()
    roots = sorted(files)
    far = dict.fromkeys(roots, 0)
    leads: dict[str, list[tuple[str, str]]] = {}
    waiting = deque(roots)
    while waiting:
        path = waiting.popleft()
        leads[path] = list(_leads(links, path, text_of(path), found))
        for _, target in leads[path]:
            if target not in far and far[path] < HOPS:
                far[target] = far[path] + 1
                waiting.append(target)
    _without_circles(roots, leads, found)
    return found


def _without_circles(roots: Iterable[str], leads: dict[str, list[tuple[str, str]]], found: Imports) -> None:
    """Go along the imports in order, from each file once; what leads back to where one came from closes a circle."""
    done: set[str] = set()
    for root in roots:
        way = [(root, iter(leads[root]))] if root not in done else []
        on_the_way = {root}
        while way:
            path, rest = way[-1]
            written, target = next(rest, ("", ""))
            if not target:
                way.pop()
                on_the_way.discard(path)
                done.add(path)
            elif target in on_the_way:
                found.left_out.append(LeftOut(f"{path}#@{written}", CYCLE))
            elif target not in leads:
                found.left_out.append(LeftOut(f"{path}#@{written}", TOO_FAR))
            else:
                found.by.setdefault(target, []).append(path)
                if target not in done:
                    way.append((target, iter(leads[target])))
                    on_the_way.add(target)


def _leads(links: Links, path: str, text: str, found: Imports) -> Iterator[tuple[str, str]]:
    """(as it is written, path in the folder) of each file that one imports, once."""
    seen: set[str] = set()
    for number, written in enumerate(dict.fromkeys(_written(text))):
        if number == MOST or found.count == MOST_IN_ALL:
            why = f"has more than {MOST:,} imports" if number == MOST else f"follows {MOST_IN_ALL:,} imports"
            found.left_out.append(LeftOut(f"{path}#@", f"{why}; the rest is not looked at"))
            return
        found.count += 1
        target = _target(links, path, written)
        if isinstance(target, LeftOut):
            found.left_out.append(target)
        elif target and target not in seen:
            seen.add(target)
            yield written, target


def _target(links: Links, path: str, written: str) -> str | LeftOut:
    """A path in the folder; "" for what is no import."""
    key, told = f"{path}#@{written}", written.replace("\\ ", " ")
    place = _place(links, path, told)
    if place is None:
        return LeftOut(key, OUTSIDE)
    led = links.leads(place)
    if led.why == OUT:
        return LeftOut(key, OUTSIDE)
    if led.kind is Kind.FILE and not led.why and is_text(led.path):
        return led.path
    return LeftOut(key, MISSING) if "/" in told or "." in told else ""


def _place(links: Links, path: str, told: str) -> str | None:
    """The path in the folder that is meant; None where it leads out of it."""
    if told == "~" or told.startswith("~/"):
        told = str(Path.home()) + told[1:]
    if told.startswith("/"):
        below = posixpath.relpath(told, links.tree.root)
    else:
        below = posixpath.normpath(posixpath.join(posixpath.dirname(path), told))
    return None if below == ".." or below.startswith("../") else below


def _written(text: str) -> Iterator[str]:
    for _, line in unfenced(text):
        if "@" in line:
            for found in _AT.finditer(_without_code(line)):
                path = found[1].rstrip(_BEHIND)
                if 0 < len(path) <= _LONGEST:
                    yield path


def _without_code(line: str) -> str:
    """A line with blanks in place of what stands between backticks, as many before as behind."""
    runs = list(_TICKS.finditer(line))
    following: dict[int, int] = {}
    closes = [-1] * len(runs)
    for number in range(len(runs) - 1, -1, -1):
        length = len(runs[number][0])
        closes[number] = following.get(length, -1)
        following[length] = number
    kept, at, number = [], 0, 0
    while number < len(runs):
        if closes[number] < 0:
            number += 1
            continue
        kept.append(line[at : runs[number].start()])
        at, number = runs[closes[number]].end(), closes[number] + 1
    kept.append(line[at:])
    return " ` ".join(kept)
