"""Topic memories: one for each topic of a project, said anew as the topic goes on (seed 004, "Topic Memory").

What it said before is in the memory's history, which the trail keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from django.utils import timezone

from audit.trail import Actor
from memory.errors import Invalid
from memory.masking.neutral import neutral
from memory.masking.scanner import masked_together
from memory.models import Agent, Memory
from memory.policy import settings_document, switches
from memory.policy.categories import DEFAULT_PROJECT
from memory.policy.validation import MAX_TAG, Draft, checked_words
from memory.recording import topic_memory
from memory.recording.texts import cut, reference
from memory.recording.topic_memory import CATEGORY, Stage, TopicFull, folded
from memory.silo.silo import Silo
from memory.writing import edits, operations
from memory.writing.edits import Edited

_SHORT = 160  # characters of what was asked, as an item
_CONNECTED = 5  # topics that a session connects one with


def evolve(agent: Agent, topic: str, actor: Actor, stage: Stage | None = None) -> Edited:
    """Make a topic's memory, or say it anew with what is new to it. What is known already is no edit.

    Raises Invalid, MemoryDisabled, CategoryDisabled, Constitutional, DiscardShare.
    """
    name = checked_topic(topic)
    given = (stage or Stage()).checked()
    project = given.project or DEFAULT_PROJECT
    with edits.locked(agent) as row:
        switches.require(row, CATEGORY)
        return go_on(row, name, actor, replace(given, project=project))


def number_of(agent: Agent, topic: str, project: str) -> int | None:
    """Of the topic's memory in a project; None where it has none. Raises Invalid."""
    name = checked_topic(topic)
    memory = _found(agent, Silo.for_agent(agent), [name], project or DEFAULT_PROJECT).get(folded(name))
    return None if memory is None else memory.number


def go_on(row: Agent, name: str, actor: Actor, given: Stage) -> Edited:
    """The same, of an agent that is locked, with a name and a stage that were checked, and masked, before."""
    silo, day = Silo.for_agent(row), f"{timezone.now():%Y-%m-%d}"
    memory = _found(row, silo, [name], given.project).get(folded(name))
    text = topic_memory.gone_on(silo.open(memory).content if memory else "", name, given, day)
    if memory is not None:
        return operations.revise(row, memory.number, actor, content=text)
    draft = Draft(text, category=CATEGORY, project=given.project, tags=(tag_of(name),))
    return operations.remember(row, [draft], actor)


def checked_topic(topic: object) -> str:
    """A topic's name, masked. Raises Invalid."""
    name = neutral(checked_words(topic, "topic"))
    name = masked_together([name])[0][0]
    if not name or len(tag_of(name)) > MAX_TAG:
        raise Invalid("topic", f"must be a name of at most {MAX_TAG - len('topic:')} characters")
    return name


def tag_of(name: str) -> str:
    """By which a topic is found again, however it is written."""
    return f"topic:{folded(name)}"


def short(text: str) -> str:
    """A text on one line, as an item."""
    return cut(" ".join(text[: 8 * _SHORT].split()), _SHORT)


def _found(row: Agent, silo: Silo, names: Iterable[str], project: str) -> dict[str, Memory]:
    """The memories of these topics, by their folded names. They are sealed, so that the tags of all topics of the
    project are opened."""
    wanted = {tag_of(name): folded(name) for name in names}
    mine = Memory.objects.of(row).active().filter(category=CATEGORY, project=project)
    found: dict[str, Memory] = {}
    for memory in mine.order_by("number"):
        for tag in wanted.keys() & set(silo.open_tags(memory)):
            found.setdefault(wanted[tag], memory)
        if len(found) == len(wanted):
            break
    return found


# --- what is told of them in a session's memory, and of the session in theirs


@dataclass(frozen=True, slots=True, repr=False)
class Discussed:
    """The topics of a session: as one went over to another, what each is called, by its name folded, and those that
    have memories."""

    flow: tuple[str, ...] = ()
    titles: dict[str, str] = field(default_factory=dict)
    memories: dict[str, Memory] = field(default_factory=dict)

    def referring(self, row: Agent, session: str, to_session: str) -> dict[int, str]:
        """What their memories say once they refer to the session's, and to those of topics that were talked of right
        before or after them (`cross_topic_linking`)."""
        is_linking = settings_document.is_on(switches.rules_of(row), "categories", CATEGORY, "cross_topic_linking")
        silo, told = Silo.for_agent(row), {}
        for name, memory in self.memories.items():
            connected = [self._reference(row, other) for other in self._beside(name)] if is_linking else []
            before = silo.open(memory).content
            try:
                told[memory.number] = topic_memory.connected(before, f"{session}, {to_session}", connected)
            except TopicFull:
                continue  # it says what it said
        return told

    def _beside(self, name: str) -> list[str]:
        """The topics right before and after a topic, without itself."""
        pairs = list(pairwise(self.flow))
        found = [after for before, after in pairs if before == name]
        found += [before for before, after in pairs if after == name]
        return [each for each in dict.fromkeys(found) if each != name and each in self.memories][:_CONNECTED]

    def _reference(self, row: Agent, name: str) -> str:
        memory = self.memories[name]
        return f"{self.titles[name]}, {reference(row, memory.number, CATEGORY, memory.project, name, within=CATEGORY)}"


def discussed(row: Agent, names: Sequence[str], project: str) -> Discussed:
    """Of an agent that is locked. A topic is called as its memory has it, else as it was written first."""
    titles: dict[str, str] = {}
    for name in names:
        titles.setdefault(folded(name), name)
    flow = tuple(map(folded, names))
    if not titles or CATEGORY in switches.closed(row):
        return Discussed(flow, titles)
    silo = Silo.for_agent(row)
    memories = _found(row, silo, titles, project)
    for name, memory in memories.items():
        titles[name] = topic_memory.title(silo.open(memory).content) or titles[name]
    return Discussed(flow, titles, memories)
