"""The lines between two `---` at the top of a file, as rules and notes have them: read strictly, and not as YAML, for
much of it is none (docs/migration-sources.md, "What holds for all").

`key: value`, on lines of their own; a value is text, in quotes or without, or a list: in brackets, or a line each with
`- ` before it; `|` and `>` begin lines of text; keys below a key are `key.below`. Nothing is expanded, and what it
takes grows with the lines alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

LINE = "---"
Value = str | tuple[str, ...]
_KEY = re.compile(r"([A-Za-z_][\w.-]{0,63}):(?:[ \t]+(.*))?\Z", re.ASCII)
_BLOCK = re.compile(r"[|>][+-]?\Z")
_COMMENT = re.compile(r"[ \t]#")


class Unreadable(Exception):
    """What stands there is no front matter."""


@dataclass(frozen=True, slots=True, repr=False)
class Parted:
    """`fields` is None where nothing of the kind is there. A value that was not given is "" or ()."""

    body: str
    fields: Mapping[str, Value] | None = None


def parted(text: str) -> Parted:
    """Raises Unreadable, and the text stays as it is."""
    lines = text.split("\n")
    if lines[0].rstrip() != LINE:
        return Parted(text)
    end = next((n for n, line in enumerate(lines) if n and line.rstrip() == LINE), 0)
    if not end:
        raise Unreadable
    return Parted("\n".join(lines[end + 1 :]), _Fields(lines[1:end]).read())


@dataclass(slots=True, repr=False)
class _Fields:
    lines: Sequence[str]
    at: int = 0
    found: dict[str, Value] = field(default_factory=dict)

    def read(self) -> dict[str, Value]:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            if _says_something(line):
                self._member(line, "")
        return self.found

    def _member(self, line: str, above: str) -> None:
        read = _KEY.match(line.rstrip())
        if not read or (name := above + read[1]) in self.found:
            raise Unreadable
        given = (read[2] or "").strip()
        if not given or given.startswith("#"):
            self.found[name] = ""
            if not above:
                self._below(name)
        elif _BLOCK.match(given):
            self.found[name] = (
                ("\n" if given[0] == "|" else " ").join(line.strip() for line in self._indented()).strip()
            )
        elif given.startswith("["):
            self.found[name] = self._brackets(given)
        else:
            self.found[name] = _scalar(given)

    def _below(self, name: str) -> None:
        """The list, or the keys, that stand below a key; keys below those count as theirs."""
        items: list[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            told = line.strip()
            is_item = told == "-" or told.startswith("- ")
            if not is_item and (line == line.lstrip(" \t")) and _says_something(line):
                break
            self.at += 1
            if is_item:
                items.append(_scalar(told[1:].strip(), is_item=True))
            elif _says_something(line):
                self._member(told, f"{name}.")
        if items:
            self.found[name] = tuple(filter(None, items))

    def _indented(self) -> Iterator[str]:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip() and line[0] not in " \t":
                return
            self.at += 1
            yield line

    def _brackets(self, given: str) -> tuple[str, ...]:
        """A list in brackets, on one line or several."""
        told = []
        closed = _closed(given)
        while not closed:
            told.append(_uncommented(given))
            given = next(self._indented(), "").strip()
            if not given:
                raise Unreadable
            closed = _closed(given)
        return tuple(split(" ".join([*told, closed])))


def _closed(line: str) -> str:
    """A line that ends a list, without what stands behind it; "" for another."""
    inner, bracket, behind = line.rpartition("]")
    return inner + bracket if bracket and not _uncommented(behind.strip()) else ""


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _scalar(given: str, *, is_item: bool = False) -> str:
    """A value without its quotes. What stands behind a quote is a comment, or the quotes are part of the text."""
    if given[:1] in ("'", '"'):
        end = _closing(given)
        if end and not _uncommented(given[end + 1 :]).strip():
            return _unquoted(given[: end + 1])
    return _uncommented(given) if is_item else given


def _closing(given: str) -> int:
    """Where the quotes end that a text begins with; 0 where they do not."""
    quote, at = given[0], 1
    while at < len(given):
        if given[at] == "\\" and quote == '"':
            at += 1
        elif given[at] == quote and not (quote == "'" and given[at + 1 : at + 2] == "'"):
            return at
        elif given[at] == quote:
            at += 1
        at += 1
    return 0


def _unquoted(given: str) -> str:
    if len(given) < 2 or given[0] not in ("'", '"') or given[-1] != given[0]:
        return given
    inner = given[1:-1]
    return inner.replace("''", "'") if given[0] == "'" else re.sub(r'\\(["\\/])', r"\1", inner)


def _uncommented(given: str) -> str:
    if given.startswith("#"):
        return ""
    found = _COMMENT.search(given)
    return (given[: found.start()] if found else given).rstrip()


def split(given: Value) -> Iterator[str]:
    """The texts of a list, or of a text between commas, in brackets or not, but at no comma within braces or quotes;
    each without its quotes."""
    if isinstance(given, tuple):
        yield from given
        return
    told = given.strip()
    if told.startswith("[") and told.endswith("]"):
        told = told[1:-1]
    for each in _between_commas(told):
        if text := _unquoted(each.strip()).strip():
            yield text


def _between_commas(text: str) -> Iterator[str]:
    depth, quote, begins, is_blank = 0, "", 0, True
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"" and is_blank:
            quote = sign
        elif sign in "{}":
            depth = max(depth + (1 if sign == "{" else -1), 0)
        elif sign == "," and not depth:
            yield text[begins:at]
            begins, is_blank = at + 1, True
            continue
        is_blank = is_blank and sign.isspace()
    yield text[begins:]
