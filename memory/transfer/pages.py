"""One file of words, one memory: a rule, a note, a page; more where it is too long."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO

from memory.policy.validation import MAX_TAG
from memory.transfer import front_matter
from memory.transfer.formats.found import HERE, Found, LeftOut, Part, Reader
from memory.transfer.formats.gathering import NO_DATE, Gathered, moment
from memory.transfer.formats.parting import in_parts, pieces
from memory.transfer.formats.text import Decoded, Unfit, decoded, tidy
from memory.transfer.front_matter import Unreadable, Value

LARGEST = 10 * 2**20  # bytes of a file of words
_MARK = b"\xef\xbb\xbf"
_DATE = re.compile(r"(?<!\d)(\d{4}-\d{2}-\d{2})(?!\d)")


@dataclass(frozen=True, slots=True)
class Front:
    """What a system's front matter says, by key; what is in none of these is told, and not kept."""

    first_line: tuple[str, ...] = ("description",)  # the first of them that is given
    globs: str = ""
    tags: str = ""
    date: str = ""
    tagged: Mapping[str, str] | None = None  # key → what stands before the value in its tag
    switched_off: str = ""  # a list which, where it is there and empty, says that nobody is to read this


def reader(front: Front | None = None, tags: tuple[str, ...] = ()) -> Reader:
    """`front` is None where the system reads no front matter."""

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
        has_front = front and data.removeprefix(_MARK).startswith(front_matter.LINE.encode())
        content = _without_front(text, front, gathered) if front and has_front else text.text
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
    """The date in a file's name."""
    for found in _DATE.findall(path.rpartition("/")[2]):
        if date := moment(found):
            return date.replace(tzinfo=UTC)
    return None


def _without_front(text: Decoded, front: Front, gathered: Gathered) -> str:
    """What is left without front matter, and its first line. Raises Unfit."""
    try:
        parted = front_matter.parted(text.text)
    except Unreadable:
        gathered.tell("front matter could not be read, kept as text")
        return text.text
    fields = parted.fields
    if fields is None:
        return text.text
    if front.switched_off and fields.get(front.switched_off, "") == ():
        raise Unfit(f"is switched off ({front.switched_off}: [])")
    if not (body := tidy(parted.body)):
        raise Unfit("has nothing but front matter")
    gathered.tell("front matter left out")
    first = next((name for name in front.first_line if _as_line(fields.get(name, ""))), "")
    for name, value in fields.items():
        if value and name != first:
            _keep(name, value, front, gathered)
    if not first:
        return body
    gathered.tell(f"{first} became the first line")
    return f"{_as_line(fields[first])}\n\n{body}"


def _as_line(value: Value) -> str:
    return " ".join((value if isinstance(value, str) else ", ".join(value)).split())


def _keep(name: str, value: Value, front: Front, gathered: Gathered) -> None:
    if name == front.globs:
        globs(value, gathered)
    elif name == front.tags:
        for tag in front_matter.split(value):
            _tag(tag, "", "tag", gathered)
    elif name == front.date:
        gathered.date = moment(value)
        if gathered.date is None:
            gathered.tell(NO_DATE)
    elif front.tagged and name in front.tagged:
        _tag(_as_line(value), front.tagged[name], name, gathered)
    else:
        gathered.not_kept(name)


def globs(value: Value, gathered: Gathered) -> None:
    for glob in front_matter.split(value):
        _tag(glob, "glob:", "glob", gathered)


def _tag(text: str, before: str, what: str, gathered: Gathered) -> None:
    if len(before) + len(text) > MAX_TAG:
        gathered.tell(f"{what} of {len(text):,} characters not kept")
    else:
        gathered.tag(text, what, before)
