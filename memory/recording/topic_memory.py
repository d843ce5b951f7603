"""What a topic's memory says (seed 004, "Topic Memory Template"), and how what is new is added to it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain

from memory.errors import Invalid
from memory.markdown import sections, templates
from memory.policy.validation import MAX_CONTENT, checked_project
from memory.recording.texts import checked_name, cleaned, cut

CATEGORY = "topic"
MOST_OF_AN_ITEM = 300  # characters
_TEXT, _ITEMS = 1_000, 50  # characters of a text, items that are given at once
_EARLIER, _EARLIER_ITEMS = "Earlier Stages", "Earlier Items"
_REFERENCE = re.compile(r", \[?memory \d+(?:\]\([^()]*\))?\Z")  # as `references` writes them
_COUNT = re.compile(r"(\d+) in this memory's history")
# Attribute of a stage → its field. A text replaces the earlier one; items are added to a list.
_FIELDS = {
    "definition": "Description",
    "scope": "Scope",
    "level": "Current Understanding Level",
    "expertise": "Expertise Level",
    "style": "Communication Style",
    "related": "Related Topics",
    "questions": "Common Questions",
    "approaches": "Preferred Approaches",
    "insights": "Important Concepts",
    "practices": "Best Practices",
    "pitfalls": "Pitfalls to Avoid",
    "resources": "Resources Referenced",
}
_LISTS = (
    *("Related Topics", "Common Questions", "Preferred Approaches", "Important Concepts", "Best Practices"),
    *("Pitfalls to Avoid", "Resources Referenced", "Development Stages", "Notes", "Related Sessions"),
    "Connected Topics",
)
Told = dict[str, list[str]]  # field → its texts


@dataclass(frozen=True, slots=True, repr=False)
class Stage:
    """What is new about a topic."""

    project: str = ""
    session: str = ""
    stage: str = ""
    definition: str = ""
    scope: str = ""
    level: str = ""
    expertise: str = ""
    style: str = ""
    related: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    approaches: tuple[str, ...] = ()
    insights: tuple[str, ...] = ()
    practices: tuple[str, ...] = ()
    pitfalls: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()

    def checked(self) -> Stage:
        """The same, on one line each, neutral and masked. Raises Invalid."""
        project, session = checked_project(self.project), checked_name(self.session)
        values = {name: value for name, value in asdict(self).items() if name not in ("project", "session")}
        for name, value in values.items():
            if isinstance(value, tuple) and len(value) > _ITEMS:
                raise Invalid(name, f"are {len(value)}; at most {_ITEMS} are allowed at once")
        clean = cleaned(values, _TEXT)
        for name, value in clean.items():
            if isinstance(value, tuple):
                clean[name] = tuple(cut(item, MOST_OF_AN_ITEM) for item in value)
        return Stage(project, session, **clean)


def folded(name: str) -> str:
    """A name as it is compared: without case, Unicode form, blanks, and marks that nobody sees."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).casefold()
    seen = "".join(letter for letter in plain if unicodedata.category(letter) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", seen).split())


def gone_on(text: str, name: str, given: Stage, day: str) -> str:
    """A topic's memory with what is new. `text` is the memory, "" for a new one. Raises TopicFull."""
    told = _read(text)
    where = f"{day}, session {given.session}" if given.session else day
    told["Topic"] = told["Topic"] or [name]
    told["Project Context"] = [given.project]
    told["First Discussed"] = told["First Discussed"] or [where]
    for attribute, field in _FIELDS.items():
        value = getattr(given, attribute)
        if field in _LISTS:
            told[field] = _united([*told[field], *value])
        elif value:
            told[field] = [value]
    told["Related Sessions"] = _united([*told["Related Sessions"], given.session])
    if given.stage:
        told["Development Stages"] = _united([*told["Development Stages"], f"{where}: {given.stage}"])
    return _composed(told)


def connected(text: str, session: str, topics: Iterable[str]) -> str:
    """A topic's memory with references to a session and to other topics. Raises TopicFull."""
    told = _read(text)
    told["Related Sessions"] = _united([*told["Related Sessions"], session])
    told["Connected Topics"] = _united([*told["Connected Topics"], *topics])
    return _composed(told)


def title(text: str) -> str:
    """The topic's name, as it was written first."""
    return " ".join(_read(text)["Topic"])


def _read(text: str) -> Told:
    """The texts of each field. Lines that somebody wrote otherwise are kept as notes."""
    told: Told = {field: [] for field in chain(*templates.OF[CATEGORY].values())}
    for section in sections.parted(text, CATEGORY).values():
        current = "Notes"
        for line in section.splitlines():
            found = re.match(r"- ([^:]+):(?: (.*))?\Z", line)
            if found and found[1] == sections.ABSENT:
                current = "Notes"
            elif found and found[1] in told:
                current = found[1]
                told[current] += [found[2]] if found[2] else []
            elif line.startswith("  - ") and current in _LISTS:
                told[current].append(line[4:])
            elif line.strip():
                told["Notes"].append(cut(" ".join(line.split()), MOST_OF_AN_ITEM))
    return told


def _united(texts: Iterable[str]) -> list[str]:
    """Without repeats, whatever their case; each as it was written first, and with its reference once it has one."""
    found: dict[str, str] = {}
    for text in filter(None, texts):
        key = folded(_REFERENCE.sub("", text))
        found[key] = text if key not in found or _REFERENCE.search(text) else found[key]
    return list(found.values())


class TopicFull(Invalid):
    """A topic's memory has no room for what is new, and no item that could be left out."""


def _composed(told: Told) -> str:
    """The memory's text. If it is too long, the oldest stages are left out, then the oldest items of the longest list,
    and the text says how many. Raises TopicFull if nothing is left to leave out."""
    while len(text := _as_text(told)) > MAX_CONTENT:
        stages = told["Development Stages"]
        longest = stages if len(stages) > 1 else max((told[field] for field in _LISTS), key=len)
        if not longest:
            raise TopicFull("topic", f"has more than {MAX_CONTENT:,} characters in its memory; say it in fewer")
        del longest[0]
        field = _EARLIER if longest is stages else _EARLIER_ITEMS
        before = _COUNT.match("".join(told[field]))
        told[field] = [f"{int(before[1]) + 1 if before else 1} in this memory's history"]
    return text


def _as_text(told: Told) -> str:
    found = {
        section: "\n".join(_line(field, told[field]) for field in fields if told[field])
        for section, fields in templates.OF[CATEGORY].items()
    }
    return sections.composed(found)


def _line(field: str, texts: list[str]) -> str:
    if field in _LISTS:
        return "\n".join([f"- {field}:", *(f"  - {text}" for text in texts)])
    return f"- {field}: {' '.join(texts)}"
