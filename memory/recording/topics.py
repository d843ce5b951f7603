"""Store topics as memories. Each topic of a project has one memory. New information about the topic is added to this
memory. Earlier texts stay in the audit trail."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, chain, pairwise
from typing import Self

from django.utils import timezone

from audit.trail import Actor
from memory.errors import Invalid
from memory.markdown import sections, templates
from memory.masking.neutral import neutral
from memory.masking.scanner import masked_together
from memory.models import Agent, Kind, Memory
from memory.policy import settings_document, switches
from memory.policy.categories import DEFAULT_PROJECT
from memory.policy.validation import MAX_CONTENT, MAX_TAG, Draft, checked_project, checked_words
from memory.recording.texts import checked_name, cleaned, cut, reference
from memory.search.words import nfkc
from memory.silo.silo import Silo
from memory.writing import edits, operations

CATEGORY = "topic"
MOST_OF_AN_ITEM = 300  # characters
_MOST_OF_A_TEXT, _MOST_ITEMS = 1_000, 50  # characters of a text, and items in one call
_REFERENCE = re.compile(r", \[?memory \d+(?:\]\([^()]*\))?\Z")  # the form that the function `reference` returns
_COUNT = re.compile(r"(\d{1,9}) in this memory's history")
# Attribute of a stage → its field. A text replaces the earlier text.
_TEXTS = {
    "definition": "Description",
    "scope": "Scope",
    "level": "Current Understanding Level",
    "expertise": "Expertise Level",
    "style": "Communication Style",
}
# Items are added to the earlier list.
_ITEMS = {
    "related": "Related Topics",
    "questions": "Common Questions",
    "approaches": "Preferred Approaches",
    "insights": "Important Concepts",
    "practices": "Best Practices",
    "pitfalls": "Pitfalls to Avoid",
    "resources": "Resources Referenced",
}
_LISTS = (*_ITEMS.values(), "Development Stages", "Notes", "Related Sessions", "Connected Topics")
Values = dict[str, list[str]]  # field → its texts


@dataclass(frozen=True, slots=True, repr=False)
class Stage:
    """New information about a topic."""

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

    def checked(self) -> Self:
        """Return a copy in which each text is on one line. Secrets are masked, and brands are removed. Raises
        Invalid."""
        project, session = checked_project(self.project), checked_name(self.session)
        values = {name: value for name, value in asdict(self).items() if name not in ("project", "session")}
        for name, value in values.items():
            if isinstance(value, tuple) and len(value) > _MOST_ITEMS:
                raise Invalid(name, f"has {len(value)} items; at most {_MOST_ITEMS} are allowed at once")
        clean = cleaned(values, _MOST_OF_A_TEXT)
        clean |= {name: tuple(cut(item, MOST_OF_AN_ITEM) for item in clean[name]) for name in _ITEMS}
        return replace(self, project=project, session=session, **clean)


def folded(name: str) -> str:
    """Return the normalized form of a name. Names are compared in this form. Case, Unicode variants, extra spaces and
    invisible characters make no difference."""
    plain = nfkc(nfkc(name).casefold()).casefold()
    seen = "".join(letter for letter in plain if unicodedata.category(letter) != "Cf")
    return " ".join(nfkc(seen).split())


def evolved(text: str, name: str, stage: Stage, day: str) -> str:
    """Add a new stage to the text of a topic's memory, and return the new text. `text` is the current memory, or "" for
    a new topic. Raises TopicFull."""
    values = _read(text)
    where = f"{day}, session {stage.session}" if stage.session else day
    values["Topic"] = values["Topic"] or [name]
    values["Project Context"] = [stage.project]
    values["First Discussed"] = values["First Discussed"] or [where]
    for attribute, field in _TEXTS.items():
        if value := getattr(stage, attribute):
            values[field] = [value]
    for attribute, field in _ITEMS.items():
        values[field] = _united([*values[field], *getattr(stage, attribute)])
    values["Related Sessions"] = _united([*values["Related Sessions"], stage.session])
    if stage.stage:
        values["Development Stages"] = _united([*values["Development Stages"], f"{where}: {stage.stage}"])
    return _composed(values)


def connected(text: str, session: str, topics: Iterable[str]) -> str:
    """Return the text of a topic's memory with references to a session and to other topics. Raises TopicFull."""
    values = _read(text)
    values["Related Sessions"] = _united([*values["Related Sessions"], session])
    values["Connected Topics"] = _united([*values["Connected Topics"], *topics])
    return _composed(values)


def title(text: str) -> str:
    """Return the topic's name as it was first spelled."""
    return " ".join(_read(text)["Topic"])


