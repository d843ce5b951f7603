"""A memory as the file that a person opens (seed 004, "Storage Format"), and what such a file says, read again.

The templates are the seed's five, and a sixth for what is private, which shows metadata and a sealed block. The same
memory gives the same bytes whenever it is rendered: a file is known again after a crash.
"""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from django.conf import settings

from memory.models import Memory, Scope
from memory.rules import sections
from memory.silo.silo import Opened

ABSENT = "Not recorded."
_PLACEHOLDER = re.compile(r"\{\{ ([^{}]+) \}\}")
_FIELD = re.compile(r"^- \*\*(Version|Memory ID|Interaction ID|Topic ID|Category)\*\*: (.*?)\s*\Z")
_TOPIC = re.compile(r"^- Topic: (.{1,200})$", re.MULTILINE)
_BLOCK = re.compile(r"^```\s*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FOLDED = 76  # characters of a line of the sealed block


@dataclass(frozen=True, slots=True, repr=False)
class Said:
    """What a file says. `sections` and `tags` as they stand there; `sealed` where it is private."""

    number: int
    version: str
    sections: Mapping[str, str]
    tags: str
    sealed: bytes | None


def rendered(memory: Memory, opened: Opened | None, version: str, changed_at: datetime) -> bytes:
    """The file of a memory; of a private one without `opened`. `version` is the rules', `changed_at` when it became
    what it is."""
    values = _metadata(memory, version, changed_at)
    if memory.scope == Scope.PRIVATE:
        block = base64.b64encode(bytes(memory.sealed)).decode()
        return _filled("sealed", values | {"sealed": "\n".join(textwrap.wrap(block, _FOLDED))})
    if opened is None:
        raise ValueError("what is not private is opened first")
    said = sections.parted(opened.content, memory.category)
    told = {name: sections.escaped(said.get(name, ABSENT)) for name in sections.names(memory.category)}
    values |= _of_tags(opened.tags)
    if named := _TOPIC.search(said.get("Topic Definition", "")):  # as it is written; its tag is folded
        values["topic"] = named[1]
    return _filled(_template_of(memory.category), values | told)


def _metadata(memory: Memory, version: str, changed_at: datetime) -> dict[str, str]:
    return {
        "version": version,
        "generated": _moment(memory.created_at),
        "recorded": _moment(memory.origin),
        "date": f"{memory.origin:%Y-%m-%d}",
        "category": memory.category,
        "number": str(memory.number),
        "project": memory.project or "none",
        "range": f"{_moment(memory.origin)} to {_moment(memory.created_at)}",
        "evolved": _moment(changed_at),
    }


# A tag that says what a placeholder stands for: tag before its colon → placeholder, and what stands there without it.
_TOLD_BY_TAGS = {
    "session": ("session", "unnamed"),
    "session-type": ("session_type", "INTERACTIVE"),
    "topic": ("topic", "unnamed"),
    "analysis": ("analysis", "history"),
    "method": ("method", "git log"),
    "privacy": ("privacy", "secrets masked, authors left out"),
    "source-system": ("source_system", "none, it was made here"),
    "migrated": ("migration_date", "none"),
    "migration": ("migration_notes", "none"),
    "transformed": ("transformations", "none"),
}


def _of_tags(tags: tuple[str, ...]) -> dict[str, str]:
    found = dict(_TOLD_BY_TAGS.values())
    for tag in tags:
        name, colon, said = tag.partition(":")
        if colon and name in _TOLD_BY_TAGS:
            found[_TOLD_BY_TAGS[name][0]] = _one_line(said)
    return found | {"tags": sections.escaped(tags_line(tags))}


def tags_line(tags: tuple[str, ...]) -> str:
    return ", ".join(map(_one_line, tags)) or "none"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _template_of(category: str) -> str:
    return category if category in ("git_history", "user_interaction", "session", "topic") else "standard"


def _filled(template: str, values: Mapping[str, str]) -> bytes:
    """Each placeholder by its value, which is never looked through for others."""
    literal, *rest = _parts(template)
    told = [literal]
    for name, literal in zip(rest[::2], rest[1::2], strict=True):
        told += [values.get(name, "none"), literal]
    return "".join(told).encode()


@cache
def _parts(template: str) -> list[str]:
    """Text, placeholder, text, placeholder … text."""
    path = Path(settings.BASE_DIR) / "templates" / "memory_rules" / f"{template}.md"
    return _PLACEHOLDER.split(path.read_text("utf-8"))


# --- read again


def read_again(data: bytes) -> Said | None:
    """What a file says; None where it is none of ours: no text, or without the number of a memory."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    number = number_in(text)
    if number is None:
        return None
    blocks = _blocks(text)
    fields = _fields(blocks.pop("Metadata", ""))
    tags, sealed = blocks.pop("Tags", ""), blocks.pop("Sealed", "")
    told = {name: said for name, said in blocks.items() if said and said != ABSENT}
    return Said(number, fields.get("Version", ""), told, tags, _sealed(sealed))


def number_in(text: str) -> int | None:
    """The number of the memory that a file is of; None where it says none."""
    fields = _fields(_blocks(text).get("Metadata", ""))
    number = next((fields[name] for name in ("Memory ID", "Interaction ID", "Topic ID") if name in fields), "")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else None


def _fields(metadata: str) -> dict[str, str]:
    return {found[1]: found[2] for line in sections.lines(metadata) if (found := _FIELD.match(line))}


def _blocks(text: str) -> dict[str, str]:
    """What stands below each heading."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in sections.lines(text):
        begun = sections.heading(line)
        if begun and begun not in found:
            name = begun
            found[name] = []
        elif name:
            found[name].append(line)
    return {name: sections.unescaped("".join(lines)).strip() for name, lines in found.items()}


def _sealed(said: str) -> bytes | None:
    found = _BLOCK.search(said)
    try:
        return base64.b64decode("".join(found[1].split()), validate=True) if found else None
    except ValueError:
        return b""
