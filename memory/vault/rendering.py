"""Render the file of a memory, and read such a file.

Each structured category has its own template. Private memories have a template that shows the metadata and a sealed
block. If a memory does not change, its file always gets the same bytes. So a file can be recognized after a crash.

Control characters can send commands to a terminal. Characters that change the writing direction, such as U+202E, can
hide text. A file shows these characters as `\\u{202E}`. If a backslash comes before such a character, or before a text
like `u{202E}`, the file has two backslashes.
"""

import base64
import re
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from django.conf import settings

from memory.markdown import labels, sections, templates
from memory.markdown.sections import ABSENT
from memory.models import Memory
from memory.policy import paths, settings_document
from memory.silo.silo import Opened

_UNSEEN = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_TO_SHOW = re.compile(rf"(?<!\\)(\\*+)(?:({_UNSEEN}|\r(?!\n))|u\{{([0-9A-F]{{1,4}})\}})")
_SHOWN = re.compile(r"(?<!\\)(\\++)u\{([0-9A-F]{1,4})\}")
_IS_UNSEEN = re.compile(rf"{_UNSEEN}|\r")


def visible(text: str) -> str:
    """Escape the control characters and direction characters of a text. `restored` reverses this."""
    return _TO_SHOW.sub(_shown, text)


def restored(text: str) -> str:
    return _SHOWN.sub(_as_it_was, text)


def _shown(found: re.Match[str]) -> str:
    before, letter, code = found.groups()
    if letter:
        return f"{before * 2}\\u{{{ord(letter):X}}}"
    return f"{before}{found[0]}" if _is_escaped(code) else found[0]


def _as_it_was(found: re.Match[str]) -> str:
    before, code = found.groups()
    if not _is_escaped(code):
        return found[0]
    half, is_letter = divmod(len(before), 2)
    return "\\" * half + (chr(int(code, 16)) if is_letter else f"u{{{code}}}")


def _is_escaped(code: str) -> bool:
    """Return whether `code` is the hexadecimal code of a character that `visible` escapes."""
    letter = chr(int(code, 16))
    return f"{ord(letter):X}" == code and _IS_UNSEEN.fullmatch(letter) is not None


