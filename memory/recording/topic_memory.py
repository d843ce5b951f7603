"""What a topic's memory says (seed 004, "Topic Memory Template"), and how what is new is added to it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from memory.errors import Invalid
from memory.markdown import sections
from memory.masking.neutral import neutral
from memory.masking.scanner import masked_together
from memory.policy.names import checked_project
from memory.policy.validation import MAX_CONTENT
from memory.recording.interactions import checked_name, cut, one_line

CATEGORY = "topic"
MOST_OF_AN_ITEM = 300  # characters
_TEXT, _ITEMS = 1_000, 50  # characters of a text, items that are given at once
_EARLIER, _EARLIER_ITEMS = "Earlier Stages", "Earlier Items"
_REFERENCE = re.compile(r", \[?memory \d+(?:\]\([^()]*\))?\Z")  # as `references` has them
_TELLS = re.compile(r"(\d+) in this memory's history")

# Section → its labels; of those in _MANY there is a list.
_LABELS: dict[str, tuple[str, ...]] = {
    "Topic Definition": ("Topic", "Description", "Scope", "Related Topics"),
    "Evolution History": (
        "First Discussed",
        _EARLIER,
        _EARLIER_ITEMS,
        "Development Stages",
        "Current Understanding Level",
    ),
    "User Interaction Patterns": (
        "Common Questions",
        "Preferred Approaches",
        "Expertise Level",
        "Communication Style",
    ),
    "Key Insights": ("Important Concepts", "Best Practices", "Pitfalls to Avoid", "Resources Referenced", "Notes"),
    "Cross-References": ("Related Sessions", "Connected Topics", "Project Context"),
}
_LISTS = {
    "related": "Related Topics",
    "questions": "Common Questions",
    "approaches": "Preferred Approaches",
    "insights": "Important Concepts",
    "practices": "Best Practices",
    "pitfalls": "Pitfalls to Avoid",
    "resources": "Resources Referenced",
}
_TEXTS = {
    "definition": "Description",
    "scope": "Scope",
    "level": "Current Understanding Level",
    "expertise": "Expertise Level",
    "style": "Communication Style",
}
_MANY = frozenset({*_LISTS.values(), "Development Stages", "Notes", "Related Sessions", "Connected Topics"})
_OPTIONAL = frozenset({_EARLIER, _EARLIER_ITEMS, "Notes"})
Told = dict[str, list[str]]  # label → what is told under it


@dataclass(frozen=True, slots=True, repr=False)
class Stage:
    """What there is new to a topic. Texts take the place of what was said, lists go on."""

    project: str = ""
    session: str = ""
    stage: str = ""
    definition: str = ""
    scope: str = ""
    level: str = ""
    expertise: str = ""
    style: str = ""
    related: tuple[str, ...] = field(default=())
    questions: tuple[str, ...] = field(default=())
    approaches: tuple[str, ...] = field(default=())
    insights: tuple[str, ...] = field(default=())
    practices: tuple[str, ...] = field(default=())
    pitfalls: tuple[str, ...] = field(default=())
    resources: tuple[str, ...] = field(default=())

    def checked(self) -> Stage:
        """The same, on one line each, neutral and masked. Raises Invalid."""
        names = [each.name for each in fields(self) if each.name not in ("project", "session")]
        texts: list[str] = []
        sizes: list[int] = []
        for name in names:
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) > _ITEMS:
                raise Invalid(name, f"are {len(value)}; at most {_ITEMS} are allowed at once")
            given = value if isinstance(value, tuple) else (value,)
            texts += [neutral(one_line(each, name, _TEXT)) for each in given]
            sizes.append(len(given))
        clean = iter(masked_together(texts)[0])
        told: dict[str, Any] = {}
        for name, size in zip(names, sizes, strict=True):
            is_list = isinstance(getattr(self, name), tuple)
            told[name] = (
                tuple(cut(next(clean), MOST_OF_AN_ITEM) for _ in range(size)) if is_list else cut(next(clean), _TEXT)
            )
        return replace(self, project=checked_project(self.project), session=checked_name(self.session), **told)


def folded(name: str) -> str:
    """A name as it is compared: without case, Unicode form, blanks, and marks that nobody sees."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).casefold()
    seen = "".join(letter for letter in plain if unicodedata.category(letter) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", seen).split())


def gone_on(text: str, name: str, given: Stage, day: str) -> str:
    """What a topic's memory says with what is new to it. `text` is what it said, "" where it begins. Raises
    TopicFull."""
    told = _read(text)
    where = f"{day}, session {given.session}" if given.session else day
    told["Topic"] = told["Topic"] or [name]
    told["Project Context"] = [given.project]
    told["First Discussed"] = told["First Discussed"] or [where]
    for attribute, label in _TEXTS.items():
        told[label] = [getattr(given, attribute)] if getattr(given, attribute) else told[label]
    for attribute, label in _LISTS.items():
        told[label] = _united([*told[label], *getattr(given, attribute)])
    if given.session:
        told["Related Sessions"] = _united([*told["Related Sessions"], given.session])
    if given.stage:
        told["Development Stages"] = _united([*told["Development Stages"], f"{where}: {given.stage}"])
    return _composed(told)


def connected(text: str, session: str, topics: Iterable[str]) -> str:
    """What it says with references to a session's memory and to those of topics. Raises TopicFull."""
    told = _read(text)
    told["Related Sessions"] = _united([*told["Related Sessions"], session])
    told["Connected Topics"] = _united([*told["Connected Topics"], *topics])
    return _composed(told)


def title(text: str) -> str:
    """The topic's name, as it was written first."""
    return " ".join(_read(text)["Topic"])


def _read(text: str) -> Told:
    """What a memory tells, by label. Lines that somebody wrote otherwise are kept as notes."""
    told: Told = {label: [] for labels in _LABELS.values() for label in labels}
    for section in sections.parted(text, CATEGORY).values():
        label = "Notes"
        for line in section.splitlines():
            found = re.match(r"- ([^:]+):(?: (.*))?\Z", line)
            if found and found[1] == sections.ABSENT:
                label = "Notes"
            elif found and found[1] in told:
                label = found[1]
                told[label] += [found[2]] if found[2] else []
            elif line.startswith("  - ") and label in _MANY:
                told[label].append(line[4:])
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
    """A topic's memory has no room for what is new, and nothing in it may give way."""


def _composed(told: Told) -> str:
    """The memory's text. Where it has not room for all, the oldest stages give way, and then the oldest of the longest
    list; how many did is told. Raises TopicFull where nothing can give way any more."""
    while len(text := _as_text(told)) > MAX_CONTENT:
        stages = told["Development Stages"]
        most = stages if len(stages) > 1 else max((told[label] for label in _MANY), key=len)
        if not most:
            raise TopicFull("topic", f"has more than {MAX_CONTENT:,} characters in its memory; say it in fewer")
        del most[0]
        label = _EARLIER if most is stages else _EARLIER_ITEMS
        told[label] = [f"{_earlier(told[label]) + 1} in this memory's history"]
    return text


def _earlier(told: list[str]) -> int:
    found = _TELLS.match("".join(told))
    return int(found[1]) if found else 0


def _as_text(told: Told) -> str:
    return sections.composed(
        {
            section: _section({label: told[label] for label in labels if told[label] or label not in _OPTIONAL})
            for section, labels in _LABELS.items()
        }
    )


def _section(told: Told) -> str:
    """Each label that has something under it."""
    return "\n".join(_line(label, texts) for label, texts in told.items() if texts)


def _line(label: str, texts: list[str]) -> str:
    if label in _MANY:
        return "\n".join([f"- {label}:", *(f"  - {text}" for text in texts)])
    return f"- {label}: {' '.join(texts)}"
