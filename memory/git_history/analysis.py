"""Analyze a repository's history within limits: one walk of the log, and figures of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from memory.errors import Invalid
from memory.git_history import figures, stack
from memory.git_history.figures import DAY, Branches
from memory.git_history.repository import Commit, Repository, Tag, damaged, readable
from memory.policy import settings_document

SETTINGS = "memory_rules.project_support.git_history_analysis"
_CATEGORY = "memory_rules.categories.git_history"
_MOST = {"days": 36_500, "commits": 1_000_000, "seconds": 3_600}
_FOR_COMMITS = 0.8  # share of the time for the walk; the rest is for the figures


@dataclass(frozen=True, slots=True)
class Limits:
    """Days back from now, number of commits, and seconds that the analysis may take. Raises Invalid."""

    days: int
    commits: int
    seconds: float

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            if not 0 < getattr(self, name) <= most:
                raise Invalid(name, f"must be from 1 to {most:,}")


def limits_of(rules: Mapping[str, Any], **asked: float | None) -> Limits:
    """The limits of the settings, with those of `asked` that are not None. Raises Invalid."""
    keys = ("max_commit_history_days", "max_commits_to_analyze", "analysis_timeout_seconds")
    found = {name: settings_document.value(rules, f"{SETTINGS}.{key}") for name, key in zip(_MOST, keys, strict=True)}
    return Limits(**found | {name: value for name, value in asked.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Parts:
    """What is analyzed. Each part is a switch of the settings."""

    messages: bool = True
    files: bool = True
    branches: bool = False
    milestones: bool = True
    patterns: bool = True
    authors: bool = False

    @classmethod
    def of(cls, rules: Mapping[str, Any], **asked: bool | None) -> Parts:
        """The parts that the settings switch on, with those of `asked` that are not None."""
        found = {name: settings_document.value(rules, f"{SETTINGS}.{key}") for name, key in SWITCHES.items()}
        for name, key in _CATEGORY_SWITCHES.items():
            found[name] = found[name] and settings_document.value(rules, f"{_CATEGORY}.{key}")
        return cls(**found | {name: value for name, value in asked.items() if value is not None})

    def off(self) -> list[str]:
        """The settings of the parts that are off."""
        return [SWITCHES[each.name] for each in fields(self) if not getattr(self, each.name)]


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
    """What was found. `facts` are the analyzed commits, newest first. A part that is off, or for which there was no
    time, is None. `is_older`: no commit is within the days, so that the newest ones were analyzed."""

    head: str
    branch: str
    is_shallow: bool
    limits: Limits
    parts: Parts
    facts: tuple[Commit, ...]
    is_complete: bool = True  # no commit was left out because of the limits of commits and seconds
    is_older: bool = False
    tags: tuple[Tag, ...] | None = None
    branches: Branches | None = None
    before: stack.Shape | None = None  # None if the project began within the analyzed time
    now: stack.Shape | None = None
    description: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the main line began within these. A history that was merged into it has its own first commit."""
        return not self.is_shallow and not figures.main_line(self.facts)[-1].parents

    @property
    def newest(self) -> Commit:
        return self.facts[0]

    @property
    def oldest(self) -> Commit:
        return min((fact for fact in self.facts), key=lambda commit: commit.at)


def analyze(
    repository: Repository,
    limits: Limits,
    parts: Parts,
    *,
    now: int,
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[int], None] = lambda _: None,
) -> Analysis | None:
    """None if the repository has no commits. `clock` returns seconds. Raises Invalid if it cannot be read."""
    started = clock()

    def is_late(share: float = 1) -> bool:
        return clock() - started >= limits.seconds * share

    if repository.head is None:
        return None
    if (head := repository.commit(repository.head)) is None:
        raise damaged()
    for since in (now - limits.days * DAY, None):
        facts: list[Commit] = []
        is_complete = True
        for commit in repository.walk(head.id, since, reads_files=parts.files or parts.patterns):
            if len(facts) == limits.commits or (facts and is_late(_FOR_COMMITS)):
                is_complete = False
                break
            facts.append(commit)
            progress(1)
        if facts:
            break
    start = figures.main_line(facts)[-1]
    earlier = repository.commit(start.parents[0]) if start.parents else None
    shape = _shape(repository, head) if parts.patterns and not is_late() else None
    return Analysis(
        head=head.id,
        branch=repository.branch,
        is_shallow=repository.is_shallow,
        limits=limits,
        parts=parts,
        facts=tuple(facts),
        is_complete=is_complete,
        is_older=since is None,
        tags=tuple(repository.tags()) if parts.milestones and not is_late() else None,
        branches=figures.branches(repository, facts, is_late) if parts.branches else None,
        before=_shape(repository, earlier) if shape and earlier and not is_late() else None,
        now=shape,
        description=_description(repository, head, shape.readme) if shape else "",
    )


def _description(repository: Repository, head: Commit, readme: str) -> str:
    texts = [repository.content(head, path) for path in (readme, *stack.MANIFESTS)]
    return stack.description(texts[0], texts[1:])


def _shape(repository: Repository, commit: Commit) -> stack.Shape | None:
    """None if the tree is not in this clone."""
    try:
        with readable():
            return stack.shape(repository, commit)
    except KeyError:
        return None
