"""Read and write the text of a structured memory, which consists of Markdown sections. The sealed memory and its file
have the same sections.

Each category has a template with its sections. The text of a memory that was stored as plain text belongs to the main
section. A line inside a code fence (``` or ~~~) is never a heading.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from memory.markdown import templates

_MARKS = "`~"
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}(?=[^`]*\Z)|~{3,})(?P<after>[^\n]*)", re.DOTALL)


def _with_fences(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is part of a code fence. The opening and closing lines are part of it. A line
    opens a fence only if a later line closes the fence."""
    marks = [(line, _FENCE.match(line)) for line in lines(text)]
    until = ""
    for (line, found), closing in zip(marks, _closing_after([found for _, found in marks]), strict=True):
        if until:
            yield line, True
            until = "" if found and _closes(found) and found["mark"].startswith(until) else until
        else:
            is_open = found is not None and closing[found["mark"][0]] >= len(found["mark"])
            until = found["mark"] if found and is_open else ""
            yield line, is_open


def _closes(found: re.Match[str]) -> bool:
    return not found["after"].strip()


def _closing_after(marks: Sequence[re.Match[str] | None]) -> list[dict[str, int]]:
    """Return a list with one dict for each line. For each kind of mark (` and ~), the dict has the length of the
    longest closing mark after this line."""
    longest, following = dict.fromkeys(_MARKS, 0), []
    for found in reversed(marks):
        following.append(longest)
        if found is not None and _closes(found) and len(found["mark"]) > longest[found["mark"][0]]:
            longest = longest | {found["mark"][0]: len(found["mark"])}
    return following[::-1]


ABSENT = "Not recorded"  # shown in files for sections and fields without a value, but never added to a memory's text
_LIKE_A_HEADING = re.compile(
    rf"^(\\*)(?=## (?:{'|'.join(re.escape(name) for name in sorted(templates.SECTIONS))})[ \t]*\r?$)", re.MULTILINE
)
_LIKE_AN_ESCAPED = re.compile(_LIKE_A_HEADING.pattern.replace(r"^(\\*)", r"^\\(\\*)"), re.MULTILINE)


def names(category: str) -> tuple[str, ...]:
    """Return the names of the sections in a category's template, in order. Metadata and tags are not included."""
    return tuple(templates.OF.get(category, templates.STANDARD))


def main_section(category: str) -> str:
    """Return the name of the section for text that is outside all sections."""
    if category == "user_interaction":
        return "Context"
    return names(category)[0] if category in templates.OF else "Understanding"


def join(sections: Mapping[str, str]) -> str:
    """Return a text with these sections in this order. Empty sections are left out. `split` returns the same sections
    from the text, except for whitespace around them."""
    texts = ((name, text.strip()) for name, text in sections.items())
    return "\n\n".join(f"## {name}\n{escaped(text)}" for name, text in texts if text)


def split(text: str, category: str) -> dict[str, str]:
    """Return the sections of a text. Text before the first heading belongs to the main section."""
    known = set(names(category))
    found: dict[str, list[str]] = {}
    name = main_section(category)
    for line, begun, _ in parsed(text):
        if begun in known and not "".join(found.get(begun, ())).strip():
            name = begun
            found.setdefault(name, [])
        else:
            found.setdefault(name, []).append(line)
    texts = {name: unescaped("".join(lines)).strip() for name, lines in found.items()}
    return {name: text for name, text in texts.items() if text}


def is_plain(text: str, category: str) -> bool:
    """Return whether a text has no section heading of its category."""
    known = names(category)
    return not any(begun in known for _, begun, _ in parsed(text))


# --- the fields of a section


def filled(category: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each section. The text has a line `- Field: value` for each field that has a value."""
    return {
        section: "\n".join(f"- {field}: {values[field]}" for field in fields if values.get(field))
        for section, fields in templates.OF[category].items()
        if fields
    }


def fact(section: str, label: str) -> str:
    """Return the value of a field in a section, or ""."""
    found = re.search(rf"^- {re.escape(label)}: (.*)$", section, re.MULTILINE)
    return found[1].strip() if found else ""


def fact_in(text: str, category: str, section: str, label: str) -> str:
    """Return the value of a field in a memory's text, or ""."""
    return fact(split(text, category).get(section, ""), label)


# --- lines that look like headings


def parsed(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield three values for each line: the line, the name of the section that begins there, and whether the line is in
    a code fence. The name is "" if no section begins there."""
    for line, is_fenced in _with_fences(text):
        yield line, "" if is_fenced else _named(line), is_fenced


def _named(line: str) -> str:
    """Return the name of the section whose heading is this line. Return "" for other lines."""
    name = line.removeprefix("## ").removesuffix("\n").removesuffix("\r").rstrip(" \t")
    return name if line.startswith("## ") and name in templates.SECTIONS else ""


def lines(text: str) -> list[str]:
    """Split a text into lines. Each line keeps its line feed. A line ends only at a line feed."""
    return re.split(r"(?<=\n)", text)


def escaped(text: str) -> str:
    """Return the text with a backslash before two kinds of lines: lines that look like a section heading, and lines
    that open a code fence that is never closed. Inside a code fence, only lines that already look escaped get a
    backslash."""
    return "".join(f"\\{line}" if _is_to_escape(line, is_fenced) else line for line, is_fenced in _with_fences(text))


def _is_to_escape(line: str, is_fenced: bool) -> bool:
    if is_fenced:
        return _LIKE_AN_ESCAPED.match(line) is not None
    return bool(_LIKE_A_HEADING.match(line) or _FENCE.match(line.lstrip("\\")))


def unescaped(text: str) -> str:
    return "".join(line[1:] if _is_escaped(line, is_fenced) else line for line, is_fenced in _with_fences(text))


def _is_escaped(line: str, is_fenced: bool) -> bool:
    is_mark = line.startswith("\\") and not is_fenced and _FENCE.match(line.lstrip("\\"))
    return bool(is_mark or _LIKE_AN_ESCAPED.match(line))
