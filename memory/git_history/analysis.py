"""Analyze the git history of a repository, up to the given limits. The log is read once.

The figures can be checked with `git log`. Days and weeks are in UTC.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any, NamedTuple, Self

from dulwich.diff_tree import CHANGE_ADD, CHANGE_MODIFY

from memory.errors import Invalid
from memory.git_history import stack
from memory.git_history.messages import MINOR
from memory.git_history.repository import Commit, Repository, Tag, damaged, readable
from memory.policy import settings_document

DAY = 86_400  # seconds
LONG = 14  # days after which a branch is long-lived
_WIDE, _SEVERAL = 20, 3  # a wide commit changes at least 20 files; a small fix changes fewer than 3
_LATEST = 3  # to list N decisions, the latest 3 * N decisions are compared
_SCORES = {"feature": 2, "revert": 2, "refactoring": 1, "fix": 1, "performance": 1}
LISTED = 3  # number of branches that are listed by name
_BOT_BRANCH = re.compile(r"(?:origin/)?(?:dependabot|renovate|snyk)\b")  # branches of bots that update dependencies
_IN_LOG = "in the changelog"
_OBVIOUS = (*_SCORES, _IN_LOG)  # reasons that are already clear from the subject


def day(at: int) -> date:
    return moment(at).date()


def moment(at: int) -> datetime:
    """Return the time that is `at` seconds after 1970. A time before the year 1 becomes the first second of that
    year. A time after the year 9999 becomes the last second of that year."""
    return datetime.fromtimestamp(min(max(at, -62_135_596_800), 253_402_300_799), UTC)


def significant(commits: Sequence[Commit], most: int) -> list[tuple[Commit, str]]:
    """Return the most important commits, the most important first. With each commit, return the reasons for its
    importance, but not the reasons that the commit's subject already shows. Leave out reverted commits. Leave out
    commits that are only releases, dependency updates, tests or documentation, unless they are breaking changes."""
    scored = [(commit, found) for commit in _kept(commits) if (found := _reasons(commit))]
    scored.sort(key=lambda each: (-sum(each[1].values()), -each[0].at))
    return [(commit, ", ".join(why for why in found if why not in _OBVIOUS)) for commit, found in scored[:most]]


def _is_about_code(commit: Commit) -> bool:
    """Return whether a commit changes code other than tests. Return True if the files of the commit are not known."""
    return commit.changes is None or any(map(stack.is_code, commit.changes))


def _reasons(commit: Commit) -> dict[str, int]:
    message, changes = commit.message, commit.changes or {}
    if message.type in MINOR and not message.is_breaking:
        return {}
    found = {"breaking change": 5} if message.is_breaking else {}
    is_about_code = _is_about_code(commit)
    if message.is_security and (is_about_code or any(map(stack.is_manifest, changes))):
        found["reverted security fix" if message.type == "revert" else "security fix"] = 3
    if any(kind != CHANGE_MODIFY and stack.is_manifest(path) for path, kind in changes.items()):
        found["manifest added or removed"] = 2
    if any(kind == CHANGE_ADD and "/migrations/" in f"/{path}" for path, kind in changes.items()):
        found["migration"] = 1
    if is_about_code:
        found |= {message.type: _SCORES[message.type]} if message.type in _SCORES else {}
        found |= {_IN_LOG: 2} if any(map(stack.CHANGELOG.search, changes)) else {}
        found |= {f"{len(changes):,} files": 2} if len(changes) >= _WIDE else {}
    return found


def decisions(commits: Sequence[Commit], most: int) -> list[Commit]:
    """Return the most important of the latest decisions about code. Reverted decisions do not count.

    A commit is a decision in three cases: its message states a decision, it removes something in many files, or it
    reverts a security fix. Breaking changes, removals, reverts and decisions with a reason come first. Commits that
    change at least three files come next.
    """
    found = (commit for commit in _kept(commits) if _is_about_code(commit) and _decides(commit))
    return sorted(islice(found, _LATEST * most), key=_weight, reverse=True)[:most]


def _decides(commit: Commit) -> bool:
    message = commit.message
    is_wide = len(commit.changes or ()) >= _WIDE and message.type not in MINOR
    is_revert = message.type == "revert" and message.is_security
    return bool(message.decision) or (message.is_removal and is_wide) or is_revert


def _weight(commit: Commit) -> int:
    message = commit.message
    weight = 4 * message.is_breaking + 3 * (message.is_removal or message.type == "revert")
    weight += 2 * (message.decision not in ("", commit.subject))
    return weight + (len(commit.changes or ()) >= _SEVERAL)


def _kept(commits: Sequence[Commit]) -> Iterator[Commit]:
    reverted = {commit.message.reverts for commit in commits}
    return (commit for commit in commits if commit.id not in reverted)


def most_changed(commits: Iterable[Commit]) -> list[tuple[str, Counter[str]]]:
    """For each changed file, return how many commits of each type change it. The file with the most commits comes
    first."""
    found: dict[str, Counter[str]] = {}
    for commit in commits:
        for path in commit.changes or ():
            found.setdefault(path, Counter())[commit.message.type] += 1
    return sorted(found.items(), key=lambda each: (-each[1].total(), each[0]))


# --- branches


class Branches(NamedTuple):
    """Figures about branches. `merged` has one pair for each branch that a merge commit brought into the main line: the
    number of commits on the branch, and the age of the branch in days. `squashed` is the number of commits of the main
    line that are squashed pull requests. `unmerged` is the number of branches that are not merged. `newest` lists the
    newest unmerged branches, without the branches of bots. Each item has the name of the branch, the number of its
    commits that the head does not contain, and the time of its newest commit."""

    merged: tuple[tuple[int, float], ...]
    squashed: int
    unmerged: int
    newest: tuple[tuple[str, int, int], ...]


def main_line(commits: Sequence[Commit]) -> list[Commit]:
    """Return the head and its chain of first parents, newest first. The chain ends before the first commit that was not
    analyzed."""
    by_id = {commit.id: commit for commit in commits}
    line, here = [], commits[0].id
    while here in by_id:
        line.append(by_id[here])
        here = next(iter(by_id[here].parents), "")
    return line


def branches(repository: Repository, commits: Sequence[Commit], is_late: Callable[[], bool]) -> Branches | None:
    """Return figures about the branches. `is_late` returns whether the time for the analysis is over. If this
    time is over, return None."""
    line = main_line(commits)
    squashed = [commit for commit in line if commit.message.is_squashed and not commit.is_merge]
    merged = []
    for commit in reversed(line):
        for parent in commit.parents[1:] if not is_late() else ():
            if times := repository.times_not_in(parent, commit.parents[0]):
                merged.append((len(times), max(0, commit.at - min(times)) / DAY))
    found = sorted(_open(repository, commits, squashed), key=lambda each: (-each[1].at, each[0]))
    of_people = [each for each in found if not _BOT_BRANCH.match(each[0])][:LISTED]
    newest = tuple((name, len(repository.times_not_in(tip.id, commits[0].id)), tip.at) for name, tip in of_people)
    return None if is_late() else Branches(tuple(merged), len(squashed), len(found), newest)


def _open(repository: Repository, commits: Sequence[Commit], squashed: list[Commit]) -> Iterator[tuple[str, Commit]]:
    """Yield the name and the newest commit of each branch that is not merged. A branch also counts as merged if a
    squashed commit has the subject of the branch's newest commit, either as its subject or as a line of its body."""
    reached, since = {commit.id for commit in commits}, min(commit.at for commit in commits)
    lines = {line for commit in squashed for line in (commit.subject, *commit.body.splitlines())}
    taken = {line.strip("*- ").rpartition(" (#")[0] or line.strip("*- ") for line in lines}
    for name, tip in repository.branches().items():
        commit = repository.commit(tip)
        if commit and tip not in reached and commit.at >= since and commit.subject not in taken:
            yield name, commit


