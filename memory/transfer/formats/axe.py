"""Write and read memories as an axe run log (docs/reference/import-formats.md, "axe")."""

import re
from collections.abc import Iterable, Iterator
from typing import IO

from memory.models import Agent
from memory.run_log.runs import entry, harmless
from memory.silo.silo import Read
from memory.transfer.exporting import Losses
from memory.transfer.formats import gathering
from memory.transfer.formats.json_file import has_mark
from memory.transfer.formats.parts import LINE_ENDS, Found, LeftOut, Part, in_parts, one_line, or_empty

_NONE = "(none)"  # axe's placeholder
_OF_NO_TASK = f"**Task:** {_NONE}\n**Result:** "
_OF_A_RUN = re.compile(r"\*\*Task:\*\* (?!\(none\)\n)[^\n\r]*\n\*\*Result:\*\*")
_OF_NOTHING = {
    " ".join(f"**Task:** {task} **Result:** {result}".split()) for task in ("", _NONE) for result in ("", _NONE)
} | {"", "**Task:**", f"**Task:** {_NONE}"}
_AS_LONG = 100  # a text with more characters is not an empty entry


def write(_: Agent, memories: Iterable[Read], losses: Losses) -> Iterator[bytes]:
    for read in memories:
        text = harmless(read.opened.content)
        body = text if _OF_A_RUN.match(text) else _OF_NO_TASK + text
        losses.update(_lost(read, body))
        yield entry(read.memory.origin, body).encode()


def _lost(read: Read, body: str) -> Iterator[str]:
    memory, text = read.memory, read.opened.content
    lost = {
        "lines that look like the start of a run get a backslash": harmless(text) != text,
        "the text is the same as in an empty entry of a log, so it cannot be imported again": _is_of_nothing(body),
        "tags are not exported": read.opened.tags,
        "category and project are not exported": (memory.category, memory.project) != ("behavioral", ""),
        "the kind, core, is not exported": memory.kind == "core",
        "the constitutional mark is not exported": memory.constitutional,
    }
    return (what for what, is_lost in lost.items() if is_lost)


def _is_of_nothing(body: str) -> bool:
    text = body.strip()
    return len(text) <= _AS_LONG and " ".join(text.split()) in _OF_NOTHING


# --- reading

MAX_ENTRY = 1_000_000  # bytes
BEFORE = "comes before the first entry"
_AT_ONCE = 2**16  # bytes that are read at once
_BEGINS = b"## "


def parts(file: IO[bytes], path: str) -> Iterator[Part]:
    return or_empty(path, (part for heading, body in _entries(file) for part in _read(heading, body, path)))


def _entries(file: IO[bytes]) -> Iterator[tuple[str | None, bytes | None]]:
    """Yield the heading and the body of each entry. The heading is None for text before the first entry. The body is
    None if the entry is too large."""
    has_mark(file)
    heading, body, is_begun, is_large = None, bytearray(), True, False
    while piece := file.readline(_AT_ONCE):
        if is_begun and piece.startswith(_BEGINS):
            yield heading, None if is_large else bytes(body)
            heading, body, is_large = piece[len(_BEGINS) :].decode("utf-8", "replace").strip(), bytearray(), False
        elif not is_large:
            body += piece
            is_large = len(body) > MAX_ENTRY
        is_begun = piece.endswith(b"\n")
    yield heading, None if is_large else bytes(body)


def _read(heading: str | None, data: bytes | None, path: str) -> Iterator[Part]:
    if heading is None:
        if data and data.strip():
            yield LeftOut(f"{path}#beginning", BEFORE)
        return
    name = one_line(heading, gathering.LONGEST_ID) or "entry"
    key, done = f"{path}#{name}", gathering.Gathered("behavioral")
    if data is None:
        yield LeftOut(key, "is too large")
        return
    if 0 < data.count(b"\n") == data.count(b"\r\n"):  # if only some lines end with CRLF, the CRLF is content
        done.note(LINE_ENDS)
        data = data.replace(b"\r\n", b"\n")
    done.moment(heading or "?")  # "?" adds the note that the date cannot be read
    body = data.decode("utf-8", "replace")
    if body.encode() != data:  # axe may have cut the log inside a character
        done.note("invalid bytes replaced")
    body = body.removesuffix("\n").removesuffix("\n")  # the blank line after each entry
    if "\0" in body:
        yield LeftOut(key, "contains a NUL character")
    elif _is_of_nothing(body):
        yield LeftOut(key, "has neither task nor result")
    else:
        whole = Found(key, "", done.category, date=done.date, kind="journal", transformed=done.transformed, id=name)
        yield from in_parts(whole, body.removeprefix(_OF_NO_TASK))
