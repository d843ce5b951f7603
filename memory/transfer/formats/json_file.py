"""Read JSON files that contain memories. The library ijson reads them as a stream. So the needed RAM depends on the
largest entry, not on the size of the file.

A file is read twice. The first reading is only a check, because a file with an error at its end must not be imported at
all.
"""

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain
from typing import IO, Any

import ijson

from memory.errors import Invalid
from memory.transfer.formats import gathering
from memory.transfer.formats.parts import EMPTY, MARK, Found, LeftOut, Part, Unfit, or_empty

MAX_ENTRY = 4_000_000  # characters
VALUE = 8  # each value counts as so many characters more than its text: half a million values take a second
MAX_TOKEN = 8_000_000  # bytes of a single value
MAX_ENTRIES = 2_000_000  # entries of a file
MAX_DEPTH = 100  # levels of nested lists and objects in an entry
MAX_DIGITS = 4_000  # digits of a number
NOT_JSON = "is not valid JSON"
HALF = "incomplete character replaced by ?"
_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])(?=[^\\]|\\[\s\S]{3})")
_DIGITS = re.compile(rb"\d{64,}")
_Event = tuple[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """A value in the file. If the file is an object, `name` is the name of the member with this value. Otherwise `name`
    is "". `number` is the position of the value in a list, beginning with 1. Each list begins with an additional Entry
    with the number 0 and an empty list as value."""

    name: str
    number: int
    value: Any


def has_long_number(data: bytes) -> bool:
    """Return whether the data has a number with more than MAX_DIGITS digits. Such a number makes the C backend of ijson
    crash."""
    return any(len(digits) > MAX_DIGITS for digits in _DIGITS.findall(data))


class _Bounded:
    """A wrapper for a file. The method `read` raises an error if a single value is too large."""

    def __init__(self, file: IO[bytes], done: set[str]) -> None:
        self.file, self.unanswered, self._tail, self._done = file, 0, b"", done

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(max(size, self.unanswered))  # ijson parses a long text again after each chunk
        self.unanswered += len(data)
        if self.unanswered > MAX_TOKEN:
            raise Unfit("has an entry that is too large")
        if has_long_number(self._tail + data):
            raise Unfit(NOT_JSON)
        if _HALF.search(self._tail[-12:] + data):
            self._done.add(HALF)
        self._tail = data[-MAX_DIGITS:]
        return data


def has_mark(file: IO[bytes]) -> bool:
    """Return whether the file begins with a byte order mark. Set the file's position to the first byte after this mark,
    or to 0 if the file has no such mark."""
    file.seek(0)
    is_marked = file.read(3) == codecs.BOM_UTF8
    file.seek(3 if is_marked else 0)
    return is_marked


def entries(file: IO[bytes], within: str = "", done: set[str] | None = None) -> Iterator[Entry]:
    """Yield the entries of a file. `within` is the name of a list whose objects may be larger than MAX_ENTRY. For
    each member of such an object, yield entries with the name `list.member`. If texts are changed during the reading,
    notes about these changes are added to `done`. Raises Unfit if the file is not valid. Some errors are found only at
    the end of the file."""
    has_mark(file)
    events = _events(_Bounded(file, set() if done is None else done))
    first = next(events)
    if first[0] == "start_map":
        for _, name in iter(lambda: next(events), ("end_map", None)):
            yield from _of(events, next(events), name, within)
    else:
        yield from _of(events, first, "", within)
    next(events, None)


def _events(bounded: _Bounded) -> Iterator[_Event]:
    file, why = bounded.file, ""
    try:
        for count, event in enumerate(ijson.basic_parse(bounded, buf_size=2**16), 1):
            if count > 50 * MAX_ENTRIES:
                raise Unfit("has too many values")
            bounded.unanswered = 0
            yield event
    except UnicodeDecodeError:
        why = "has a text with an incomplete character"
    except (ijson.JSONError, ValueError, ArithmeticError):
        why = NOT_JSON
    if why:
        has_mark(file)
        raise Unfit(why if file.read(2**16).strip() else EMPTY)  # the error that was caught has the file in it


def _of(events: Iterator[_Event], first: _Event, name: str, within: str) -> Iterator[Entry]:
    if first[0] != "start_array":
        yield Entry(name, 0, _value(events, first, MAX_TOKEN))
        return
    yield Entry(name, 0, [])
    for number, event in enumerate(iter(lambda: next(events), ("end_array", None)), 1):
        if number > MAX_ENTRIES:
            raise Unfit(f"has more than {MAX_ENTRIES:,} entries")
        if within and name == within and event[0] == "start_map":
            for _, inner in iter(lambda: next(events), ("end_map", None)):
                yield from _of(events, next(events), f"{name}.{inner}", "")
        else:
            yield Entry(name, number, _value(events, event, MAX_ENTRY))


def _value(events: Iterator[_Event], event: _Event, most: int) -> Any:
    builder, depth, size = ijson.ObjectBuilder(), 0, 0
    while True:
        kind, value = event
        depth += (kind in ("start_map", "start_array")) - (kind in ("end_map", "end_array"))
        size += VALUE + (len(value) if isinstance(value, str) else 0)
        if depth > MAX_DEPTH:
            raise Unfit(NOT_JSON)
        if size > most:
            raise Unfit("has an entry that is too large")
        builder.event(kind, float(value) if isinstance(value, Decimal) else value)
        if depth == 0:
            return builder.value
        event = next(events)


class JSONFile(ABC):
    """A JSON file of another system. A subclass defines which lists of the file have memories. A subclass also converts
    entries to parts."""

    lists: tuple[str, ...]  # names of members that are lists of memories; "" if the whole file is such a list
    within = ""  # the argument `within` of `entries`
    others: Mapping[str, str] = {}  # names of members without memories → the reason why they are left out
    none = "has no list of memories"  # the reason for a file without such a list

    def __init__(self) -> None:
        self.done: set[str] = set()  # changes that were made to texts of the file

    def parts(self, file: IO[bytes], path: str) -> Iterator[Part]:
        has_list = False
        there: set[str] = set()  # the names in `others` that have values
        try:
            for entry in entries(file, self.within, self.done):  # finds errors at the end of the file, too
                has_list |= entry.name in self.lists and entry.value == []
                if not gathering.is_nothing(_without_nulls(entry.value)):
                    there |= {entry.name.removeprefix(f"{self.within}.")} & self.others.keys()
                self.note(entry)
        except Unfit as unfit:
            yield LeftOut(path, unfit.why)
            return
        if not has_list:
            yield LeftOut(path, self.none)
            return
        done = (*((MARK,) if has_mark(file) else ()), *sorted(self.done))
        others = (LeftOut(f"{path}#{name}", why) for name, why in self.others.items() if name in there)
        for part in or_empty(path, chain(self._read(file, path), others)):
            yield replace(part, transformed=(*part.transformed, *done)) if isinstance(part, Found) else part

    def _read(self, file: IO[bytes], path: str) -> Iterator[Part]:
        why = ""
        try:
            for entry in entries(file, self.within):
                if entry.number and entry.name in self.lists:
                    yield from self._entry(entry, path)
        except Unfit as unfit:
            why = unfit.why
        if why:
            raise Invalid("file", f"changed while it was read: it {why}")

    def _entry(self, entry: Entry, path: str) -> Iterator[Part]:
        if not isinstance(entry.value, dict):
            yield LeftOut(f"{path}#{entry.number}", "is not an object")
            return
        known = self.id_of(entry)
        for part in self.memories(entry, entry.value, f"{path}#{known or entry.number}"):
            yield replace(part, id=known, by_words=not known) if isinstance(part, Found) else part

    def note(self, entry: Entry) -> None:  # noqa: B027  optional
        """Process an entry in the first reading of the file. `memories` is called later, in the second reading."""

    def id_of(self, entry: Entry) -> str:
        """Return a text that identifies an entry in the file, or ""."""
        return gathering.id_of(entry.value.get("id"))

    @abstractmethod
    def memories(self, entry: Entry, value: dict[str, Any], key: str) -> Iterator[Part]:
        """Yield the parts of an entry."""


def _without_nulls(value: Any) -> Any:
    return [each for each in value.values() if each is not None] if isinstance(value, dict) else value
