"""What a structured memory says, as markdown in sections: the one text that is sealed, and that its file shows.

Each category has the sections of its template in seed 004 ("Storage Format"). A memory that was stored as plain text
is all of its category's main section.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import starmap

from memory.markdown import fences

ABSENT = "Not recorded"  # what a file shows for a section or a field without a value; never in a memory's text
_STANDARD = ("Context", "Understanding", "Decision/Action", "Outcome", "Related Memories")
_OF_KIND = {
    "git_history": (
        "Analysis Summary",
        "Key Findings",
        "Commit Analysis",
        "Branch Evolution",
        "Code Evolution Metrics",
        "Development Insights",
        "Recommendations",
    ),
    "user_interaction": (
        "User Prompt",
        "Agent Response",
        "Context",
        "Analysis",
        "Technical Metadata",
        "Related Interactions",
    ),
    "session": ("Session Overview", "Key Interactions", "Topic Evolution", "Outcomes", "Session Quality Metrics"),
    "topic": (
        "Topic Definition",
        "Evolution History",
        "User Interaction Patterns",
        "Key Insights",
        "Cross-References",
    ),
}
_MAIN = {"git_history": "Analysis Summary", "user_interaction": "Context", "session": "Session Overview"}
AROUND = ("Metadata", "Migration Information", "Tags", "Sealed")  # what else a file has
_BEGINS = "## "
ALL = frozenset({*_STANDARD, *AROUND}.union(*_OF_KIND.values()))
_LIKE_A_HEADING = re.compile(
    rf"^(\\*)(?=## (?:{'|'.join(re.escape(name) for name in sorted(ALL))})[ \t]*\r?$)", re.MULTILINE
)
_LIKE_AN_ESCAPED = re.compile(_LIKE_A_HEADING.pattern.replace(r"^(\\*)", r"^\\(\\*)"), re.MULTILINE)


def names(category: str) -> tuple[str, ...]:
    """The sections of a category's template, in order, without metadata and tags."""
    return _OF_KIND.get(category, _STANDARD)


def main_section(category: str) -> str:
    """Where text goes that is in no section."""
    return _MAIN.get(category, "Topic Definition" if category == "topic" else "Understanding")


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


# --- what a section tells under labels


def listed(facts: Mapping[str, str]) -> str:
    """`- Label: value` for each field that has a value."""
    return "\n".join(f"- {label}: {value}" for label, value in facts.items() if value)


def absent(labels: Iterable[str]) -> list[str]:
    """The line that names what nobody told."""
    named = ", ".join(labels)
    return [f"- {ABSENT}: {named}"] if named else []


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
    """The same, and whether the line is of a fence."""
    parts = lines(text)
    for line, is_fenced in zip(parts, _fenced(text, parts), strict=True):
        yield line, "" if is_fenced else _named(line), is_fenced


def _named(line: str) -> str:
    """The name of the section that a line would begin; "" for any other line."""
    if not line.startswith(_BEGINS):
        return ""
    name = line[len(_BEGINS) :].removesuffix("\n").removesuffix("\r").rstrip(" \t")
    return name if name in ALL else ""


def lines(text: str) -> list[str]:
    """With their ends: a line ends here as in `escaped`, whatever else Unicode takes for an end."""
    return re.split(r"(?<=\n)", text)


def _fenced(text: str, parts: list[str]) -> list[bool]:
    return fences.fenced(parts) if fences.may_be_in(text) else [False] * len(parts)


def escaped(text: str) -> str:
    """With a backslash before each line that looks like a heading of ours, or opens a fence that nothing closes and
    would take in what is put behind it. What stands in a fence is as it was, but for what looks escaped."""
    if not fences.may_be_in(text):
        return _LIKE_A_HEADING.sub(r"\\\1", text)
    parts = lines(text)
    return "".join(starmap(_escaped, zip(parts, fences.fenced(parts), strict=True)))


def _escaped(line: str, is_fenced: bool) -> str:
    if is_fenced:  # it was escaped there, too, once, and is read so
        is_to_be = _LIKE_AN_ESCAPED.match(line) is not None
    else:
        is_to_be = _LIKE_A_HEADING.match(line) is not None or fences.is_mark(line.lstrip("\\"))
    return f"\\{line}" if is_to_be else line


def unescaped(text: str) -> str:
    if not fences.may_be_in(text):
        return _LIKE_AN_ESCAPED.sub(r"\1", text)
    parts = lines(text)
    return "".join(starmap(_unescaped, zip(parts, fences.fenced(parts), strict=True)))


def _unescaped(line: str, is_fenced: bool) -> str:
    is_escaped = line.startswith("\\") and not is_fenced and fences.is_mark(line.lstrip("\\"))
    return line[1:] if is_escaped or _LIKE_AN_ESCAPED.match(line) else line
