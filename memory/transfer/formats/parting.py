"""Text that is too long for one memory, parted where its writer parted it; and names that are given once.

In time that grows with the text alone, whatever stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from memory.policy.paths import plain
from memory.policy.validation import MAX_CONTENT
from memory.transfer.formats.found import Found
from memory.transfer.formats.text import beginning, tidy

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