def _read(text: str) -> Values:
    """Return the texts of each field in a topic's memory. A line that belongs to no field is added to the field
    `Notes`."""
    values: Values = {field: [] for field in chain(*templates.OF[CATEGORY].values())}
    for section in sections.split(text, CATEGORY).values():
        current = "Notes"
        for line in section.splitlines():
            found = re.match(r"- ([^:]+):(?: (.*))?\Z", line)
            if found and found[1] == sections.ABSENT:
                current = "Notes"
            elif found and found[1] in values:
                current = found[1]
                values[current] += [found[2]] if found[2] else []
            elif line.startswith("  - ") and current in _LISTS:
                values[current].append(line[4:])
            elif line.strip():
                values["Notes"].append(cut(" ".join(line.split()), MOST_OF_AN_ITEM))
    return values


def _united(texts: Iterable[str]) -> list[str]:
    """Return the texts without duplicates. Texts with the same normalized form are duplicates, and the first text is
    kept. However, a later text with a reference replaces the first text."""
    found: dict[str, str] = {}
    for text in filter(None, texts):
        key = folded(_REFERENCE.sub("", text))
        found[key] = text if key not in found or _REFERENCE.search(text) else found[key]
    return list(found.values())


class TopicFull(Invalid):
    """Error: A topic's memory is too long, and has no list items to remove."""


def _composed(values: Values) -> str:
    """Return the text of a topic's memory. While this text is too long, remove the oldest stages except the last one,
    and then the oldest items of the longest other list. The text states how many stages and items were removed. Raises
    TopicFull if nothing can be removed."""
    stages = values["Development Stages"]
    others = [values[field] for field in _LISTS if values[field] is not stages]
    while len(text := _as_text(values)) > MAX_CONTENT:
        longest = stages if len(stages) > 1 else max(others, key=len)
        if not longest:
            raise TopicFull("topic", f"needs more than {MAX_CONTENT:,} characters in its memory; shorten the text")
        excess, count = len(text) - MAX_CONTENT, 0
        while excess > 0 and count < len(longest) - (longest is stages):
            excess -= len(longest[count]) + len("  - \n")
            count += 1
        del longest[:count]
        field = "Earlier Stages" if longest is stages else "Earlier Items"
        before = _COUNT.match("".join(values[field]))
        values[field] = [f"{count + (int(before[1]) if before else 0)} in this memory's history"]
    return text


def _as_text(values: Values) -> str:
    found = {
        section: "\n".join(_line(field, values[field]) for field in fields if values[field])
        for section, fields in templates.OF[CATEGORY].items()
    }
    return sections.join(found)


def _line(field: str, texts: list[str]) -> str:
    if field in _LISTS:
        return "\n".join([f"- {field}:", *(f"  - {text}" for text in texts)])
    return f"- {field}: {' '.join(texts)}"


# --- storing topics


_MOST, _MOST_BYTES = 1_000, 4_000_000  # topics of a project that are looked through, in a tenth of a second at most
_LISTED = 20_000  # topics of a project, of which the newest are looked through
_REFERRING, _REFERRING_BYTES = 50, 50_000  # topics that refer to one session, and their size: a fifth of a second
_CONNECTED = 5  # number of topics that one session connects with a topic


def evolve(agent: Agent, topic: str, actor: Actor, stage: Stage | None = None) -> edits.Edited:
    """Create the memory of a topic, or add new information to it. If `stage` has nothing new, the memory is not edited.
    Raises Invalid, MemoryDisabled, CategoryDisabled, Constitutional, DiscardShare."""
    name = checked_topic(topic)
    stage = (stage or Stage()).checked()
    with edits.locked(agent) as row:
        switches.require(row, CATEGORY)
        return evolve_locked(row, name, actor, replace(stage, project=stage.project or DEFAULT_PROJECT))


def number_of(agent: Agent, topic: str, project: str) -> int | None:
    """Return the memory number (the identifier) of a project's topic, or None if it has no memory. Raises Invalid."""
    name = checked_topic(topic)
    memory = _found(agent, Silo.for_agent(agent), [name], project or DEFAULT_PROJECT).get(folded(name))
    return None if memory is None else memory.number


def evolve_locked(row: Agent, name: str, actor: Actor, stage: Stage) -> edits.Edited:
    """Do the same as `evolve` for an agent whose row is locked. The caller must first check `name` and `stage`."""
    silo, day = Silo.for_agent(row), f"{timezone.now():%Y-%m-%d}"
    memory = _found(row, silo, [name], stage.project).get(folded(name))
    text = evolved(silo.open(memory).content if memory else "", name, stage, day)
    if memory is not None:
        return operations.revise(row, memory.number, actor, content=text)
    draft = Draft(text, category=CATEGORY, project=stage.project, tags=(tag_of(name),))
    return operations.remember(row, [draft], actor)


