"""Store an analysis as a memory. Each project has one such memory. The next analysis rewrites this memory.

If somebody discarded, protected or changed the memory, the next analysis stores a new memory and leaves the old one
unchanged.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from django.utils import timezone

from audit.trail import Actor
from memory.git_history import report
from memory.git_history.analysis import SETTINGS, Analysis, Limits, Parts, moment
from memory.models import Agent, HistoryAnalysis, Kind, Memory
from memory.policy import settings_document
from memory.policy.categories import DEFAULT_PROJECT
from memory.policy.validation import Draft
from memory.writing import edits, operations

CATEGORY = "git_history"


class Stored(NamedTuple):
    """The result of `store`: the number of the memory, and whether the memory is new."""

    number: int
    is_new: bool


def last(agent: Agent, project: str) -> HistoryAnalysis | None:
    return HistoryAnalysis.objects.filter(agent_id=agent.pk, project=project or DEFAULT_PROJECT).first()


def is_current(
    agent: Agent, done: HistoryAnalysis, head: str, limits: Limits, parts: Parts, rules: Mapping[str, Any]
) -> bool:
    """Return whether the analysis `done` is still current. To be current, it must have analyzed this head with the same
    limits and parts, and its memory must be unchanged. Return False if caching is off in the settings."""
    if not settings_document.value(rules, f"{SETTINGS}.cache_analysis_results"):
        return False
    return (done.head, done.asked) == (head, _request(limits, parts)) and _unchanged(agent, done) is not None


def store(agent: Agent, project: str, analysis: Analysis, actor: Actor) -> Stored:
    """Store an analysis as the project's memory. Raises Invalid, MemoryDisabled, CategoryDisabled."""
    project = project or DEFAULT_PROJECT
    text, tags = report.render(analysis, project), tags_of(analysis)  # slow, so before the agent is locked
    origin = moment(analysis.newest.at)
    with edits.locked(agent) as row:
        done = last(row, project)
        existing = _unchanged(row, done) if done else None
        if existing is not None:
            edited = operations.revise(row, existing.number, actor, content=text, tags=tags, origin=origin)
        else:
            draft = Draft(text, kind=Kind.JOURNAL, category=CATEGORY, project=project, tags=tags, origin=origin)
            edited = operations.remember(row, [draft], actor)
        memory = existing if existing is not None and not edited.memories else edited.memory
        values = {"head": analysis.head, "asked": _request(analysis.limits, analysis.parts), "at": timezone.now()}
        values |= {"memory": memory.number, "version": memory.version}
        HistoryAnalysis.objects.update_or_create(agent_id=row.pk, project=project, defaults=values)
    return Stored(memory.number, existing is None)


def _request(limits: Limits, parts: Parts) -> dict[str, Any]:
    return asdict(limits) | asdict(parts)


def _unchanged(agent: Agent, done: HistoryAnalysis) -> Memory | None:
    """Return the memory of an analysis, or None if somebody discarded, protected or changed it. SQL may have set
    another number."""
    found = Memory.objects.of(agent).active().filter(number=done.memory, version=done.version, constitutional=False)
    return found.filter(kind=Kind.JOURNAL, category=CATEGORY, project=done.project).first()


def tags_of(analysis: Analysis) -> list[str]:
    """Return the tags of the memory. The file of the memory shows their values in its first section and in the section
    "Migration Information"."""
    first, newest = (moment(commit.at) for commit in (analysis.oldest, analysis.newest))
    return [
        "analysis:history",
        f"range:{first:%Y-%m-%dT%H:%M:%SZ} to {newest:%Y-%m-%dT%H:%M:%SZ}",
        "method:log, tags, branches and trees, read with dulwich",
        "preserved:figures and commits; the repository has the rest",
        f"privacy:secrets and addresses{'' if analysis.parts.authors else ' and people'} left out",
    ]
