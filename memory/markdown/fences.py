"""Which lines of a markdown text stand in a fence (``` or ~~~), where nothing is a heading."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MARKS = "`~"
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}(?=[^`]*\Z)|~{3,})(?P<after>[^\n]*)", re.DOTALL)


def is_mark(line: str) -> bool:
    """Whether a line would open a fence."""
    return _FENCE.match(line) is not None


def fenced(lines: Sequence[str]) -> list[bool]:
    """Of each line whether it is of a fence, its marks included. A mark that no later one closes opens none: it would
    swallow all that follows."""
    marks = [_FENCE.match(line) for line in lines]
    if not any(marks):
        return [False] * len(lines)
    closing = _closing_after(marks)
    is_fenced, until = [], ""
    for at, found in enumerate(marks):
        if until:
            is_fenced.append(True)
            until = "" if found and _closes(found) and found["mark"].startswith(until) else until
        else:
            is_open = found is not None and closing[at][found["mark"][0]] >= len(found["mark"])
            until = found["mark"] if found and is_open else ""
            is_fenced.append(is_open)
    return is_fenced


def _closes(found: re.Match[str]) -> bool:
    return not found["after"].strip()


def _closing_after(marks: Sequence[re.Match[str] | None]) -> list[dict[str, int]]:
    """Behind each line, how long the longest mark of each kind is that can close a fence."""
    longest, told = dict.fromkeys(_MARKS, 0), []
    for found in reversed(marks):
        told.append(longest)
        if found is not None and _closes(found) and len(found["mark"]) > longest[found["mark"][0]]:
            longest = longest | {found["mark"][0]: len(found["mark"])}
    return told[::-1]
