"""One text file, one memory: a rule, a note, a page. More than one if it is too long."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO

from memory.policy.validation import MAX_TAG
from memory.transfer.formats.found import HERE, Found, LeftOut, Part, Reader
from memory.transfer.formats.front_matter import Unreadable, Value, as_line, as_list, split_front_matter
from memory.transfer.formats.gathering import Gathered, moment
from memory.transfer.formats.parting import in_parts, pieces
from memory.transfer.formats.text import Unfit, decoded, tidy

LARGEST = 10 * 2**20  # bytes of a file of words
_FRONT = re.compile(r"---[ \t]*$", re.MULTILINE)
_SAYS_NOTHING = re.compile(r"\s*(?:#{1,6}\s.*|#{1,6}|@\S+(?:\s+@\S+)*|=+|-{3,})?\s*$")  # a heading, an import, a rule
_DATE = re.compile(r"(?<!\d)(\d{4}-\d{2}-\d{2})(?!\d)")


@dataclass(frozen=True, slots=True)
class Front:
    """What the keys of a system's front matter mean. Other keys are reported, and not kept."""

    first_line: tuple[str, ...] = ("description",)  # the first of these keys that has a value
    globs: str = ""
    tags: str = ""
    date: str = ""
    tagged: Mapping[str, str] = field(default_factory=dict)  # key → what stands before its value in a tag
    switched_off: str = ""  # a list; if it is empty, the page is switched off


def reader(front: Front | None = None, tags: tuple[str, ...] = ()) -> Reader:
    """`front` is None if the system reads no front matter."""

    def read(file: IO[bytes], path: str) -> Iterator[Part]:
        return page(file.read(LARGEST + 1), path, front, tags)

    return read


def page(data: bytes, path: str, front: Front | None, tags: tuple[str, ...]) -> Iterator[Part]:
    try:
        if len(data) > LARGEST:
            raise Unfit("is too large")
        text = decoded(data)
        gathered = Gathered(tags=dict.fromkeys(tags))
        for what in text.transformed:
            gathered.tell(what)
        has_front = front and _FRONT.match(text.text) and data.removeprefix(codecs.BOM_UTF8).startswith(b"---")
        content = _without_front(text.text, front, gathered) if front and has_front else text.text
        if all(_SAYS_NOTHING.match(line) for line in content.splitlines()):
            raise Unfit("has only headings and imports")
    except Unfit as unfit:
        why = unfit.why
    else:
        yield from memories(content, path, gathered, path)
        return
    yield LeftOut(path, why)


def memories(content: str, key: str, gathered: Gathered, path: str) -> Iterator[Found]:
    date, between = gathered.date or _named(path), "#" if key == path else "-"
    whole = Found(key, "", "contextual", HERE, tuple(gathered.tags), date, transformed=gathered.transformed)
    yield from in_parts(whole, pieces(content), between)


def _named(path: str) -> datetime | None:
    """The date in the name of a file."""
    for found in _DATE.findall(path.rpartition("/")[2]):
        if date := moment(found):
            return date.replace(tzinfo=UTC)
    return None


def _without_front(text: str, front: Front, gathered: Gathered) -> str:
    """The text without its front matter, which becomes tags, the date and the first line. Raises Unfit."""
    try:
        fields, rest = split_front_matter(text)
    except Unreadable:
        gathered.tell("front matter could not be read, kept as text")
        return text
    if front.switched_off and fields.get(front.switched_off, "") == ():
        raise Unfit(f"is switched off ({front.switched_off}: [])")
    if not (body := tidy(rest)):
        raise Unfit("has nothing but front matter")
    gathered.tell("front matter left out")
    first = next((name for name in front.first_line if as_line(fields.get(name, ""))), "")
    for name, value in fields.items():
        if value and name != first:
            _keep(name, value, front, gathered)
    if not first:
        return body
    gathered.tell(f"{first} became the first line")
    return f"{as_line(fields[first])}\n\n{body}"


def _keep(name: str, value: Value, front: Front, gathered: Gathered) -> None:
    if name == front.globs:
        for glob in as_list(value):
            _tag(glob, "glob:", "glob", gathered)
    elif name == front.tags:
        for tag in as_list(value):
            _tag(tag, "", "tag", gathered)
    elif name == front.date:
        gathered.moment(value)
    elif name in front.tagged:
        _tag(as_line(value), front.tagged[name], name, gathered)
    else:
        gathered.not_kept(name)


def _tag(text: str, before: str, what: str, gathered: Gathered) -> None:
    if len(before) + len(text) > MAX_TAG:
        gathered.tell(f"{what} of {len(text):,} characters not kept")
    else:
        gathered.tag(text, what, before)
