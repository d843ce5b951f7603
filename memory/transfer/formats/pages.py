"""Read text files: pages and JSON notes. A page may have YAML front matter. Each page and each JSON note becomes one
memory, or several memories if the text is too long.

The files are not trusted. So the YAML loader accepts only text, lists and mappings, refuses aliases, and reads a
limited number of characters.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import IO, Any

import yaml
from frontmatter.default_handlers import YAMLHandler

from memory.transfer.formats import parts
from memory.transfer.formats.gathering import Gathered, id_of, moment

LARGEST = 10 * 2**20  # bytes of a file
Value = str | tuple[str, ...]  # of front matter
_FRONT = re.compile(r"---[ \t]*\n[\w.-]")
_DATE = re.compile(r"(?<!\d)(\d{4}-\d{2}-\d{2})(?!\d)")
# What the keys of front matter mean in all tools. The values of other keys are not kept, and a note lists these keys.
_FIRST_LINE = ("title", "description")  # the first of these that has a value
_GLOBS = {"globs", "paths", "applyTo", "fileMatchPattern"}
_DATES = {"date", "modified"}
_TAGGED = {"alwaysApply": "alwaysApply:", "type": "type:", "metadata.type": "type:"}
_KNOWN = {*_FIRST_LINE, *_GLOBS, *_DATES, *_TAGGED, "tags", "name", "trigger", "inclusion", "excludeAgent"}


def page(file: IO[bytes], path: str, tags: tuple[str, ...] = ()) -> Iterator[parts.Part]:
    return parts.fitting(path, lambda: _memories(file.read(LARGEST), path, tags))


def _memories(data: bytes, path: str, tags: tuple[str, ...]) -> Iterator[parts.Found]:
    gathered = Gathered(tags=dict.fromkeys(tags))
    content = gathered.take(parts.decoded(data))
    if _FRONT.match(content):
        content = _without_front(content, gathered)
    if parts.says_nothing(content):
        raise parts.Unfit("has only headings and imports")
    yield from memories(content, path, gathered, path)


def memories(content: str, key: str, gathered: Gathered, path: str) -> Iterator[parts.Found]:
    gathered.date = gathered.date or _named(path)
    yield from gathered.memories(key, content, "#" if key == path else "-")


def _named(path: str) -> datetime | None:
    """Return the date in a file's name, or None."""
    for found in _DATE.findall(path.rpartition("/")[2]):
        if date := moment(found):
            return date.replace(tzinfo=UTC)
    return None


def _without_front(text: str, gathered: Gathered) -> str:
    """Return the text without its front matter. The values of the front matter become tags, the date and the first line
    of the memory. Raises Unfit."""
    if (split := split_front_matter(text)) is None:
        gathered.note("front matter could not be read, kept as text")
        return text
    fields, rest = split
    if fields and not fields.keys() & _KNOWN:  # this is not front matter, but text between two horizontal rules
        return text
    if fields.get("paths", "") == ():
        raise parts.Unfit("is switched off (paths: [])")
    if not (body := parts.tidy(rest)):
        raise parts.Unfit("has only front matter")
    gathered.note("front matter left out")
    return f"{_kept(fields, gathered)}{body}"


def _kept(fields: Mapping[str, Value], gathered: Gathered) -> str:
    """Add the tags and the date of the front matter to `gathered`. Return the first line of the memory, or ""."""
    first = next((name for name in _FIRST_LINE if as_line(fields.get(name, ""))), "")
    for name, value in fields.items():
        if name in _GLOBS:
            gathered.tag_each(as_list(value), "glob", "glob:")
        elif name == "tags":
            gathered.tag_each(as_list(value), "tag")
        elif name in _DATES:
            gathered.moment(value)
        elif name in _TAGGED:
            gathered.tag(as_line(value), name, _TAGGED[name])
        elif value and name != first:
            gathered.not_kept(name)
    if not first:
        return ""
    gathered.note(f"{first} became the first line")
    return f"{as_line(fields[first])}\n\n"


# --- JSON notes


_WORDS = ("content", "text", "memory", "body", "note")
_DATED = ("date", "created_at", "created", "origin")


