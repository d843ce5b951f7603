"""What a structured memory says, as markdown in sections: the one text that is sealed, and that its file shows.

Each category has the sections of its template in seed 004 ("Storage Format"). A memory that was stored as plain text
is all of its category's main section. In a fence (``` or ~~~) nothing is a heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from memory.markdown import templates

_MARKS = "`~"
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}(?=[^`]*\Z)|~{3,})(?P<after>[^\n]*)", re.DOTALL)


def is_mark(line: str) -> bool:
    """Whether a line would open a fence."""
    return _FENCE.match(line) is not None


def fenced(lines: Sequence[str]) -> list[bool]:
    """Of each line whether it is of a fence, its marks included. A mark that no later one closes opens none: it would
    swallow all that follows."""
    marks = [_FENCE.match(line) for line in lines]
    if not any(marks):
        return [False] * len(lines)
    closing = _closing_after(marks)
    is_fenced, until = [], ""
    for at, found in enumerate(marks):
        if until:
            is_fenced.append(True)
            until = "" if found and _closes(found) and found["mark"].startswith(until) else until
        else:
            is_open = found is not None and closing[at][found["mark"][0]] >= len(found["mark"])
            until = found["mark"] if found and is_open else ""
            is_fenced.append(is_open)
    return is_fenced


def _closes(found: re.Match[str]) -> bool:
    return not found["after"].strip()


def _closing_after(marks: Sequence[re.Match[str] | None]) -> list[dict[str, int]]:
    """Behind each line, how long the longest mark of each kind is that can close a fence."""
    longest, told = dict.fromkeys(_MARKS, 0), []
    for found in reversed(marks):
        told.append(longest)
        if found is not None and _closes(found) and len(found["mark"]) > longest[found["mark"][0]]:
            longest = longest | {found["mark"][0]: len(found["mark"])}
    return told[::-1]


ABSENT = "Not recorded"  # what a file shows for a section or a field without a value; never in a memory's text
AROUND = templates.AROUND
_LIKE_A_HEADING = re.compile(
    rf"^(\\*)(?=## (?:{'|'.join(re.escape(name) for name in sorted(templates.SECTIONS))})[ \t]*\r?$)", re.MULTILINE
)
_LIKE_AN_ESCAPED = re.compile(_LIKE_A_HEADING.pattern.replace(r"^(\\*)", r"^\\(\\*)"), re.MULTILINE)


def names(category: str) -> tuple[str, ...]:
    """The sections of a category's template, in order, without metadata and tags."""
    return tuple(templates.OF.get(category, templates.STANDARD))


def main_section(category: str) -> str:
    """Where text goes that is in no section."""
    if category == "user_interaction":
        return "Context"
    return names(category)[0] if category in templates.OF else "Understanding"


def composed(sections: Mapping[str, str]) -> str:
    """Sections as one text, in the order given; empty ones are left out. `parted` finds them again as they were, but
    for blank space around each."""
    said = ((name, text.strip()) for name, text in sections.items())
    return "\n\n".join(f"## {name}\n{escaped(text)}" for name, text in said if text)


def parted(text: str, category: str) -> dict[str, str]:
    """The sections of a text. What stands before the first is the main section's, or all of it where there is none."""
    known = set(names(category))
    found: dict[str, list[str]] = {}
    name = main_section(category)
    for line, begun in headed(text):
        if begun in known and not "".join(found.get(begun, ())).strip():
            name = begun
            found.setdefault(name, [])
        else:
            found.setdefault(name, []).append(line)
    said = {name: unescaped("".join(lines)).strip() for name, lines in found.items()}
    return {name: text for name, text in said.items() if text}


def is_plain(text: str, category: str) -> bool:
    """Whether it begins no section of its category: it is all of its main one."""
    known = names(category)
    return not any(begun in known for _, begun in headed(text))


# --- the fields of a section


def filled(category: str, values: Mapping[str, str]) -> dict[str, str]:
    """The sections with the fields that have a value: `- Field: value`."""
    return {
        section: "\n".join(f"- {field}: {values[field]}" for field in fields if values.get(field))
        for section, fields in templates.OF[category].items()
        if fields
    }


def fact(section: str, label: str) -> str:
    """What a section tells under a label; "" where it tells nothing."""
    found = re.search(rf"^- {re.escape(label)}: (.*)$", section, re.MULTILINE)
    return found[1].strip() if found else ""


def told(text: str, category: str, section: str, label: str) -> str:
    """The same, of a memory's text."""
    return fact(parted(text, category).get(section, ""), label)


# --- lines that look like headings


def headed(text: str) -> Iterator[tuple[str, str]]:
    """Each line, and the name of the section that it begins, "" for any other. In a fence nothing is a heading."""
    yield from ((line, begun) for line, begun, _ in parsed(text))


def parsed(text: str) -> Iterator[tuple[str, str, bool]]:
    """The same, and whether the line is part of a fence."""
    for line, is_fenced in _with_fences(text):
        yield line, "" if is_fenced else _named(line), is_fenced


def _named(line: str) -> str:
    """The name of the section that a line would begin; "" for any other line."""
    name = line.removeprefix("## ").removesuffix("\n").removesuffix("\r").rstrip(" \t")
    return name if line.startswith("## ") and name in templates.SECTIONS else ""


def lines(text: str) -> list[str]:
    """Lines with their ends. Only a line feed ends a line, whatever else Unicode takes for an end."""
    return re.split(r"(?<=\n)", text)


def _with_fences(text: str) -> Iterator[tuple[str, bool]]:
    parts = lines(text)
    return zip(parts, fenced(parts), strict=True)


def escaped(text: str) -> str:
    """With a backslash before each line that looks like a heading of ours, or opens a fence that nothing closes and
    would take in the text after it. In a fence only lines that look escaped get one."""
    return "".join(f"\\{line}" if _is_to_escape(line, is_fenced) else line for line, is_fenced in _with_fences(text))


def _is_to_escape(line: str, is_fenced: bool) -> bool:
    if is_fenced:
        return _LIKE_AN_ESCAPED.match(line) is not None
    return _LIKE_A_HEADING.match(line) is not None or is_mark(line.lstrip("\\"))


def unescaped(text: str) -> str:
    return "".join(line[1:] if _is_escaped(line, is_fenced) else line for line, is_fenced in _with_fences(text))


def _is_escaped(line: str, is_fenced: bool) -> bool:
    if _LIKE_AN_ESCAPED.match(line):
        return True
    return line.startswith("\\") and not is_fenced and is_mark(line.lstrip("\\"))
