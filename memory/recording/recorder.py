"""Record interactions. Automatic recording silently skips an interaction if a switch is off. A requested recording
raises an error if a switch is off.

One transaction writes the memories of an interaction, the memory of its topic, and the memory of a session that ends.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

import structlog
from django.utils import timezone

from audit.trail import Actor
from memory.access import authority
from memory.errors import Constitutional, DiscardShare
from memory.models import Agent, Kind, RecordedSession
from memory.policy import paths, settings_document, switches
from memory.policy.validation import Draft
from memory.recording import sessions, topics
from memory.recording.interactions import CATEGORY, Captured, Interaction, capture, contents, is_worth_recording
from memory.recording.texts import cut, reference, short
from memory.writing import edits, operations

log = structlog.get_logger("palimpsest.recording")

REASONS = ("memory_off", "category_off", "recording_off", "below_threshold")


class Recorded(NamedTuple):
    """The result of a recording: the numbers of the memories, or the reason why the interaction was skipped."""

    numbers: tuple[int, ...] = ()
    session: RecordedSession | None = None
    kind: str = ""
    significance: str = ""
    masked: int = 0
    skipped: str | None = None

    @property
    def number(self) -> int | None:
        return self.numbers[0] if self.numbers else None


@dataclass(frozen=True, slots=True, repr=False)
class PreparedInteraction:
    """An interaction that is ready to be recorded. Secrets are masked, and brands are removed. The preparation may take
    a second, so it happens before the agent is locked."""

    agent: Agent
    interaction: Interaction
    requested: bool
    kept: Captured | None = None
    ahead: sessions.Ahead = field(default_factory=dict)
    skipped: str = ""

    def keep(self, agent: Agent, actor: Actor) -> Recorded:
        """Record the interaction. If the agent's memory settings changed after the preparation, the interaction is
        prepared again. Raises the same errors as `record`."""
        if self.kept is None:
            log.info("interaction not recorded", agent=self.agent.pk, reason=self.skipped)
            return Recorded(skipped=self.skipped)
        with edits.locked(agent) as row:
            if (row.memory_enabled, row.rules) == (self.agent.memory_enabled, self.agent.rules):
                return _recorded(row, self.kept, self.ahead, actor)
        return prepare(row, self.interaction, requested=self.requested).keep(row, actor)


def record(agent: Agent, interaction: Interaction, actor: Actor, *, requested: bool = False) -> Recorded:
    """Record an interaction in its session, as journal memories of the category user_interaction.

    A recording that is not `requested` is skipped if a switch is off or if the interaction is below the threshold.
    Raises Invalid. A `requested` recording also raises MemoryDisabled and CategoryDisabled.
    """
    return prepare(agent, interaction, requested=requested).keep(agent, actor)


def prepare(agent: Agent, interaction: Interaction, *, requested: bool = False) -> PreparedInteraction:
    """Prepare an interaction. Raises the same errors as `record`."""
    authority.require(agent)  # with the current settings
    prepared = partial(PreparedInteraction, agent, interaction, requested)
    if reason := _closed(agent, requested=requested):
        return prepared(skipped=reason)
    checked = interaction.checked()
    checked = replace(checked, topic=topics.checked_topic(checked.topic)) if checked.topic else checked
    rules = switches.rules_of(agent)
    if not (requested or is_worth_recording(rules, checked.prompt, checked.response)):
        return prepared(skipped="below_threshold")
    *_, over = sessions.current(agent, checked.session, checked.project, timezone.now())
    return prepared(capture(checked, rules, requested=requested), sessions.read_ahead(agent, over))


def _closed(agent: Agent, *, requested: bool) -> str:
    """If a switch prevents the recording, return the reason, which is one of REASONS. Otherwise return "". If the
    recording is `requested`, raise MemoryDisabled or CategoryDisabled instead of returning a reason."""
    if requested:
        switches.require(agent, CATEGORY)
        return ""
    if not agent.memory_enabled:
        return "memory_off"
    if CATEGORY in switches.closed(agent):
        return "category_off"
    is_recording = settings_document.is_on(switches.rules_of(agent), "auto_recording", "enabled")
    return "" if is_recording else "recording_off"


def _recorded(row: Agent, kept: Captured, ahead: sessions.Ahead, actor: Actor) -> Recorded:
    now = timezone.now()
    session, before = sessions.join(row, kept.interaction.session, kept.interaction.project, actor, now, ahead)
    to, first = partial(_refer, row, session), row.next_number
    previous = to(before.number, before.origin) if before else ""
    texts = contents(kept, session.name, previous=previous, parts_at=lambda place: to(first + place, now))
    besides = sessions.with_follow_up(row, before, to(first, now)) if before else {}
    tags = [sessions.tag_of(session.name), f"kind:{kept.kind}", f"significance:{kept.level}"]
    tags.append(f"preserved:{kept.preserved}")
    tags += [topics.tag_of(kept.interaction.topic)] if kept.interaction.topic else []
    draft = partial(Draft, kind=Kind.JOURNAL, category=CATEGORY, project=session.project, tags=tuple(tags), origin=now)
    drafts = [draft(text) for text in texts]
    edited = operations.remember(row, drafts, actor, besides=besides)
    numbers = [memory.number for memory in edited.memories[-len(drafts) :]]
    sessions.note(session, numbers, now)
    is_tracked = settings_document.is_on(switches.rules_of(row), "categories", "topic", "evolution_tracking")
    if kept.interaction.topic and is_tracked and "topic" not in switches.closed(row):
        _evolve(row, kept, session, actor)
    return Recorded(tuple(numbers), session, kept.kind, kept.level, kept.masked)


def _refer(row: Agent, session: RecordedSession, number: int, at: datetime) -> str:
    return reference(row, number, CATEGORY, session.project, paths.dated(at), within=CATEGORY)


def _evolve(row: Agent, kept: Captured, session: RecordedSession, actor: Actor) -> None:
    """Update the topic's memory. If the update is refused, the interaction is still recorded."""
    interaction = kept.interaction
    question, learning = short(interaction.prompt), cut(interaction.learnings, topics.MOST_OF_AN_ITEM)
    stage = topics.Stage(
        project=session.project,
        session=session.name,
        stage=": ".join(part for part in (kept.kind, interaction.intent or question) if part),
        questions=(question,) if kept.kind == "question" and question else (),
        insights=(learning,) if learning else (),
    )
    try:
        topics.evolve_locked(row, interaction.topic, actor, stage)
    except (Constitutional, DiscardShare, topics.TopicFull) as refused:
        log.info("topic not evolved", agent=row.pk, reason=refused.code)
