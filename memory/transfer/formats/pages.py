"""One text file, one memory: a rule, a note, a page. More than one if it is too long."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import IO

from memory.transfer.formats.front_matter import Unreadable, Value, as_line, as_list, split_front_matter
from memory.transfer.formats.gathering import Gathered, moment
from memory.transfer.formats.parts import Found, LeftOut, Part, Reader, Unfit, decoded, says_nothing, tidy

LARGEST = 10 * 2**20  # bytes of a file of words
_FRONT = re.compile(r"---[ \t]*\n[\w.-]")
_DATE = re.compile(r"(?<!\d)(\d{4}-\d{2}-\d{2})(?!\d)")
# What the keys of front matter mean, whatever tool reads them. Others are reported, and not kept.
_FIRST_LINE = ("title", "description")  # the first of these that has a value
_GLOBS = {"globs", "paths", "applyTo", "fileMatchPattern"}
_DATES = {"date", "modified"}
_TAGGED = {"alwaysApply": "alwaysApply:", "type": "type:", "metadata.type": "type:"}
_REPORTED = {"name", "trigger", "inclusion", "excludeAgent"}
_KNOWN = {*_FIRST_LINE, *_GLOBS, *_DATES, *_TAGGED, *_REPORTED, "tags"}


def reader(*tags: str) -> Reader:
    return partial(page, tags=tags)


def page(file: IO[bytes], path: str, tags: tuple[str, ...] = ()) -> Iterator[Part]:
    try:
        yield from _memories(file.read(LARGEST), path, tags)
    except Unfit as unfit:
        yield LeftOut(path, unfit.why)


def _memories(data: bytes, path: str, tags: tuple[str, ...]) -> Iterator[Found]:
    gathered = Gathered(tags=dict.fromkeys(tags))
    content = gathered.take(decoded(data))
    if _FRONT.match(content):
        content = _without_front(content, gathered)
    if says_nothing(content):
        raise Unfit("has only headings and imports")
    yield from memories(content, path, gathered, path)


def memories(content: str, key: str, gathered: Gathered, path: str) -> Iterator[Found]:
    gathered.date = gathered.date or _named(path)
    yield from gathered.memories(key, content, "#" if key == path else "-")


def _named(path: str) -> datetime | None:
    """The date in the name of a file."""
    for found in _DATE.findall(path.rpartition("/")[2]):
        if date := moment(found):
            return date.replace(tzinfo=UTC)
    return None


def _without_front(text: str, gathered: Gathered) -> str:
    """The text without its front matter, which becomes tags, the date and the first line. Raises Unfit."""
    try:
        fields, rest = split_front_matter(text)
    except Unreadable:
        gathered.tell("front matter could not be read, kept as text")
        return text
    if fields and not fields.keys() & _KNOWN:  # text between two lines across the page
        return text
    if fields.get("paths", "") == ():
        raise Unfit("is switched off (paths: [])")
    if not (body := tidy(rest)):
        raise Unfit("has nothing but front matter")
    gathered.tell("front matter left out")
    return f"{_kept(fields, gathered)}{body}"


def _kept(fields: Mapping[str, Value], gathered: Gathered) -> str:
    """What becomes the first line; the rest becomes tags and the date."""
    first = next((name for name in _FIRST_LINE if as_line(fields.get(name, ""))), "")
    for name, value in fields.items():
        if name in _GLOBS:
            for glob in as_list(value):
                gathered.tag(glob, "glob", "glob:")
        elif name == "tags":
            for tag in as_list(value):
                gathered.tag(tag, "tag")
        elif name in _DATES:
            gathered.moment(value)
        elif name in _TAGGED:
            gathered.tag(as_line(value), name, _TAGGED[name])
        elif value and name != first:
            gathered.not_kept(name)
    if not first:
        return ""
    gathered.tell(f"{first} became the first line")
    return f"{as_line(fields[first])}\n\n"
