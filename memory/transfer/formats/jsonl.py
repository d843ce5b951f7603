"""Write and read memories as JSON Lines: one object per line."""

import io
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from config.wording import LINE_ENDS
from memory.errors import Invalid
from memory.models import Agent
from memory.policy.categories import PROJECT
from memory.policy.validation import Draft, scope_of
from memory.silo.silo import Read
from memory.transfer.exporting import Losses, record, sources
from memory.transfer.formats import gathering
from memory.transfer.formats.parts import EMPTY, HERE, MAX_NOTE, Found, LeftOut, Part, one_line, parsed

MAX_LINE = 1_000_000  # bytes
MAX_HELD = 256 * 2**20  # bytes of a pipe, because they are held in memory

_READ = {"content", "created_at", "origin", "tags", "kind", "category", "project", "is_instruction"}
_READ |= {"layer", "origin_latest", "sources"}
# Keys of an export that are not imported, because the silo sets them again.
_SET_BY_SILO = {"id", "scope", "tokens", "constitutional", "discarded_at", "superseded_by", "ref"}


class BadLine(Invalid):
    """Error: A line cannot be imported, so no line was imported. The error has the line's number and the field's
    name."""

    code = "bad_line"

    def __init__(self, line: int, field: str, problem: str) -> None:
        super().__init__(f"line {line}, {field}" if field else f"line {line}", f"{problem}. Nothing was imported.")


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open a file, or standard input if `path` is "-". A pipe or a device is read to its end here, before the agent is
    locked, because the reading can block. Raises Invalid."""
    if path == "-" and sys.stdin is None:
        raise Invalid("file", "standard input is closed")
    with _read_errors(path):
        file = sys.stdin.buffer if path == "-" else Path(path).open("rb")  # noqa: SIM115  closed below
    try:
        yield file if _is_file(file) else _held(path, file)
    finally:
        if path != "-":
            file.close()


def _is_file(file: IO[bytes]) -> bool:
    with suppress(OSError):  # the file has no descriptor
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    return False


def _held(path: str, file: IO[bytes]) -> IO[bytes]:
    """Read the whole content of a pipe or device into RAM, because the content must not be written to a disk."""
    with _read_errors(path):
        held = file.read(MAX_HELD + 1)
    if len(held) > MAX_HELD:
        raise Invalid("file", f"is larger than {MAX_HELD // 2**20} MB: use a regular file, not a pipe or device")
    return io.BytesIO(held)


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise Invalid("file", f"{path} cannot be read ({failure.strerror})") from None


def lines_of(path: str, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file. A line with more than MAX_LINE bytes is cut after MAX_LINE + 1 bytes, so that the
    caller notices the length. Raises Invalid."""
    with _read_errors(path):
        while line := file.readline(MAX_LINE + 1):
            yield line


def write(agent: Agent, found: Iterable[Read], _: Losses, *, with_discarded: bool = False) -> Iterator[bytes]:
    merged = sources(agent)
    for read in found:
        line = record(read, with_discarded=with_discarded)
        line |= {"sources": merged[read.memory.number]} if read.memory.number in merged else {}
        yield json.dumps(line, ensure_ascii=False).translate(LINE_ENDS).encode() + b"\n"


def read(lines: Iterable[bytes]) -> Iterator[tuple[int, dict[str, Any], Draft | None]]:
    """For each line that is not blank, yield the line number, the JSON object and the memory. For a line that is marked
    as discarded, the memory is None. Raises BadLine."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = object_of(line)
            draft = None if value.get("discarded_at") else gathering.draft_of(value)
        except Invalid as problem:
            raise BadLine(number, problem.field, problem.problem) from None
        yield number, value, draft


def object_of(line: bytes) -> dict[str, Any]:
    """Return the JSON object on a line. Raises Invalid."""
    if len(line) > MAX_LINE:
        raise Invalid("", f"is longer than {MAX_LINE:,} bytes")
    value, problem = parsed(line)
    if not isinstance(value, dict):
        raise Invalid("", problem or "is not a JSON object")
    return value


def unknown(value: Mapping[str, Any]) -> set[str]:
    """Return those keys of the object that are unknown to an import."""
    return value.keys() - _READ - _SET_BY_SILO


# --- as parts, for a migration


def parts(file: IO[bytes], path: str) -> Iterator[Part]:
    """Read a file for a migration. If one line is invalid, the whole file is skipped."""
    try:
        count = sum(1 for _ in _lines(file))
    except BadLine as bad:
        why = bad.problem.removesuffix(". Nothing was imported.")
        yield LeftOut(path, f"{bad.field} {why}; the whole file is skipped")
        return
    if not count:
        yield LeftOut(path, EMPTY)
    for number, value, draft in _lines(file):
        known = gathering.id_of(value.get("id"))
        key = f"{path}#{known or f'line-{number}'}"
        yield _found(key, value, draft, known) if draft else LeftOut(key, "is marked as discarded")


def _lines(file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any], Draft | None]]:
    file.seek(0)
    return read(lines_of("the file", file))


def _found(key: str, value: dict[str, Any], draft: Draft, known: str) -> Found:
    notes = [gathering.WAS_CONSTITUTIONAL] if value.get("constitutional") is True else []
    notes += [one_line(f"not kept: {name}", MAX_NOTE) for name in sorted(unknown(value))[:20]]
    found = gathering.of_draft(key, draft, tuple(notes))
    project = HERE if not value.get("project") and scope_of(draft.category) == PROJECT else draft.project
    return replace(found, project=project, id=known, by_words=not known)
