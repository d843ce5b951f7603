"""What a JSON file holds, as far as its first few kilobytes tell: the names of members, and where."""

from __future__ import annotations

import json
import re

AHEAD = 2**16  # bytes that are looked at
_DEEPEST = 3  # members of members of members
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\]:,]|[^\s{}\[\]:,"]++', re.DOTALL)

Outline = frozenset[str]  # `results[].memory`: a member `memory` of an object in the list `results`


def outline(head: bytes) -> Outline:
    text = head.decode("utf-8-sig", "ignore")
    return frozenset(_members(text))


def lines(head: bytes) -> Outline:
    """The members of the first line's object, as `[].content`, for each line is one of a list."""
    first = next((line for line in head.splitlines() if line.strip(b"\xef\xbb\xbf \t")), b"")
    return frozenset(f"[].{name}" for name in outline(first))


def _members(text: str) -> set[str]:
    found: set[str] = set()
    path: list[str] = []  # a name, or "" before there is one, for each object; "[]" for each list
    last = ""
    for word in (match[0] for match in _TOKEN.finditer(text)):
        if word in "[{":
            path.append("[]" if word == "[" else "")
        elif word in "]}":
            if path:
                path.pop()
        elif word == ":" and path and path[-1] != "[]":
            path[-1] = last
            if len(path) <= 2 * _DEEPEST:
                found.add(_told(path))
        last = _name(word) if word.startswith('"') else ""
    return found


def _told(path: list[str]) -> str:
    return "".join(each if each == "[]" else f".{each}" for each in path).removeprefix(".")


def _name(word: str) -> str:
    try:
        return str(json.loads(word)) if len(word) < 100 else ""
    except ValueError:
        return ""
