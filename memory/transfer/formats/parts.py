"""The parts of other systems' files: memories, and what is left out, with the reason.

Text that is too long for one memory is split at headings, paragraphs, sentences or words, in linear time.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import IO, Any, NamedTuple

from memory.policy.paths import plain
from memory.policy.validation import MAX_CONTENT, MAX_TAG, MAX_TAGS

HERE = "."  # as a project: that of the folder or the call. No project id can be "."


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part that is not stored."""

    key: str
    why: str  # for people, after the key: "is empty"


@dataclass(frozen=True, slots=True, repr=False)
class Found:
    """A memory of another system, ready to be stored.

    `key` is the path of the file, and after `#` the part of the file. A later run recognizes the memory by `id`, by
    `part` (its part of a long text; the first part is ""), or by its text, if `by_words` is true.
    """

    key: str
    content: str  # 1 to 10,000 characters
    category: str
    project: str = ""  # an id, HERE, or ""
    tags: tuple[str, ...] = ()
    date: datetime | None = None  # UTC; None if the source has none
    kind: str = "core"
    transformed: tuple[str, ...] = ()  # each short enough for a tag
    id: str = ""
    part: str = ""
    by_words: bool = False

    def bounded(self) -> Found:
        """Return it without the tags that exceed the limit of a memory."""
        if (more := len(self.tags) - MAX_TAGS) <= 0:
            return self
        return replace(self, tags=self.tags[:MAX_TAGS], transformed=(*self.transformed, f"not kept: {more:,} tags"))


Part = Found | LeftOut
# Reads a seekable file from its beginning. Each key begins with the path.
Reader = Callable[[IO[bytes], str], Iterator[Part]]


# --- text