def read_json(file: IO[bytes], path: str) -> Iterator[parts.Part]:
    data = file.read(LARGEST)
    value, why = parts.parsed(data)
    is_empty = not data.strip() or value in ([], {}, "")
    if is_empty or why:
        yield parts.LeftOut(path, parts.EMPTY if is_empty else why)
        return
    for number, each in enumerate(value, 1) if isinstance(value, list) else [(0, value)]:
        known = id_of(each.get("id")) if isinstance(each, dict) else ""
        name = known or (str(number) if number else "")
        for part in _entry(each, f"{path}#{name}" if name else path, path):
            by_words = number > 0 and not known
            yield replace(part, id=known, by_words=by_words) if isinstance(part, parts.Found) else part


def _entry(value: Any, key: str, path: str) -> Iterator[parts.Part]:
    gathered = Gathered()
    return parts.fitting(key, lambda: memories(gathered.take(parts.fit(_words(value, gathered))), key, gathered, path))


def _words(value: Any, gathered: Gathered) -> str:
    """Return the text of a JSON entry. Raises Unfit."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise parts.Unfit("is neither an object nor a text")
    if value.keys() & set(_WORDS):
        return _of_object(value, gathered)
    gathered.note("kept as JSON")
    with suppress(RecursionError):
        return json.dumps(value, ensure_ascii=False, indent=2)
    raise parts.Unfit("is nested too deeply")  # not in the handler: the caught error has the value in it


def _of_object(value: Mapping[str, Any], gathered: Gathered) -> str:
    if not (words := next((name for name in _WORDS if _is_text(value.get(name))), "")):
        raise parts.Unfit(parts.NO_TEXT)
    date = next((name for name in _DATED if value.get(name)), "")
    gathered.moment(value.get(date))
    tags = value.get("tags")
    gathered.tag_each(as_list(tags) if isinstance(tags, str) else tags, "tags")
    for name, each in value.items():
        if name not in (words, date, "tags", "title", "id") and each not in (None, "", [], {}):
            gathered.not_kept(name)
    if not _is_text(value.get("title")):
        return str(value[words])
    gathered.note("title became the first line")
    return f"{' '.join(value['title'].split())}\n\n{value[words]}"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


# --- front matter


MAX_LENGTH = 2**16  # characters of front matter
# Some tools write values that are not valid YAML, or that have another meaning in YAML: `globs: **/*.ts`,
# `globs: "a", "b"`, `description: Use it: always`. Such a value is put in quotes before YAML reads it.
_UNQUOTED = re.compile(
    r"""^([ \t]*(?:[\w.-]+:|-)[ \t]+)"""
    r"""([*{&!%@`][^\n]*|["'][^"'\n]*["'][ \t]*,[^\n]*|[^\s'"\[|>#-][^\n]*:[ \t][^\n]*)$""",
    re.MULTILINE,
)


class _Loader(yaml.BaseLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError
        return super().compose_node(parent, index)


def split_front_matter(text: str) -> tuple[Mapping[str, Value], str] | None:
    """Split a text that begins with `---`. Return the fields of its front matter, and its body. A key inside another
    key gets the name `outer.inner`. Return None if the front matter cannot be read."""
    fields, body = None, ""
    with suppress(ValueError, yaml.YAMLError, RecursionError):
        front, body = YAMLHandler().split(text)
        if len(front) <= MAX_LENGTH:
            quoted = _UNQUOTED.sub(lambda found: found[1] + "'" + found[2].rstrip().replace("'", "''") + "'", front)
            fields = yaml.load(quoted, Loader=_Loader) or {}  # noqa: S506  only text, lists and mappings
    return (dict(_flat(fields)), body) if isinstance(fields, dict) else None


def _flat(fields: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{below}", _value(inner)) for below, inner in value.items())
        else:
            yield name, _value(value)


def _value(value: Any) -> Value:
    if isinstance(value, list):
        return tuple(each for each in value if isinstance(each, str) and each)
    return value if isinstance(value, str) else ""


def as_list(value: Value) -> list[str]:
    """Return the items of a list or of a comma-separated text. A comma inside braces does not separate items."""
    texts = value if isinstance(value, tuple) else re.findall(r"(?:\{[^{}]*\}|[^,])+", value.strip().strip("[]"))
    return [text for each in texts if (text := each.strip().strip("'\"").strip())]


def as_line(value: Value) -> str:
    return " ".join((value if isinstance(value, str) else ", ".join(value)).split())
