"""The entries of a JSON file's lists, one at a time, of a file of any size.

No more of it is held than its largest entry takes. What is wrong with a file may stand at its end: who has been through
all of its entries once knows that it is well, and reads it again (docs/decisions.md).
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import IO, Any

from memory.transfer.formats.text import Unfit

MOST = 4_000_000  # characters of an entry: an agent's last messages may be one
MOST_WRAPPED = 16_000_000  # characters of a file that is one text
MOST_ENTRIES = 2_000_000  # of a file
DEEPEST = 100  # lists and objects within each other, in an entry
NOT_JSON = "is not JSON"
_CHUNK = 2**16  # bytes read at a time, or as many as are held
_AHEAD = 4  # characters behind a number that may belong to it: "e-1"
_SPACE = re.compile(r"[ \t\n\r]*+")
_BEGINS = frozenset('{["-0123456789tfn')


@dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """`name`: the member of the file's object that it is, or is of; "" where the file is no object. `number`: its place
    in a list, from 1; 0 for what is no list, and, with an empty list, before the first of each that is one."""

    name: str
    number: int
    value: Any


def entries(file: IO[bytes], within: Collection[str] = ()) -> Iterator[Entry]:
    """What a file holds, from its beginning. Raises Unfit, at the latest at the end.

    `within`: lists whose objects may be larger than an entry. Their members are given as those of the file are, by the
    list's name, a point and their own.
    """
    file.seek(0)
    text = _Text(file)
    begins = text.begins()
    if not begins:
        raise Unfit("is empty")
    if begins == "{":
        for name in text.members():
            yield from _of(text, name, within)
    else:
        yield from _of(text, "", within, MOST_WRAPPED if begins == '"' else MOST)
    if text.begins():
        raise Unfit(NOT_JSON)


def has_mark(file: IO[bytes]) -> bool:
    """Whether a byte order mark stands at its beginning."""
    file.seek(0)
    return file.read(3) == codecs.BOM_UTF8


def _of(text: _Text, name: str, within: Collection[str], most: int = MOST) -> Iterator[Entry]:
    if text.begins() != "[":
        yield Entry(name, 0, text.value(most))
        return
    yield Entry(name, 0, [])
    for number in text.items():
        if name in within and text.begins() == "{":
            for inner in text.members():
                yield from _of(text, f"{name}.{inner}", ())
        else:
            yield Entry(name, number, text.value(most))


def _refuse(_: str) -> None:
    raise ValueError


class _Text:
    """A file's text, of which a part is held, and a place in it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._scan = json.JSONDecoder(parse_constant=_refuse).raw_decode
        self._held, self._at, self._ended = "", 0, False
        self._count = 0  # of values in lists and objects that were gone into

    def begins(self) -> str:
        """The next character that is no white space; "" at the end."""
        while True:
            found = _SPACE.match(self._held, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._held):
                return self._held[self._at]
            if not self._more():
                return ""

    def value(self, most: int = MOST) -> Any:
        """The value that begins here. Raises Unfit.

        Whether what is held of it is broken or cut cannot be told: as long as it may be cut, twice as much is read.
        """
        if self.begins() not in _BEGINS:
            raise Unfit(NOT_JSON)
        while True:
            value, end = self._scanned()
            if end > self._at and (self._ended or end + _AHEAD <= len(self._held)):
                break
            if self._ended:
                raise Unfit(NOT_JSON)
            if len(self._held) - self._at > most:
                raise Unfit(f"has an entry of more than {most:,} characters")
            self._more()
        if end - self._at > most:
            raise Unfit(f"has an entry of more than {most:,} characters")
        if self._held.count("[", self._at, end) + self._held.count("{", self._at, end) > DEEPEST:
            _require_flat(value)
        self._at = end
        return value

    def _scanned(self) -> tuple[Any, int]:
        """The value and where it ends; 0 where it is cut or broken. Raises Unfit."""
        try:
            return self._scan(self._held, self._at)
        except json.JSONDecodeError:
            return None, 0
        except (ValueError, RecursionError):  # more digits than Python reads; NaN; a nest without end
            pass
        raise Unfit(NOT_JSON)  # not in the handlers: the errors there hold what was read

    def items(self) -> Iterator[int]:
        """The numbers of a list's values, before each; who is given one takes the value."""
        self._take("[")
        if self._is_taken("]"):
            return
        number = 0
        while True:
            number += 1
            self._count_one()
            yield number
            if self._is_taken("]"):
                return
            self._take(",")

    def members(self) -> Iterator[str]:
        """The names of an object's values, likewise."""
        self._take("{")
        if self._is_taken("}"):
            return
        while True:
            if self.begins() != '"':
                raise Unfit(NOT_JSON)
            name: str = self.value()
            self._take(":")
            self._count_one()
            yield name
            if self._is_taken("}"):
                return
            self._take(",")

    def _count_one(self) -> None:
        self._count += 1
        if self._count > MOST_ENTRIES:
            raise Unfit(f"has more than {MOST_ENTRIES:,} entries")

    def _take(self, sign: str) -> None:
        if not self._is_taken(sign):
            raise Unfit(NOT_JSON)

    def _is_taken(self, sign: str) -> bool:
        is_next = self.begins() == sign
        self._at += is_next
        return is_next

    def _more(self) -> bool:
        """Hold more of it, and nothing of what lies behind. False at the end."""
        if self._ended:
            return False
        rest = self._held[self._at :]
        given = self._file.read(max(_CHUNK, len(rest)))
        self._ended = not given
        self._held, self._at = rest + self._decoded(given), 0
        return True

    def _decoded(self, given: bytes) -> str:
        try:
            return self._decoder.decode(given, final=not given)
        except UnicodeDecodeError:
            pass
        raise Unfit("is not UTF-8 text")


def _require_flat(value: Any) -> None:
    """Raise Unfit where it is nested more deeply than DEEPEST."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for each in level if isinstance(each, dict | list) for inner in _within(each)]
    if any(isinstance(each, dict | list) for each in level):
        raise Unfit(NOT_JSON)


def _within(value: dict[str, Any] | list[Any]) -> Iterator[Any]:
    yield from value.values() if isinstance(value, dict) else value
