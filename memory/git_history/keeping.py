"""An analysis as a memory: one for each project, said anew when there is more history (seed 004, "Git History
Analysis", steps 2, 11 and 12).

A memory that was discarded, protected or changed since it was written is left as it is, and another one begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from audit.trail import Actor
from memory.git_history import telling
from memory.git_history.analysis import SETTINGS, Analysis, Parts
from memory.git_history.facts import Fact, Limits, packed, unpacked
from memory.models import Agent, HistoryAnalysis, Kind, Memory
from memory.policy import settings_document, switches
from memory.policy.categories import DEFAULT_PROJECT
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.writing import edits, operations
from memory.writing.edits import Edited

CATEGORY = "git_history"
_FIELD = "history"


@dataclass(frozen=True, slots=True)
class Kept:
    """Its memory's number, and whether it is a new one; of one that says the same already `entry` is None."""

    number: int
    is_new: bool
    entry: int | None


def last(agent: Agent, project: str) -> HistoryAnalysis | None:
    return HistoryAnalysis.objects.filter(agent_id=agent.pk, project=project or DEFAULT_PROJECT).first()


def asked(limits: Limits, parts: Parts) -> dict[str, Any]:
    return asdict(limits) | parts.told()


def is_known(agent: Agent, done: HistoryAnalysis, head: str, limits: Limits, parts: Parts) -> bool:
    """Whether this was analysed as it is asked for, and its memory is there as it was written."""
    return (done.head, done.asked) == (head, asked(limits, parts)) and _as_written(agent, done) is not None


def facts_of(agent: Agent, done: HistoryAnalysis | None) -> Mapping[str, Fact]:
    """By commit; none where they were not kept, or cannot be opened any more."""
    if done is None or not done.sealed_facts:
        return {}
    return unpacked(Silo.for_agent(agent).open_text(_FIELD, done.memory, bytes(done.sealed_facts)))


def keep(agent: Agent, project: str, analysis: Analysis, actor: Actor) -> Kept:
    """Raises Invalid, MemoryDisabled, CategoryDisabled."""
    project = project or DEFAULT_PROJECT
    text, tags = telling.told(analysis, project), tags_of(analysis)  # before the agent is locked
    facts = packed(analysis.gathered)
    origin = datetime.fromtimestamp(analysis.gathered.newest.at, UTC)
    with edits.locked(agent) as row:
        before = last(row, project)
        there = _as_written(row, before) if before else None
        edited = _written(row, there, project, text, tags, origin, actor)
        memory = there if there is not None and not edited.memories else edited.memory
        keeps = settings_document.value(switches.rules_of(row), f"{SETTINGS}.cache_analysis_results")
        HistoryAnalysis.objects.update_or_create(
            agent_id=row.pk,
            project=project,
            defaults={
                "head": analysis.head,
                "asked": asked(analysis.limits, analysis.parts),
                "at": timezone.now(),
                "memory": memory.number,
                "version": memory.version,
                "sealed_facts": Silo.for_agent(row).seal_text(_FIELD, memory.number, facts) if keeps else b"",
            },
        )
    return Kept(memory.number, there is None, edited.seq)


def _written(
    row: Agent, there: Memory | None, project: str, text: str, tags: list[str], origin: datetime, actor: Actor
) -> Edited:
    if there is not None:
        return operations.revise(row, there.number, actor, content=text, tags=tags, origin=origin)
    draft = Draft(text, kind=Kind.JOURNAL, category=CATEGORY, project=project, tags=tags, origin=origin)
    return operations.remember(row, [draft], actor)


def _as_written(agent: Agent, done: HistoryAnalysis) -> Memory | None:
    mine = Memory.objects.filter(agent_id=agent.pk, number=done.memory, version=done.version)
    return mine.filter(discarded_at__isnull=True, constitutional=False).first()


def tags_of(analysis: Analysis) -> list[str]:
    """What the head of the file says of it."""
    first, last_one = (
        datetime.fromtimestamp(fact.at, UTC) for fact in (analysis.gathered.oldest, analysis.gathered.newest)
    )
    privacy = f"secrets and addresses{'' if analysis.parts.authors else ' and people'} left out"
    return [
        f"analysis:{telling.KIND}",
        f"range:{first:%Y-%m-%dT%H:%M:%SZ} to {last_one:%Y-%m-%dT%H:%M:%SZ}",
        f"method:{telling.METHOD}",
        f"preserved:{telling.PRESERVED}",
        f"privacy:{privacy}",
    ]
