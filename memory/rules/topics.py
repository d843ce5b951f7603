"""Topic memories: one for each topic of a project, said anew as the topic goes on (seed 004, "Topic Memory").

What it said before is in the memory's history, which the trail keeps.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from django.utils import timezone

from audit.trail import Actor
from memory import editing, store
from memory.editing import Edited
from memory.errors import Invalid, MemoryDisabled
from memory.intake import MAX_CONTENT, MAX_TAG, Draft, checked_project, checked_words
from memory.models import Agent, Memory
from memory.rules import gate, sections
from memory.rules.categories import DEFAULT_PROJECT
from memory.rules.interactions import UNKNOWN, checked_name, cut, one_line
from memory.rules.masking import masked_together
from memory.rules.neutral import neutral
from memory.silo.silo import Silo

CATEGORY = "topic"
_ITEM, _TEXT, _ITEMS = 300, 1_000, 50  # characters of an item and of a text, items that are given at once
_EARLIER = "Earlier Stages"
_TELLS = re.compile(r"(\d+) in this memory's history")

# Section → its labels; of those in capitals here there is a list.
_LABELS: dict[str, tuple[str, ...]] = {
    "Topic Definition": ("Topic", "Description", "Scope", "Related Topics"),
    "Evolution History": ("First Discussed", _EARLIER, "Development Stages", "Current Understanding Level"),
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
_OPTIONAL = frozenset({_EARLIER, "Notes"})
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
            told[name] = tuple(cut(next(clean), _ITEM) for _ in range(size)) if is_list else cut(next(clean), _TEXT)
        return replace(self, project=checked_project(self.project), session=checked_name(self.session), **told)


def evolve(agent: Agent, topic: str, actor: Actor, stage: Stage | None = None) -> Edited:
    """Make a topic's memory, or say it anew with what is new to it. What is known already is no edit.

    Raises Invalid, MemoryDisabled, CategoryDisabled, Constitutional, DiscardShare.
    """
    name = checked_topic(topic)
    given = (stage or Stage()).checked()
    project = given.project or DEFAULT_PROJECT
    with editing.locked(agent) as row:
        if not row.memory_enabled:
            raise MemoryDisabled
        gate.require_open(row, (CATEGORY,))
        silo = Silo.for_agent(row)
        memory = _found(row, silo, tag_of(name), project)
        if memory is None:
            text = _composed(_added(_read(""), name, given, project))
            return store.remember(row, [Draft(text, category=CATEGORY, project=project, tags=(tag_of(name),))], actor)
        told = _added(_read(silo.open(memory).content), name, given, project)
        return store.revise(row, memory.number, actor, content=_composed(told))


def checked_topic(topic: object) -> str:
    """A topic's name, masked. Raises Invalid."""
    name = neutral(checked_words(topic, "topic"))
    name = masked_together([name])[0][0]
    if not name or len(tag_of(name)) > MAX_TAG:
        raise Invalid("topic", f"must be a name of at most {MAX_TAG - len('topic:')} characters")
    return name


def tag_of(name: str) -> str:
    """By which a topic is found again, however it is written."""
    return "topic:" + " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def short(text: str) -> str:
    """A text on one line, as an item."""
    return cut(" ".join(text[: 4 * _ITEM].split()), 160)


def _found(row: Agent, silo: Silo, tag: str, project: str) -> Memory | None:
    """The topic's memory. Their names are sealed, so that the tags of the project's topics are opened."""
    mine = Memory.objects.filter(agent_id=row.pk, category=CATEGORY, project=project, discarded_at__isnull=True)
    return next((memory for memory in mine.order_by("number") if tag in silo.open_tags(memory)), None)


# --- what it says


def _read(text: str) -> Told:
    """What a memory tells, by label. Lines that somebody wrote otherwise are kept as notes."""
    told: Told = {label: [] for labels in _LABELS.values() for label in labels}
    label = "Notes"
    for section in sections.parted(text, CATEGORY).values():
        for line in section.splitlines():
            found = re.match(r"- ([^:]+):(?: (.*))?\Z", line)
            if found and found[1] in told:
                label = found[1]
                told[label] += [found[2]] if found[2] and found[2] != UNKNOWN else []
            elif line.startswith("  - ") and label in _MANY:
                told[label].append(line[4:])
            elif line.strip():
                told["Notes"].append(cut(" ".join(line.split()), _ITEM))
        label = "Notes"
    return told


def _added(told: Told, name: str, given: Stage, project: str) -> Told:
    where = f"{timezone.now():%Y-%m-%d}" + (f", session {given.session}" if given.session else "")
    told["Topic"] = told["Topic"] or [name]
    told["Project Context"] = [project]
    told["First Discussed"] = told["First Discussed"] or [where]
    for attribute, label in _TEXTS.items():
        told[label] = [getattr(given, attribute)] if getattr(given, attribute) else told[label]
    for attribute, label in _LISTS.items():
        told[label] = _united([*told[label], *getattr(given, attribute)])
    if given.session:
        told["Related Sessions"] = _united([*told["Related Sessions"], given.session])
    if given.stage:
        told["Development Stages"] = _united([*told["Development Stages"], f"{where}: {given.stage}"])
    return told


def _united(texts: Iterable[str]) -> list[str]:
    """Without repeats, whatever their case; the first of each stays."""
    found: dict[str, str] = {}
    for text in texts:
        if text:
            found.setdefault(tag_of(text), text)
    return list(found.values())


class TopicFull(Invalid):
    """A topic's memory has no room for what is new, and nothing in it may give way."""


def _composed(told: Told) -> str:
    """The memory's text. Where it has not room for all, the oldest stages give way, and then the oldest of the longest
    list. Raises TopicFull where nothing can give way any more."""
    while len(text := _as_text(told)) > MAX_CONTENT:
        stages = told["Development Stages"]
        most = stages if len(stages) > 1 else max((told[label] for label in _MANY), key=len)
        if not most:
            raise TopicFull("topic", f"has more than {MAX_CONTENT:,} characters in its memory; say it in fewer")
        del most[0]
        if most is stages:
            told[_EARLIER] = [f"{_earlier(told) + 1} in this memory's history"]
    return text


def _earlier(told: Told) -> int:
    found = _TELLS.match("".join(told[_EARLIER]))
    return int(found[1]) if found else 0


def _as_text(told: Told) -> str:
    return sections.composed(
        {
            section: "\n".join(_line(label, told[label]) for label in labels if told[label] or label not in _OPTIONAL)
            for section, labels in _LABELS.items()
        }
    )


def _line(label: str, texts: list[str]) -> str:
    if label in _MANY and texts:
        return "\n".join([f"- {label}:", *(f"  - {text}" for text in texts)])
    return f"- {label}: {' '.join(texts) or UNKNOWN}"
