"""The fields in the sections of a memory. A file names the fields that the memory does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from memory.markdown import sections, templates
from memory.markdown.sections import ABSENT, fact

_ALL = {category: templates.fields(category) for category in templates.OF}
_BOLD = "git_history"  # the category whose template has the fields of its sections in bold
_FIELD = re.compile(r"^- ([A-Z][A-Za-z -]{1,40}):(?= |$)", re.MULTILINE)
_IN_BOLD = re.compile(rf"^- \*\*({'|'.join(sorted(_ALL[_BOLD]))})\*\*:", re.MULTILINE)
_ANY = f"(?:{'|'.join(sorted(frozenset().union(*_ALL.values())))})"
_ADDED = re.compile(rf"\n- {ABSENT}: {_ANY}(?:, {_ANY})*\Z")


def _missing(fields: Iterable[str]) -> list[str]:
    named = ", ".join(fields)
    return [f"- {ABSENT}: {named}"] if named else []


def all_of(category: str) -> frozenset[str]:
    """Return every field of a category. Empty for a category with free text."""
    return _ALL.get(category, frozenset())


def absent(category: str, section: str) -> str:
    """Return what a file shows in a section without text."""
    missing = "".join(_missing(templates.required(category, section))) or ABSENT
    if section == "Commit Analysis":
        return f"### Major Commits\n{ABSENT}\n\n### Pattern Insights\n{missing}"
    return missing


_ABSENT = {ABSENT, *(absent(category, section) for category, of_kind in templates.OF.items() for section in of_kind)}


def is_absent(text: str) -> bool:
    """Return whether a section of a file has no text."""
    return text in _ABSENT


def completed(text: str, category: str, section: str) -> str:
    """Return a section of fields as its file shows it: fields are bold if the template has them bold, and a last line
    names the missing fields."""
    found = set(_FIELD.findall(text))
    if not found & all_of(category):
        return text
    if category == _BOLD:
        text = _FIELD.sub(lambda line: f"- **{line[1]}**:" if line[1] in all_of(category) else line[0], text)
    missing = [] if f"\n- {ABSENT}" in text else templates.required(category, section)
    return "\n".join([text, *_missing(field for field in missing if field not in found)])


def stored(text: str, *, is_bold: bool) -> str:
    """Reverse `completed`. A section without text stays as it is."""
    if is_absent(text):
        return text
    text = _ADDED.sub("", text)
    return _IN_BOLD.sub(r"- \1:", text) if is_bold else text


def with_fact(text: str, category: str, section: str, label: str, value: str) -> str:
    """Return a memory's text with one more field in a section. An existing value stays."""
    found = sections.split(text, category)
    before = found.get(section, "")
    if fact(before, label):
        return text
    found[section] = f"{before}\n- {label}: {value}"
    return sections.join({name: found.get(name, "") for name in sections.names(category)})