MARK, LINE_ENDS = "byte order mark left out", "line ends made LF"
MAX_NOTE = MAX_TAG - len("transformed:")  # characters of a note
NO_TEXT, EMPTY = "has no text", "is empty"
_INDENT = 80  # more spaces before the first line are not an indentation
_BLANK = re.compile(r"\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Unfit(Exception):
    """A value that is not usable text. `why` is for people, follows a key, and quotes nothing."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True, repr=False)
class Decoded:
    text: str
    transformed: tuple[str, ...] = ()


def decoded(data: bytes) -> Decoded:
    """Return the text of a file, without blank lines around it. Raises Unfit."""
    is_marked = data.startswith(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = None
    if text is None:  # outside the handler: its error contains the file
        raise Unfit("is not UTF-8 text")
    fitting = fit(text, blank=EMPTY)
    return Decoded(fitting.text, ((MARK,) if is_marked else ()) + fitting.transformed)


def parsed(data: bytes) -> tuple[Any, str]:
    """Return the value of a JSON text, or the reason why it has none."""
    try:
        return json.loads(data.decode("utf-8-sig")), ""
    except UnicodeDecodeError:
        return None, "is not UTF-8 text"
    except (ValueError, RecursionError):  # also nesting that is too deep, and numbers with too many digits
        return None, "is not valid JSON"


def fit(value: object, *, blank: str = NO_TEXT) -> Decoded:
    """Return a JSON value as text, like `decoded`. Raises Unfit; `blank` is the reason if the text is blank."""
    if not isinstance(value, str):
        raise Unfit(NO_TEXT)
    if "\0" in value:
        raise Unfit("contains a NUL character")
    if not value.isascii() and _SURROGATE.search(value):
        raise Unfit("contains an incomplete character")
    text = value.replace("\r\n", "\n").replace("\r", "\n") if "\r" in value else value
    if not (tidied := tidy(text)):
        raise Unfit(blank)
    return Decoded(tidied, (LINE_ENDS,) if text is not value else ())


def tidy(text: str) -> str:
    """Return the text without blank lines around it."""
    return text[beginning(text) :].rstrip()


def beginning(text: str, at: int = 0) -> int:
    """Return the position of the first line that is not blank, from `at` on. Its indentation is kept if it may be
    meaningful and `at` is not inside the line."""
    found = _BLANK.match(text, at)
    words = found.end() if found else at
    line = text.rfind("\n", at, words) + 1 or (0 if at == 0 else words)
    return line if words - line <= _INDENT else words


def one_line(text: str, most: int) -> str:
    """Return the text on one line, cut to `most` characters."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return " ".join(cut.encode(errors="replace").decode().replace("\0", "?").split())


# --- splitting long texts


SHORT = 1_000  # characters; a shorter section is joined with the next one
_DEEPEST = 6  # level of headings
_LONGEST = 400  # characters of a heading in a name
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")
_SENTENCE = re.compile(r"(?<=[.!?…])\s|(?<=[。！？])|\n")  # also line ends, for lists
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_ENDS = re.compile(r"(?:conclusion|summary)s?", re.IGNORECASE)  # means little without the section before
_SAYS_NOTHING = re.compile(r"\s*(?:#{1,6}\s.*|#{1,6}|@\S+(?:\s+@\S+)*|=+|-{3,})?\s*$")  # a heading, an import, a rule


@dataclass(slots=True)
class Names:
    """Gives unique names: the second use of a name gets `-2`, the second use of "" gets `2`."""

    _given: set[str] = field(default_factory=set)
    _last: dict[str, int] = field(default_factory=dict)  # the last number of each name

    def name(self, wanted: str) -> str:
        name, number = wanted, self._last.get(wanted, 1)
        while name in self._given:
            number += 1
            name = f"{wanted}-{number}" if wanted else str(number)
        self._last[wanted] = number
        self._given.add(name)
        return name


class Piece(NamedTuple):
    """A memory that a text becomes. `suffix` is its heading as a path, a number, or ""."""

    suffix: str
    content: str


def says_nothing(text: str) -> bool:
    """Return whether a text has only headings and imports."""
    return all(_SAYS_NOTHING.match(line) for line in text.splitlines())


def pieces(text: str) -> Iterator[Piece]:
    """Split a text into memories. Every character that is not blank is in one of them, in order."""
    text = tidy(text)
    if len(text) <= MAX_CONTENT:
        if text:
            yield Piece("", text)
        return
    names = Names()
    for heading, content in _joined(_sections(text, 1)):
        yield Piece(names.name(_slug(heading)), content)


def _slug(heading: str) -> str:
    """Return a heading as a path. Secrets are masked first, because they are not recognizable in a path."""
    from memory.masking.scanner import masked  # imported late: its detectors import requests

    return plain(masked(heading)[0])


def in_parts(whole: Found, parts: Iterable[Piece], between: str = "-") -> Iterator[Found]:
    """Yield the memories of one text. The first has the identity of the whole, so that a text that becomes too long
    continues in the same memory."""
    for number, (suffix, content) in enumerate(parts):
        key = f"{whole.key}{between}{suffix}" if suffix else whole.key
        yield replace(whole, key=key, content=content, part=suffix if number else "")


def unfenced(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line outside code fences, with its position."""
    at, fence = 0, ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
        elif mark and "`" not in line[mark.end() :]:  # else it is inline code
            fence = mark[1]
        else:
            yield at, line
        at += len(line) + 1


def _sections(text: str, level: int) -> Iterator[tuple[str, str]]:
    """Yield (heading, content) of the sections of a text, split at the highest level that has headings."""
    text = tidy(text)
    line = text[:_LONGEST].partition("\n")[0]
    heading = line.strip(" \t#") if _HEADING.match(line) else ""
    if len(text) <= MAX_CONTENT:
        if text:
            yield heading, text
    elif level > _DEEPEST:
        yield from ((heading, piece) for piece in _cut_up(text))
    else:
        cuts = [at for at, line in unfenced(text) if (mark := _HEADING.match(line)) and len(mark[1]) == level]
        for start, end in pairwise([0, *cuts, len(text)]):
            yield from _sections(text[start:end], level + 1)


def _joined(sections: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join a short section with the next one, and the last one (or a conclusion) with the one before, if both fit in
    one memory. A section with only headings is always joined with the next one."""
    done: list[tuple[str, str]] = []
    for heading, content in sections:
        name, text = done[-1] if done else ("", "")
        both = f"{text}\n\n{content}"
        if not done or len(text) >= SHORT:
            done.append((heading, content))
        elif len(both) <= MAX_CONTENT:
            done[-1] = (name, both)
        elif says_nothing(text):
            done[-1:] = [(name, piece) for piece in _cut_up(both)]
        else:
            done.append((heading, content))
    if len(done) > 1:
        (name, text), (heading, last) = done[-2:]
        is_end = len(last) < SHORT or _ENDS.fullmatch(heading)
        if is_end and len(text) + 2 + len(last) <= MAX_CONTENT:
            done[-2:] = [(name, f"{text}\n\n{last}")]
    return done


def _cut_up(text: str) -> Iterator[str]:
    """Split a text into parts as long as possible: after a paragraph, else after a sentence, else between words."""
    at = beginning(text)
    while len(text) - at > MAX_CONTENT:
        cut = at + _cut(text[at : at + MAX_CONTENT + 1])
        yield text[at:cut].rstrip()
        at = beginning(text, cut)
    if at < len(text):
        yield text[at:]


def _cut(window: str) -> int:
    """Return where to split a text of one character more than a memory can have. The first part has at least half of
    the limit, if possible."""
    for pattern in (_PARAGRAPH, _SENTENCE):
        last = min(max((found.start() for found in pattern.finditer(window)), default=0), MAX_CONTENT)
        if last >= MAX_CONTENT // 2:
            return last
    if window[-1].isspace():
        return MAX_CONTENT
    words = window.rsplit(None, 1)
    return len(words[0]) if len(words) == 2 and words[0].strip() else MAX_CONTENT
