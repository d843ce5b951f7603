"""Convert the fields of a memory between the memory's text and its file. The file also lists fields that have no
value."""

import re
from collections.abc import Iterable

from memory.markdown import sections, templates
from memory.markdown.sections import ABSENT, fact

_BOLD = "git_history"  # the template of this category shows the fields in bold
_FIELD = re.compile(r"^- ([A-Z][A-Za-z -]{1,40}):(?= |$)", re.MULTILINE)
_IN_BOLD = re.compile(rf"^- \*\*({'|'.join(sorted(templates.fields(_BOLD)))})\*\*:", re.MULTILINE)
_ANY = f"(?:{'|'.join(sorted(frozenset().union(*map(templates.fields, templates.OF))))})"
_ADDED = re.compile(rf"\n- {ABSENT}: {_ANY}(?:, {_ANY})*\Z")


def _missing(fields: Iterable[str]) -> list[str]:
    named = ", ".join(fields)
    return [f"- {ABSENT}: {named}"] if named else []


def absent(category: str, section: str) -> str:
    """Return the text that a file shows in a section without content."""
    missing = "".join(_missing(templates.required(category, section))) or ABSENT
    if section == "Commit Analysis":
        return f"### Major Commits\n{ABSENT}\n\n### Pattern Insights\n{missing}"
    return missing


_ABSENT = {ABSENT, *(absent(category, section) for category, of_kind in templates.OF.items() for section in of_kind)}


def is_absent(text: str) -> bool:
    """Return whether a section of a file only says that there is no content."""
    return text in _ABSENT


def completed(text: str, category: str, section: str) -> str:
    """Return the text of a section as the file shows it. The names of fields are bold if they are bold in the template.
    A last line lists the fields without a value."""
    found = set(_FIELD.findall(text))
    if not found & templates.fields(category):
        return text
    if category == _BOLD:
        text = _FIELD.sub(lambda line: f"- **{line[1]}**:" if line[1] in templates.fields(category) else line[0], text)
    missing = [] if f"\n- {ABSENT}" in text else templates.required(category, section)
    return "\n".join([text, *_missing(field for field in missing if field not in found)])


def stored(text: str, *, is_bold: bool) -> str:
    """Reverse `completed`: turn the text of a section in a file back into the text in the memory. A text
    such as `Not recorded` stays as it is."""
    if is_absent(text):
        return text
    text = _ADDED.sub("", text)
    return _IN_BOLD.sub(r"- \1:", text) if is_bold else text


def with_fact(text: str, category: str, section: str, label: str, value: str) -> str:
    """Return a memory's text with one more field in a section. If the field already has a value, the text does not
    change."""
    found = sections.split(text, category)
    before = found.get(section, "")
    if fact(before, label):
        return text
    found[section] = f"{before}\n- {label}: {value}"
    return sections.join({name: found.get(name, "") for name in sections.names(category)})
