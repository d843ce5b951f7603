"""The parts of files that other systems wrote. A part becomes a memory, or it is left out for a reason.

A text that is too long for one memory is split at headings, paragraphs, sentences or words. The time that the split
takes grows linearly with the length of the text.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import IO, Any, Self

from memory.policy.paths import plain
from memory.policy.validation import MAX_CONTENT, MAX_TAG, MAX_TAGS

HERE = "."  # this value stands for the project of the folder or of the call; no project has the id "."


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of a file. This part is not stored as a memory."""

    key: str
    why: str  # a text for people, shown after the key: "is empty"


@dataclass(frozen=True, slots=True, repr=False)
class Found:
    """A memory of another system, ready to be stored.

    `key` is the path of the file. If the file has several parts, `#` and the name of the part are added. `part` is the
    name of a piece of a long text, or "" for the first piece. A later migration recognizes the memory by the file's
    path, `id` and `part`. If `by_words` is true, the text must also be the same.
    """

    key: str
    content: str  # it has 1 to 10,000 characters
    category: str
    project: str = ""  # the id of a project, HERE, or ""
    tags: tuple[str, ...] = ()
    date: datetime | None = None  # in UTC; None if the source has no date
    kind: str = "core"
    transformed: tuple[str, ...] = ()  # what was changed; each text fits in a tag
    id: str = ""
    part: str = ""
    by_words: bool = False

    def bounded(self) -> Self:
        """Return the memory with at most MAX_TAGS tags. The other tags are dropped."""
        if (more := len(self.tags) - MAX_TAGS) <= 0:
            return self
        return replace(self, tags=self.tags[:MAX_TAGS], transformed=(*self.transformed, f"not kept: {more:,} tags"))


Part = Found | LeftOut
# A function that reads a seekable file from its beginning. The key of each part begins with the path.
Reader = Callable[[IO[bytes], str], Iterator[Part]]


# --- text


