"""Remove parts of templates from the texts of memories. A text for search loses its headings, labels and empty fields.
A text for a prompt loses its empty fields, and the sections that have only empty fields."""

import re
from collections.abc import Iterator

from memory.markdown import sections, templates
from memory.markdown.sections import ABSENT

_LABEL = re.compile(r"- (?:\*\*)?([A-Z][A-Za-z -]{1,40}?)(?:\*\*)?:(?=\s|\Z)")
_ABSENT = re.compile(rf"(?:- )?(?:\*\*)?{ABSENT}(?:\*\*)?(?::[^\n]*)?\s*\Z")


def own_text(text: str, category: str) -> str:
    """Return the text of a memory without its template. Search uses only this text."""
    if category not in templates.OF and "## " not in text:
        return text
    known, headings = templates.fields(category), sections.names(category)
    return "".join(_own(text, known, frozenset(headings)))


def _own(text: str, known: frozenset[str], headings: frozenset[str]) -> Iterator[str]:
    for line, begun, is_fenced in sections.parsed(text):
        if is_fenced:
            yield line
        elif begun in headings or (known and _ABSENT.match(line)):
            yield "\n"
        else:
            label = _LABEL.match(line) if known else None
            yield line[label.end() :] if label and label[1] in known else line


def without_empty_fields(text: str, category: str) -> str:
    """Return the text of a memory for a prompt. Empty fields are removed. A section that has only empty fields is also
    removed."""
    if category not in templates.OF or ABSENT not in text:
        return text
    kept = "".join(line for line, _, is_fenced in sections.parsed(text) if is_fenced or not _ABSENT.match(line))
    return kept if sections.is_plain(kept, category) else sections.join(sections.split(kept, category))
