"""The parts of other systems' files: memories, and what is left out, with the reason. Text as a memory may hold it, and
text that is too long for one memory, parted where its writer parted it, in time that grows with the text alone.
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

HERE = "."  # as a project: the project of the folder or of the call. No project id can be "."


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that looks like a memory but is not stored."""

    key: str
    why: str  # for people, after the key: "is empty"


@dataclass(frozen=True, slots=True, repr=False)
class Found:
    """A memory as another system has it, ready to be stored.

    `key` is the path of the file, and after `#` the part of the file. `id`, `part` and `by_words` say how a later run
    recognizes it: by its id within the file, by its part of a long text (the first part is ""), or by its words.
    """

    key: str
    content: str  # 1 to 10,000 characters
    category: str
    project: str = ""  # an id, HERE, or none
    tags: tuple[str, ...] = ()
    date: datetime | None = None  # UTC; None if the source has none
    kind: str = "core"
    transformed: tuple[str, ...] = ()  # each short enough for a tag
    id: str = ""
    part: str = ""
    by_words: bool = False

    def bounded(self) -> Found:
        """With as many tags as a memory may have."""
        if (more := len(self.tags) - MAX_TAGS) <= 0:
            return self
        return replace(self, tags=self.tags[:MAX_TAGS], transformed=(*self.transformed, f"not kept: {more:,} tags"))


Part = Found | LeftOut
# Reads a file from its beginning. The file must be seekable. The path is the beginning of each key.
Reader = Callable[[IO[bytes], str], Iterator[Part]]


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
        return None, "is not valid JSON"


def fit(value: object, *, blank: str = NO_TEXT) -> Decoded:
    """A text that came out of JSON, likewise. Raises Unfit: `blank` where there are no words in it."""
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


SHORT = 1_000  # characters; a shorter section goes with the one after it
_DEEPEST = 6  # level of headings
_LONGEST = 400  # characters of a heading that its name is made of
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")
_SENTENCE = re.compile(r"(?<=[.!?…])\s|(?<=[。！？])|\n")  # a line's end, too: lists have no sentences
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_ENDS = re.compile(r"(?:conclusion|summary)s?", re.IGNORECASE)  # it means little without what comes before
_SAYS_NOTHING = re.compile(r"\s*(?:#{1,6}\s.*|#{1,6}|@\S+(?:\s+@\S+)*|=+|-{3,})?\s*$")  # a heading, an import, a rule


@dataclass(slots=True)
class Names:
    """Names that are given once: the second of two has `-2` behind it, the second of those without any is `2`."""

    _given: set[str] = field(default_factory=set)
    _last: dict[str, int] = field(default_factory=dict)  # what each was numbered with, lest all are tried again

    def name(self, wanted: str) -> str:
        name, number = wanted, self._last.get(wanted, 1)
        while name in self._given:
            number += 1
            name = f"{wanted}-{number}" if wanted else str(number)
        self._last[wanted] = number
        self._given.add(name)
        return name


class Piece(NamedTuple):
    """A memory that a text becomes. `suffix` is its heading in the form of a path, or a number, or ""."""

    suffix: str
    content: str


def says_nothing(text: str) -> bool:
    """Whether a text has only headings and imports."""
    return all(_SAYS_NOTHING.match(line) for line in text.splitlines())


def pieces(text: str) -> Iterator[Piece]:
    """Every character that is not blank is in one of them, in order."""
    text = tidy(text)
    if len(text) <= MAX_CONTENT:
        if text:
            yield Piece("", text)
        return
    names = Names()
    for heading, content in _joined(_sections(text, 1)):
        yield Piece(names.name(_slug(heading)), content)


def _slug(heading: str) -> str:
    """A heading in a path's form, in which no secret would be known as one any more."""
    from memory.masking.scanner import masked  # its detectors bring requests with them

    return plain(masked(heading)[0])


def in_parts(whole: Found, parts: Iterable[Piece], between: str = "-") -> Iterator[Found]:
    """The memories that one text becomes. The first is recognized as the whole is, so that a text that grows too long
    for one memory continues in that memory."""
    for number, (suffix, content) in enumerate(parts):
        key = f"{whole.key}{between}{suffix}" if suffix else whole.key
        yield replace(whole, key=key, content=content, part=suffix if number else "")


def unfenced(text: str) -> Iterator[tuple[int, str]]:
    """Each line that is not in a fence, and where it begins."""
    at, fence = 0, ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
        elif mark and "`" not in line[mark.end() :]:  # else it is code within a line
            fence = mark[1]
        else:
            yield at, line
        at += len(line) + 1


def _sections(text: str, level: int) -> Iterator[tuple[str, str]]:
    """(heading, content) of the parts of a text, parted at headings of the first level that parts it."""
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
    """A short section goes with the one after it, the last (or a conclusion) with the one before it, if both fit in one
    memory. One that is only headings goes with what follows in any case."""
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
    """Each as long as may be, and cut behind a paragraph, else behind a sentence, else between words."""
    at = beginning(text)
    while len(text) - at > MAX_CONTENT:
        cut = at + _cut(text[at : at + MAX_CONTENT + 1])
        yield text[at:cut].rstrip()
        at = beginning(text, cut)
    if at < len(text):
        yield text[at:]


def _cut(window: str) -> int:
    """Where to part what is one character longer than a memory: where at least half of one stands before."""
    for pattern in (_PARAGRAPH, _SENTENCE):
        last = min(max((found.start() for found in pattern.finditer(window)), default=0), MAX_CONTENT)
        if last >= MAX_CONTENT // 2:
            return last
    if window[-1].isspace():
        return MAX_CONTENT
    words = window.rsplit(None, 1)
    return len(words[0]) if len(words) == 2 and words[0].strip() else MAX_CONTENT