SETTINGS = "memory_rules.project_support.git_history_analysis"
_CATEGORY = "memory_rules.categories.git_history"
_MOST = {"days": 36_500, "commits": 1_000_000, "seconds": 3_600}
_FOR_COMMITS = 0.8  # share of the time for reading the commits; the rest is for the figures


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an analysis: the days of history, the number of commits, and the seconds that it may take. Raises
    Invalid if a limit is out of range."""

    days: int
    commits: int
    seconds: float

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            if not 0 < getattr(self, name) <= most:
                raise Invalid(name, f"must be from 1 to {most:,}")


def limits_of(rules: Mapping[str, Any], **overrides: float | None) -> Limits:
    """Return the limits in the settings. A value in `overrides` that is not None replaces the value of the settings.
    Raises Invalid."""
    keys = ("max_commit_history_days", "max_commits_to_analyze", "analysis_timeout_seconds")
    found = {name: settings_document.value(rules, f"{SETTINGS}.{key}") for name, key in zip(_MOST, keys, strict=True)}
    return Limits(**found | {name: value for name, value in overrides.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Parts:
    """Which parts of the history are analyzed. Each part has a switch in the settings."""

    messages: bool = True
    files: bool = True
    branches: bool = False
    milestones: bool = True
    patterns: bool = True
    authors: bool = False

    @classmethod
    def of(cls, rules: Mapping[str, Any], **overrides: bool | None) -> Self:
        """Return which parts are on in the settings. A value in `overrides` that is not None replaces the value of the
        settings."""
        found = {name: settings_document.value(rules, f"{SETTINGS}.{key}") for name, key in SWITCHES.items()}
        for name, key in _CATEGORY_SWITCHES.items():
            found[name] = found[name] and settings_document.value(rules, f"{_CATEGORY}.{key}")
        return cls(**found | {name: value for name, value in overrides.items() if value is not None})

    def off(self) -> list[str]:
        """For each part that is off, return the name of its setting."""
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
    """The result of an analysis. `facts` has the analyzed commits, newest first. A part is None if it is off, or if
    there was not enough time for it. `is_older` is true if all commits are older than `limits.days`. In this case, the
    newest commits were analyzed despite the limit."""

    head: str
    branch: str
    is_shallow: bool
    limits: Limits
    parts: Parts
    facts: tuple[Commit, ...]
    is_complete: bool = True  # neither the limit of commits nor the limit of seconds was reached
    is_older: bool = False
    tags: tuple[Tag, ...] | None = None
    branches: Branches | None = None
    before: stack.Shape | None = None  # None if the project began within the analyzed time
    now: stack.Shape | None = None
    description: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the first commit of the main line is one of the analyzed commits."""
        return not self.is_shallow and not main_line(self.facts)[-1].parents

    @property
    def newest(self) -> Commit:
        return self.facts[0]

    @property
    def oldest(self) -> Commit:
        return min(self.facts, key=lambda commit: commit.at)


def analyze(
    repository: Repository,
    limits: Limits,
    parts: Parts,
    *,
    now: int,
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[int], None] = lambda _: None,
) -> Analysis | None:
    """Analyze a repository. Return None if the repository has no commits. `clock` returns a time in seconds. Raises
    Invalid if the repository cannot be read."""
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
    start = main_line(facts)[-1]
    earlier = repository.commit(start.parents[0]) if start.parents else None
    shape = _shape(repository, head) if parts.patterns and not is_late() else None
    manifests = (repository.content(head, path) for path in stack.MANIFESTS)
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
        branches=branches(repository, facts, is_late) if parts.branches else None,
        before=_shape(repository, earlier) if shape and earlier and not is_late() else None,
        now=shape,
        description=stack.description(repository.content(head, shape.readme), manifests) if shape else "",
    )


def _shape(repository: Repository, commit: Commit) -> stack.Shape | None:
    """Return the figures about a commit's tree. Return None if the tree is not in this clone."""
    with suppress(KeyError), readable():
        return stack.shape(repository, commit)
    return None
