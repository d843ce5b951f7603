"""Text of other systems as it may be stored here: what is put right, and told, and what is no text at all."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from typing import Any

from memory.policy.validation import MAX_TAG

MARK, LINE_ENDS = "byte order mark left out", "line ends made LF"
TOLD = MAX_TAG - len("transformed:")  # characters of what was done to a text
NO_TEXT, EMPTY = "has no text", "is empty"
_INDENT = 80  # blanks before the first line that may be meant
_BLANK = re.compile(r"\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Unfit(Exception):
    """What cannot be held as text. `why` is for people, behind a key, and quotes nothing."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True, repr=False)
class Decoded:
    text: str
    transformed: tuple[str, ...] = ()


def decoded(data: bytes) -> Decoded:
    """A file's text, without blank lines around it. Raises Unfit."""
    is_marked = data.startswith(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = None
    if text is None:  # not in the handler: the error there holds the file
        raise Unfit("is not UTF-8 text")
    fitting = fit(text, blank=EMPTY)
    return Decoded(fitting.text, ((MARK,) if is_marked else ()) + fitting.transformed)


def parsed(data: bytes) -> tuple[Any, str]:
    """The value of a JSON text, or why it has none."""
    try:
        return json.loads(data.decode("utf-8-sig")), ""
    except UnicodeDecodeError:
        return None, "is not UTF-8 text"
    except (ValueError, RecursionError):  # nested without end; a number of more digits than Python reads
        return None, "is not JSON"


def fit(value: object, *, blank: str = NO_TEXT) -> Decoded:
    """A text that came out of JSON, likewise. Raises Unfit: `blank` where there are no words in it."""
    if not isinstance(value, str):
        raise Unfit(NO_TEXT)
    if "\0" in value:
        raise Unfit("holds a NUL character")
    if not value.isascii() and _SURROGATE.search(value):
        raise Unfit("holds half a character")
    text = value.replace("\r\n", "\n").replace("\r", "\n") if "\r" in value else value
    if not (tidied := tidy(text)):
        raise Unfit(blank)
    return Decoded(tidied, (LINE_ENDS,) if text is not value else ())


def tidy(text: str) -> str:
    """Without blank lines around it; "" where nothing else is there."""
    return text[beginning(text) :].rstrip()


def beginning(text: str, at: int = 0) -> int:
    """Where, from a place on, the first line begins that is not blank: with the blanks before it, where they may be
    meant, and `at` was not in the middle of it."""
    found = _BLANK.match(text, at)
    words = found.end() if found else at
    line = text.rfind("\n", at, words) + 1 or (0 if at == 0 else words)
    return line if words - line <= _INDENT else words


def one_line(text: str, most: int) -> str:
    """On one line, of whole characters, and cut where it is longer than `most`."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return " ".join(cut.encode(errors="replace").decode().replace("\0", "?").split())