MASKING = "capture_settings", "sensitive_data_masking"
_PLACEHOLDER = re.compile(r"\{\{ ([^{}]+) \}\}")
_FIELD = re.compile(r"- \*\*([A-Za-z ]{1,40})\*\*:[ \t]")
_LABEL = re.compile(r"- \*\*(.+?)\*\*: ")
_BLOCK = re.compile(r"^```[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ENDS_TAG = re.compile(r"(?<!\\)(\\*+)(,|\Z)")
_FOLDED = 76  # characters of a line of the sealed block
_LONGEST = 200  # characters of a title's value


@dataclass(frozen=True, slots=True, repr=False)
class FileInfo:
    """The metadata of a file: the number of its memory and the version of the rules. `sealed` is the sealed block of a
    private memory."""

    number: int
    version: str
    sealed: bytes | None


def mask_for_file(memory: Memory, opened: Opened, rules: Mapping[str, Any]) -> Opened:
    """Return a memory's content and tags with secrets masked. For a private memory, only the tags are masked, because
    its content is sealed. The memory's file and the name of this file are made from the result. The silo keeps the
    original text."""
    if not settings_document.is_on(rules, *MASKING):
        return opened
    from memory.masking.scanner import masked_together  # imported late: its detectors import requests

    if paths.is_private(memory.category, rules):  # content is sealed, but a tag may be in the name
        return Opened(opened.content, tuple(masked_together(opened.tags)[0]))
    content, *tags = masked_together([opened.content, *opened.tags])[0]
    return Opened(content, tuple(tags))


def render(memory: Memory, opened: Opened | None, version: str, changed_at: datetime) -> bytes:
    """Return the bytes of a memory's file. The content is sealed if `opened` is None. `version` is the version of the
    rules, and `changed_at` is the time of the last change. The last line of each list names the fields that have no
    value."""
    values = _metadata(memory, version, changed_at)
    if opened is None:
        block = base64.b64encode(bytes(memory.sealed)).decode()
        return _filled("sealed", values | {"sealed": "\n".join(textwrap.wrap(block, _FOLDED))})
    texts = sections.split(opened.content, memory.category)
    values |= _of_tags(opened.tags) | _of_sections(texts)
    for name in sections.names(memory.category):
        text = labels.completed(visible(texts.get(name, "")), memory.category, name)
        values[name] = sections.escaped(text) if text else labels.absent(memory.category, name)
    return _filled(memory.category if memory.category in templates.OF else "standard", values)


def _metadata(memory: Memory, version: str, changed_at: datetime) -> dict[str, str]:
    return {
        "version": version,
        "generated": _moment(memory.created_at),
        "recorded": _moment(memory.origin),
        "date": f"{memory.origin:%Y-%m-%d}",
        "category": memory.category,
        "number": str(memory.number),
        "project": memory.project or "none",
        "evolved": _moment(changed_at),
    }


# Each tag `NAME:value` with one of these names fills the placeholder of this name.
_TAGS = {
    *("session", "session-type", "topic", "analysis", "range", "method", "privacy", "source-system", "migrated"),
    *("migration", "transformed", "compatibility", "preserved"),
}
# Fields that the file also shows in another place: placeholder → section and label.
_REPEATED_FIELDS = {
    "topic": ("Topic Definition", "Topic"),  # in its original spelling; its tag is normalized
    "session-type": ("Session Overview", "Session Type"),
    "period": ("Session Overview", "Period"),
}


def _of_tags(tags: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, _, value in (tag.partition(":") for tag in tags):
        if name in _TAGS:  # values of the same name are joined
            found[name] = "; ".join(filter(None, (found.get(name), visible(_one_line(value)))))
    if "method" in found:
        found.setdefault("source-system", "git_history_analysis")
    return found | {"tags": sections.escaped(visible(tags_line(tags)))}


def _of_sections(texts: Mapping[str, str]) -> dict[str, str]:
    named = [(texts.get("Context", ""), "Session"), (texts.get("Session Overview", ""), "Session")]
    found = {name: sections.fact(texts.get(section, ""), label) for name, (section, label) in _REPEATED_FIELDS.items()}
    found["session"] = next(filter(None, (sections.fact(*each) for each in named)), "")  # a tag may be cut
    return {name: visible(value[:_LONGEST]) for name, value in found.items() if value}


def tags_line(tags: Iterable[str]) -> str:
    """Return the tags in one line, separated by commas. Commas in a tag are escaped, so that `tags_of` returns the same
    tags."""
    return ", ".join(_ENDS_TAG.sub(_quoted, _one_line(tag)) for tag in tags) or "none"


def _quoted(found: re.Match[str]) -> str:
    return found[1] * 2 + ("\\," if found[2] else "")


def tags_of(line: str) -> tuple[str, ...]:
    """Return the tags of a line that `tags_line` made."""
    tags, tag, at = [], "", 0
    for found in _ENDS_TAG.finditer(line):
        half, odd = divmod(len(found[1]), 2)
        tag += line[at : found.start()] + "\\" * (half + (odd and not found[2])) + ("," if odd and found[2] else "")
        at = found.end()
        if not (odd and found[2]):
            tags.append(tag.strip())
            tag = ""
    return tuple(tag for tag in tags if tag and tag != "none")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _moment(at: datetime) -> str:
    return f"{at.replace(tzinfo=None).isoformat(timespec='seconds')}Z"  # strftime does not pad years before 1000


def _filled(template: str, values: Mapping[str, str]) -> bytes:
    """Return a template with these values. A placeholder inside a value is not replaced. A field without a value gets
    no line. At the end of each list, one line names these fields."""
    lines: list[str] = []
    missing: list[str] = []
    for line in _lines(template):
        label = _LABEL.match(line)
        if label and not all(values.get(name) for name in _PLACEHOLDER.findall(line)):
            missing.append(label[1])
            continue
        if missing and not label:
            lines.append(f"- **{ABSENT}**: {', '.join(missing)}\n")
            missing = []
        lines.append(_PLACEHOLDER.sub(partial(_value, values), line))
    return "".join(lines).encode()


def _value(values: Mapping[str, str], place: re.Match[str]) -> str:
    """Return the value of a placeholder. If a title has no value, return the memory's date or number."""
    return values.get(place[1]) or (values["recorded"] if place[1] == "period" else f"memory {values['number']}")


@cache
def _lines(template: str) -> list[str]:
    path = Path(settings.TEMPLATES_DIR) / "memory_rules" / f"{template}.md"
    return path.read_text("utf-8").splitlines(keepends=True)


# --- reading a file


def read_file(data: bytes) -> FileInfo | None:
    """Return the metadata of a file. Return None if the file is not text, or if it has no memory number."""
    try:
        found = blocks(data.decode())
    except UnicodeDecodeError:
        return None
    number = number_of(found.get("Metadata", ""))
    if number is None:
        return None
    return FileInfo(number, fields(found.get("Metadata", "")).get("Version", ""), _sealed(found.get("Sealed", "")))


def number_in(text: str) -> int | None:
    """Return the memory's number in a file's text, or None."""
    return number_of(blocks(text).get("Metadata", ""))


def number_of(metadata: str) -> int | None:
    """Return the memory's number in a metadata section, or None."""
    found = fields(metadata)
    number = next((found[name] for name in ("Memory ID", "Interaction ID", "Topic ID") if name in found), "")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else None


def fields(block: str) -> dict[str, str]:
    """Return the fields of a section, each with its value."""
    lines = ((line, _FIELD.match(line)) for line in sections.lines(block))
    return {found[1]: line[found.end() :].strip() for line, found in lines if found}


def blocks(text: str) -> dict[str, str]:
    """Return the text below each heading. Text that the template added is removed."""
    is_bold = text.startswith("# Git History")
    found: dict[str, list[str]] = {}
    name = ""
    for line, begun, _ in sections.parsed(text):
        if begun and begun not in found:
            name = begun
            found[name] = []
        elif name:
            found[name].append(line)
    return {
        name: restored(labels.stored(sections.unescaped("".join(lines)).strip(), is_bold=is_bold))
        for name, lines in found.items()
    }


def _sealed(section: str) -> bytes | None:
    found = _BLOCK.search(section)
    with suppress(ValueError):
        return base64.b64decode("".join(found[1].split()), validate=True) if found else None
    return b""