MARK, LINE_ENDS = "byte order mark left out", "line ends made LF"
MAX_NOTE = MAX_TAG - len("transformed:")  # characters of a note
NO_TEXT, EMPTY = "has no text", "is empty"
MAX_LINES = 200_000  # of a text; each line takes microseconds
_INDENT = 80  # more spaces than this before the first line do not count as indentation
_BLANK = re.compile(r"\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Unfit(Exception):
    """A value cannot be used as text. `why` is the reason. People see it after the key. The reason contains no content
    of the file."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def fitting(key: str, read: Callable[[], Iterator[Part]]) -> Iterator[Part]:
    """Yield the parts that `read` returns. If the text cannot be used, yield the reason."""
    try:
        yield from read()
    except Unfit as unfit:
        yield LeftOut(key, unfit.why)


def or_empty(key: str, found: Iterator[Part]) -> Iterator[Part]:
    """Yield the parts. Without a part, yield one `LeftOut` with the reason EMPTY."""
    yield next(found, LeftOut(key, EMPTY))
    yield from found


@dataclass(frozen=True, slots=True, repr=False)
class Decoded:
    text: str
    transformed: tuple[str, ...] = ()


def decoded(data: bytes) -> Decoded:
    """Return the text of a file, without blank lines at its beginning and end. Raises Unfit."""
    is_marked, text = data.startswith(codecs.BOM_UTF8), None
    with suppress(UnicodeDecodeError):
        text = data.decode("utf-8-sig")
    if text is None:  # not in the handler: the caught error has the file in it
        raise Unfit("is not UTF-8 text")
    fitting = fit(text, blank=EMPTY)
    return Decoded(fitting.text, ((MARK,) if is_marked else ()) + fitting.transformed)


def parsed(data: bytes) -> tuple[Any, str]:
    """Parse a JSON text. Return the value and an empty reason. If the text cannot be parsed, return None and the
    reason."""
    try:
        return json.loads(data.decode("utf-8-sig")), ""
    except UnicodeDecodeError:
        return None, "is not UTF-8 text"
    except (ValueError, RecursionError):  # the nesting may also be too deep, or a number too long
        return None, "is not valid JSON"


def fit(value: object, *, blank: str = NO_TEXT) -> Decoded:
    """Return a JSON value as text, without blank lines at its beginning and end. Raises Unfit. If the text is blank,
    the reason in the error is `blank`."""
    if not isinstance(value, str):
        raise Unfit(NO_TEXT)
    if "\0" in value:
        raise Unfit("contains a NUL character")
    if not value.isascii() and _SURROGATE.search(value):
        raise Unfit("contains an incomplete character")
    if max(value.count("\n"), value.count("\r")) > MAX_LINES:
        raise Unfit(f"has more than {MAX_LINES:,} lines")
    text = value.replace("\r\n", "\n").replace("\r", "\n") if "\r" in value else value
    if not (tidied := tidy(text)):
        raise Unfit(blank)
    return Decoded(tidied, (LINE_ENDS,) if text is not value else ())


def tidy(text: str) -> str:
    """Return the text without blank lines at its beginning and end."""
    return text[beginning(text) :].rstrip()


def beginning(text: str, at: int = 0) -> int:
    """Return the position of the first line after `at` that is not blank. The position is before the indentation of
    this line. But if the indentation is very long, or if `at` is inside the line, the position is after the
    indentation."""
    found = _BLANK.match(text, at)
    words = found.end() if found else at
    line = text.rfind("\n", at, words) + 1 or (0 if at == 0 else words)
    return line if words - line <= _INDENT else words


def one_line(text: str, most: int) -> str:
    """Return the text on one line, cut to `most` characters."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return " ".join(cut.encode(errors="replace").decode().replace("\0", "?").split())


# --- splitting long texts


SHORT = 1_000  # a section with fewer characters is joined with the section after it
_DEEPEST = 6  # the lowest level of headings
_LONGEST = 400  # characters of a heading that are read for a name
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")
_SENTENCE = re.compile(r"(?<=[.!?…])\s|(?<=[。！？])|\n")  # a line end also counts, because of lists
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_ENDS = re.compile(r"(?:conclusion|summary)s?", re.IGNORECASE)  # such a section needs the section before it
# A line with only a heading, imports or a horizontal rule.
_SAYS_NOTHING = re.compile(r"#{1,6}(?:\s.*)?|@\S+(?:\s+@\S+)*|=+|-{3,}|")


@dataclass(slots=True)
class Names:
    """Makes names unique. If a name `x` is used again, it becomes `x-2`. The second empty name becomes `2`."""

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


def says_nothing(text: str) -> bool:
    """Return whether a text has only headings and imports."""
    return all(_SAYS_NOTHING.fullmatch(line.strip()) for line in text.splitlines())


def in_parts(whole: Found, text: str, between: str = "-") -> Iterator[Found]:
    """Yield the memories of one text. A text that fits in one memory does not change. Otherwise the memories have the
    same characters as the text, in the same order. Only whitespace may differ.

    The name of a part is unique, and is made from its heading. The first part has `part` "", like a whole text. A text
    may be one memory in one migration, and too long in the next. Then the first part revises this memory."""
    text = text if len(text) <= MAX_CONTENT else tidy(text)
    names, is_short = Names(), 0 < len(text) <= MAX_CONTENT
    for number, (heading, content) in enumerate([("", text)] if is_short else _joined(_sections(text, 1))):
        suffix = "" if is_short else names.name(_slug(heading))
        key = f"{whole.key}{between}{suffix}" if suffix else whole.key
        yield replace(whole, key=key, content=content, part=suffix if number else "")


def _slug(heading: str) -> str:
    """Return a heading in a form that can be part of a path. Secrets are masked first, because the scanner cannot
    recognize them in the result."""
    from memory.masking.scanner import masked  # imported late: its detectors import requests

    return plain(masked(heading)[0])


def unfenced(text: str) -> Iterator[tuple[int, str]]:
    """Yield the position and the text of each line that is not in a code block."""
    at, fence = 0, ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
        elif mark and "`" not in line[mark.end() :]:  # with a backquote after it, this is inline code
            fence = mark[1]
        else:
            yield at, line
        at += len(line) + 1


def _sections(text: str, level: int) -> Iterator[tuple[str, str]]:
    """Yield the heading and the content of each section of a text. A text that is too long is split at headings,
    beginning with the highest level."""
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
    """Join a short section with the section after it. If the last section is short or is a conclusion, join it with the
    section before it. In both cases, the result must fit in one memory. But a section with only headings is always
    joined with the section after it. If the result is too long, it is cut."""
    done: list[tuple[str, str]] = []
    for heading, content in sections:
        name, text = done[-1] if done else ("", "")
        both = f"{text}\n\n{content}"
        is_short = bool(done) and len(text) < SHORT
        if is_short and len(both) <= MAX_CONTENT:
            done[-1] = (name, both)
        elif is_short and says_nothing(text):
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
    """Split a text into long parts. Each part ends after the last paragraph that fits. If this part would be too short,
    it ends after a sentence. If it would still be too short, it ends between two words."""
    at = beginning(text)
    while len(text) - at > MAX_CONTENT:
        cut = at + _cut(text[at : at + MAX_CONTENT + 1])
        yield text[at:cut].rstrip()
        at = beginning(text, cut)
    if at < len(text):
        yield text[at:]


def _cut(window: str) -> int:
    """Return the position at which to split `window`. `window` is one character too long for a memory. If possible, the
    first part has at least half of the characters that a memory can have."""
    for pattern in (_PARAGRAPH, _SENTENCE):
        last = min(max((found.start() for found in pattern.finditer(window)), default=0), MAX_CONTENT)
        if last >= MAX_CONTENT // 2:
            return last
    if window[-1].isspace():
        return MAX_CONTENT
    words = window.rsplit(None, 1)
    return len(words[0]) if len(words) == 2 and words[0].strip() else MAX_CONTENT
