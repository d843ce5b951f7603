"""A repository's history as figures (seed 004, "Git History Analysis"): what was covered, and what was found in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from memory.git_history import branches, figures, growth, milestones
from memory.git_history.facts import Deadline, Fact, Gathered, Limits, gathered
from memory.git_history.repository import Repository, readable
from memory.policy import settings_document

SETTINGS = "memory_rules.project_support.git_history_analysis"
_OF_CATEGORY = "memory_rules.categories.git_history"
SHOWN = 10  # of each list


@dataclass(frozen=True, slots=True)
class Parts:
    """What is looked at. Raises nothing: each is a switch of the settings."""

    messages: bool = True
    files: bool = True
    branches: bool = False
    milestones: bool = True
    patterns: bool = True
    authors: bool = False

    @classmethod
    def of(cls, rules: Mapping[str, Any], **asked: bool | None) -> Parts:
        """As the settings have it, but for what was asked for."""
        category = {
            name: settings_document.value(rules, f"{_OF_CATEGORY}.{key}") for name, key in _CATEGORY_SWITCHES.items()
        }
        settings = {name: settings_document.value(rules, f"{SETTINGS}.{key}") for name, key in SWITCHES.items()}
        found = {name: on and category.get(name, True) for name, on in settings.items()}
        return cls(**found | {name: value for name, value in asked.items() if value is not None})

    def told(self) -> dict[str, bool]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


SWITCHES = {
    "messages": "analyze_commit_messages",
    "files": "analyze_file_changes",
    "branches": "track_branch_evolution",
    "milestones": "extract_project_milestones",
    "patterns": "analyze_code_patterns",
    "authors": "include_author_info",
}
_CATEGORY_SWITCHES = {"messages": "analyze_commits", "milestones": "track_milestones", "patterns": "extract_patterns"}


@dataclass(frozen=True, slots=True, repr=False)
class Analysis:
    """What was found. A part that was not looked at, or for which there was no time, is None."""

    head: str
    branch: str
    is_shallow: bool
    limits: Limits
    parts: Parts
    gathered: Gathered
    tags: Mapping[str, tuple[str, ...]]
    velocity: figures.Velocity
    quality: figures.Quality
    types: Counter[str] | None = None
    significant: tuple[figures.Significant, ...] | None = None
    most_changed: tuple[tuple[str, int], ...] | None = None
    together: tuple[figures.Together, ...] | None = None
    authors: tuple[tuple[str, int], ...] | None = None
    merged: tuple[branches.Merged, ...] | None = None
    unmerged: tuple[branches.Open, ...] | None = None
    milestones: milestones.Milestones | None = None
    growth: growth.Growth | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        return self.gathered.facts


def limits_of(rules: Mapping[str, Any], **asked: float | None) -> Limits:
    """As the settings have it, but for what was asked for: days, commits, seconds. Raises Invalid."""
    keys = {
        "days": "max_commit_history_days",
        "commits": "max_commits_to_analyze",
        "seconds": "analysis_timeout_seconds",
    }
    found = {name: settings_document.value(rules, f"{SETTINGS}.{key}") for name, key in keys.items()}
    return Limits(**found | {name: value for name, value in asked.items() if value is not None})


def analysed(
    repository: Repository,
    limits: Limits,
    parts: Parts,
    *,
    now: int,
    known: Mapping[str, Fact] | None = None,
    deadline: Deadline | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Analysis | None:
    """None where there is no commit in the time that is looked at. Raises Invalid for what cannot be read."""
    head, deadline = repository.head, deadline or Deadline(limits.seconds)
    if head is None:
        return None
    found = gathered(
        repository,
        head,
        limits,
        now=now,
        deadline=deadline,
        known=known,
        with_changes=parts.files or parts.patterns,
        progress=progress,
    )
    if not found.facts:
        return None
    with readable():
        return _figures(repository, head, limits, parts, found, deadline)


def _figures(
    repository: Repository, head: str, limits: Limits, parts: Parts, found: Gathered, deadline: Deadline
) -> Analysis:
    facts = found.facts
    tagged = repository.tags() if parts.milestones else []
    tags: defaultdict[str, list[str]] = defaultdict(list)
    for tag in tagged:
        tags[tag.commit].append(tag.name)
    grown = growth.growth(repository, facts, deadline) if parts.patterns else None  # before what may take long
    return Analysis(
        head=head,
        branch=repository.branch,
        is_shallow=repository.is_shallow,
        limits=limits,
        parts=parts,
        gathered=found,
        tags={commit: tuple(names) for commit, names in tags.items()},
        velocity=figures.velocity(facts),
        quality=figures.quality(facts),
        types=figures.types(facts) if parts.messages else None,
        significant=tuple(figures.significant(facts, tags, SHOWN)) if parts.messages else None,
        most_changed=tuple(figures.most_changed(facts, SHOWN)) if parts.files else None,
        together=tuple(figures.together(facts, SHOWN)) if parts.files else None,
        authors=tuple(figures.authors(repository.names(fact.author for fact in facts))) if parts.authors else None,
        merged=tuple(branches.merged(facts)) if parts.branches else None,
        unmerged=tuple(branches.unmerged(repository, facts, deadline)) if parts.branches else None,
        milestones=milestones.milestones(tagged) if parts.milestones else None,
        growth=grown,
    )