def checked_topic(topic: object) -> str:
    """Check a topic's name. Return the name without brands and with secrets masked. Raises Invalid."""
    name = neutral(checked_words(topic, "topic"))
    name = masked_together([name])[0][0]
    if not name or len(tag_of(name)) > MAX_TAG:
        raise Invalid("topic", f"must be a name of at most {MAX_TAG - len('topic:')} characters")
    return name


def tag_of(name: str) -> str:
    """Return the tag of a topic. The tag is the same for every spelling of the name."""
    return f"topic:{folded(name)}"


def _found(row: Agent, silo: Silo, names: Iterable[str], project: str) -> dict[str, Memory]:
    """Return the memories of these topics. The keys of the dict are the normalized names of the topics. Tags are
    encrypted, so the tags of the project's topics are opened one after the other until all memories are found. Only the
    topics that changed last are looked through, because the agent is locked."""
    wanted = {tag_of(name): folded(name) for name in names}
    # With both kinds and in no order, SQLite uses the index of categories. Otherwise, it reads all memories.
    mine = Memory.objects.of(row).active().filter(kind__in=Kind.values, category=CATEGORY, project=project)
    versions = mine.values_list("version", "number")[:_LISTED]
    numbers = [number for version, number in sorted(versions, key=lambda each: (-each[0], each[1]))[:_MOST]]
    found: dict[str, Memory] = {}
    size = 0
    parts = (numbers[start : start + 50] for start in range(0, len(numbers), 50))
    for memory in chain.from_iterable(edits.fetch(row, part) for part in parts):
        for tag in wanted.keys() & set(silo.open_tags(memory)):
            found.setdefault(wanted[tag], memory)
        size += len(memory.sealed)
        if len(found) == len(wanted) or size > _MOST_BYTES:
            break
    return found


# --- references between sessions and topics


@dataclass(frozen=True, slots=True, repr=False)
class Discussed:
    """The topics of a session. A topic is identified by its normalized name. `flow` has the topics in order. `titles`
    has the title of each topic. `memories` has the topics' memories, as far as these exist."""

    flow: tuple[str, ...]
    titles: dict[str, str]
    memories: dict[str, Memory]

    def referring(self, row: Agent, session: str, to_session: str) -> dict[int, str]:
        """Make a new text for each topic's memory: add a reference to the session. If `cross_topic_linking` is on, also
        add references to the topics that were discussed directly before and after this topic. Return a dict from the
        memories' numbers to the new texts."""
        is_linking = settings_document.is_on(switches.rules_of(row), "categories", CATEGORY, "cross_topic_linking")
        silo, texts = Silo.for_agent(row), {}
        for name, memory in self.memories.items():
            others = [self._reference(row, other) for other in self._beside(name)] if is_linking else []
            before = silo.open(memory).content
            try:
                texts[memory.number] = connected(before, f"{session}, {to_session}", others)
            except TopicFull:
                continue  # this topic's memory does not change
        return texts

    def _beside(self, name: str) -> list[str]:
        """Return the topics that were discussed directly before or after a topic. Only topics with a memory are
        returned."""
        pairs = list(pairwise(self.flow))
        found = [after for before, after in pairs if before == name]
        found += [before for before, after in pairs if after == name]
        return [each for each in dict.fromkeys(found) if each != name and each in self.memories][:_CONNECTED]

    def _reference(self, row: Agent, name: str) -> str:
        memory = self.memories[name]
        return f"{self.titles[name]}, {reference(row, memory.number, CATEGORY, memory.project, name, within=CATEGORY)}"


def discussed(row: Agent, names: Sequence[str], project: str) -> Discussed:
    """Return the topics of a session. The caller must hold the lock on the agent's row. The title of a topic is read
    from its memory. If a topic has no memory, its title is its first spelling in `names`."""
    titles: dict[str, str] = {}
    for name in names:
        titles.setdefault(folded(name), name)
    flow = tuple(map(folded, names))
    if not titles or CATEGORY in switches.closed(row):
        return Discussed(flow, titles, {})
    silo = Silo.for_agent(row)
    found = _found(row, silo, list(titles)[-_REFERRING:], project)
    sizes = accumulate(len(memory.sealed) for memory in found.values())
    memories = {name: found[name] for name, size in zip(found, sizes, strict=True) if size <= _REFERRING_BYTES}
    for name, memory in memories.items():
        titles[name] = title(silo.open(memory).content) or titles[name]
    return Discussed(flow, titles, memories)
