"""The names of the members of a JSON file, as far as its first kilobytes show them."""

from __future__ import annotations

import io
import re

import ijson

from memory.transfer.formats.json_file import has_long_number

MAX_HEAD = 2**16  # bytes that are looked at
_MAX_DEPTH = 6  # objects and lists within each other
Outline = frozenset[str]  # `results[].memory`: a member `memory` of an object in the list `results`

_ENTRY = re.compile(rb"^## [^\r\n]+\r?\n\*\*Task:\*\* ", re.MULTILINE)
_HEADING = re.compile(rb"^#{1,6} ", re.MULTILINE)
_FENCE = re.compile(rb"^ {0,3}(?:```|~~~)", re.MULTILINE)


def outline(head: bytes) -> Outline:
    found: set[str] = set()
    if has_long_number(head):
        return frozenset()
    try:
        for prefix, event, value in ijson.parse(io.BytesIO(head.removeprefix(b"\xef\xbb\xbf")), buf_size=2**10):
            if event == "map_key" and prefix.count(".") < _MAX_DEPTH:
                found.add(f"{prefix}.{value}".removeprefix(".").replace(".item", "[]").replace("item.", "[]."))
    except (ijson.JSONError, ValueError, ArithmeticError):  # cut off, or no JSON
        pass
    return frozenset(found)


def first_line(head: bytes) -> Outline:
    """The members of the object in the first line, each as `[].content`."""
    line = next((line for line in head.splitlines() if line.strip(b"\xef\xbb\xbf \t")), b"")
    return frozenset(f"[].{name}" for name in outline(line))


def log(head: bytes) -> Outline:
    """`entry` for a log of axe. A page that shows what a log looks like has other headings, or shows it in a fence."""
    first, fence = _ENTRY.search(head), _FENCE.search(head)
    if first is None or (fence is not None and fence.start() < first.start()):
        return frozenset()
    return frozenset({"entry"} if 2 * len(_ENTRY.findall(head)) >= len(_HEADING.findall(head)) else ())
