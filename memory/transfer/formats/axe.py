"""Memories as the log of runs that axe keeps, out and in (seed 001; docs/migration-sources.md, "axe")."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO

from memory.models import Agent
from memory.policy.validation import MAX_CONTENT
from memory.run_log.runs import entry, harmless
from memory.search.reading import Read
from memory.transfer.exporting import Export, NotHeld
from memory.transfer.formats import gathering
from memory.transfer.formats.found import Found, LeftOut, Part
from memory.transfer.formats.gathering import Gathered
from memory.transfer.formats.json_entries import has_mark
from memory.transfer.formats.parting import Names, Piece, in_parts, pieces
from memory.transfer.formats.text import EMPTY, LINE_ENDS, MARK

_NONE = "(none)"  # as axe says it
_OF_NO_TASK = f"**Task:** {_NONE}\n**Result:** "
_OF_A_RUN = re.compile(r"\*\*Task:\*\* (?!\(none\)\n)[^\n\r]*\n\*\*Result:\*\*")
_OF_NOTHING = {
    " ".join(f"**Task:** {task} **Result:** {result}".split()) for task in ("", _NONE) for result in ("", _NONE)
} | {"", "**Task:**", f"**Task:** {_NONE}"}
_AS_LONG = 100  # as one that says nothing


def _written(_: Agent, memories: Iterable[Read], noted: NotHeld) -> Iterator[bytes]:
    for read in memories:
        memory, text = read.memory, read.opened.content
        told = harmless(text)
        body = told if _OF_A_RUN.match(told) else _OF_NO_TASK + told
        for what, is_lost in (
            ("what a line says of a run has a backslash before it, for it would begin another", told != text),
            ("it says what a log says of nothing, and is no memory there", _is_of_nothing(body)),
            ("its tags are not held", bool(read.opened.tags)),
            ("its category and project are not held", (memory.category, memory.project) != ("behavioral", "")),
            ("it is of the core, and a log has but runs", memory.kind == "core"),
            ("it was constitutional", memory.constitutional),
        ):
            if is_lost:
                noted.note(what)
        yield entry(memory.origin, body).encode()


def _is_of_nothing(body: str) -> bool:
    said = body.strip()
    return len(said) <= _AS_LONG and " ".join(said.split()) in _OF_NOTHING


EXPORT = Export(
    name="axe",
    media_type="text/markdown; charset=utf-8",
    ending=".md",
    what="a log of runs as axe keeps it: an entry for each memory, with its date to the second",
    not_held=("kind", "category", "project", "tags", "constitutional", "parts of a second"),
    write=_written,
)


# --- in

MOST = 1_000_000  # bytes of an entry
BEFORE = "stands before the first entry"
_AT_ONCE = 2**16  # bytes of a line that are read together
_BEGINS = b"## "
_TOLD_APART = 10_000  # entries among which no two have the same key: more names are not held


@dataclass(slots=True, repr=False)
class _Raw:
    """An entry as it stands in the file; without a heading what stands before the first."""

    heading: str | None
    marked: bool = False  # a byte order mark stood right before it
    body: bytearray = field(default_factory=bytearray)
    is_too_large: bool = False

    def add(self, piece: bytes) -> None:
        self.is_too_large |= len(self.body) + len(piece) > MOST
        if not self.is_too_large:
            self.body += piece


def parts(file: IO[bytes], path: str) -> Iterator[Part]:
    is_any = False
    for part in _parts(file, path):
        is_any = True
        yield part
    if not is_any:
        yield LeftOut(path, EMPTY)


def _parts(file: IO[bytes], path: str) -> Iterator[Part]:
    is_of_crlf = _ends_lines_in_crlf(file)
    names = Names()
    for number, raw in enumerate(_entries(file)):
        if number % _TOLD_APART == 0:
            names = Names()
        if raw.heading is None:
            if raw.body.strip():
                yield LeftOut(f"{path}#beginning", BEFORE)
            continue
        told = Gathered("behavioral")
        if is_of_crlf:
            told.tell(LINE_ENDS)
        heading = gathering.shown(raw.heading) or "entry"
        yield from _read(raw, f"{path}#{names.name(heading)}", f"{path}#{heading}", told)


def _ends_lines_in_crlf(file: IO[bytes]) -> bool:
    """Whether every line does; where some do, those are part of what somebody said."""
    file.seek(0)
    is_any, last = False, b""
    while piece := file.readline(_AT_ONCE):
        if piece.endswith(b"\n"):
            is_any = True
            if not (last + piece).endswith(b"\r\n"):
                return False
        last = piece[-1:]
    return is_any


def _entries(file: IO[bytes]) -> Iterator[_Raw]:
    marked = has_mark(file)
    file.seek(len(codecs.BOM_UTF8) if marked else 0)
    raw, is_begun = _Raw(None), True  # a line
    while piece := file.readline(_AT_ONCE):
        if is_begun and piece.startswith(_BEGINS):
            yield raw
            is_first = raw.heading is None and not raw.body
            raw = _Raw(piece[len(_BEGINS) :].decode("utf-8", "replace").strip(), marked and is_first)
        else:
            raw.add(piece)
        is_begun = piece.endswith(b"\n")
    yield raw


def _read(raw: _Raw, key: str, heading: str, told: Gathered) -> Iterator[Part]:
    if raw.is_too_large:
        yield LeftOut(key, "is too large")
        return
    if raw.marked:
        told.tell(MARK)
    told.moment(raw.heading or "?")  # without a heading, none that can be read
    body = _ending_left_out(_decoded(bytes(raw.body), told))
    if "\0" in body:
        yield LeftOut(key, "holds a NUL character")
    elif _is_of_nothing(body):
        yield LeftOut(key, "has neither task nor result")
    else:
        text = body.removeprefix(_OF_NO_TASK)
        # As it is, where it can be: what we wrote ourselves comes back to the character.
        whole = Found(key, "", told.category, date=told.date, kind="journal", transformed=told.transformed)
        yield from in_parts(whole, [Piece("", text)] if len(text) <= MAX_CONTENT else pieces(text), known_as=heading)


def _decoded(data: bytes, told: Gathered) -> str:
    """A log is cut at a byte: what is half a character is replaced."""
    if LINE_ENDS in told.transformed:
        data = data.replace(b"\r\n", b"\n")
    text = data.decode("utf-8", "replace")
    if text.encode() != data:
        told.tell("bytes that are no text replaced")
    return text


def _ending_left_out(body: str) -> str:
    """Without the blank line behind every entry."""
    return body.removesuffix("\n").removesuffix("\n")
