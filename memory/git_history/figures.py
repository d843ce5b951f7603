"""Figures of the commits that were analyzed. Each equals a figure of `git log`; days and weeks are in UTC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import combinations, takewhile

from dulwich.diff_tree import CHANGE_ADD, CHANGE_MODIFY

from memory.git_history.messages import Message
from memory.git_history.repository import Commit, Repository
from memory.git_history.stack import is_manifest

DAY = 86_400  # seconds
LONG = 14  # days after which a branch is long-lived
_WHOLESALE = 50  # files: a commit that changes more says nothing about which files belong together
_WIDE = 20  # files of a commit that reaches far
_OFTEN, _MOSTLY = 3, 0.5  # commits, and share of the rarer file's commits, for two files that change together
_MOST_BESIDE = 1_000  # commits of an unmerged branch that are counted
_SCORES = {"feature": 2, "refactoring": 2, "revert": 2, "fix": 1, "performance": 1}
_ROUTINE = frozenset(("merge", "release", "dependency"))  # types that are no major commits


@dataclass(frozen=True, slots=True, repr=False)
class Fact:
    """A commit and its message. `changes` is None for a merge, and if the trees were not read or are not here."""

    commit: Commit
    message: Message
    changes: Mapping[str, str] | None = None


def moment(at: int) -> datetime:
    """A time in seconds since 1970. Times outside the calendar become its first or last second."""
    return datetime.fromtimestamp(min(max(at, -62_135_596_800), 253_402_300_799), UTC)


def day(at: int) -> date:
    return moment(at).date()


# --- commits


def significant(facts: Iterable[Fact], most: int) -> list[tuple[Fact, str]]:
    """The most important commits, and why they are; the most important first. Releases and dependencies are not."""
    scored = [(_reasons(fact), fact) for fact in facts]
    ranked = sorted(
        ((sum(found.values()), fact.commit.at, fact, ", ".join(found)) for found, fact in scored),
        key=lambda each: (-each[0], -each[1]),
    )
    return [(fact, reasons) for score, _, fact, reasons in ranked[:most] if score >= 2]


def _reasons(fact: Fact) -> dict[str, int]:
    message, changes = fact.message, fact.changes or {}
    if message.type in _ROUTINE and not message.is_breaking:
        return {}
    found = {"breaking change": 5} if message.is_breaking else {}
    if message.is_security:
        found["security fix"] = 3
    if score := _SCORES.get(message.type):
        found[message.type] = score
        if len(changes) >= _WIDE:
            found[f"{len(changes):,} files"] = 2
    if any(kind != CHANGE_MODIFY and is_manifest(path) for path, kind in changes.items()):
        found["manifest added or removed"] = 2
    if any(kind == CHANGE_ADD and "/migrations/" in f"/{path}" for path, kind in changes.items()):
        found["migration"] = 1
    if message.decision:
        found["gives a reason"] = 1
    return found


def decisions(facts: Iterable[Fact], most: int) -> list[Fact]:
    """The newest commits whose message names a decision."""
    return [fact for fact in facts if fact.message.decision][:most]


# --- files


def most_changed(facts: Iterable[Fact], most: int) -> list[tuple[str, Counter[str]]]:
    """The files that most commits change, with those commits by type."""
    found: dict[str, Counter[str]] = {}
    for fact in facts:
        for path in fact.changes or ():
            found.setdefault(path, Counter())[fact.message.type] += 1
    return sorted(found.items(), key=lambda each: (-each[1].total(), each[0]))[:most]


def folders(facts: Iterable[Fact], most: int) -> list[tuple[str, int]]:
    """The folders of the root that most commits change."""
    touched = (sorted({path.partition("/")[0] for path in fact.changes or () if "/" in path}) for fact in facts)
    return Counter(name for names in touched for name in names).most_common(most)


def together(facts: Iterable[Fact], most: int) -> list[tuple[str, str, int, int]]:
    """Pairs of files that change together: in how many commits, of how many that change the rarer file."""
    alone: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    changed = [fact.changes for fact in facts if fact.changes and len(fact.changes) <= _WHOLESALE]
    for changes in changed:
        alone.update(changes.keys())
    often = {path for path, times in alone.items() if times >= _OFTEN}
    for changes in changed:
        pairs.update(combinations(sorted(often.intersection(changes)), 2))
    found = [(one, two, times, min(alone[one], alone[two])) for (one, two), times in pairs.items() if times >= _OFTEN]
    found = [each for each in found if each[2] >= _MOSTLY * each[3]]
    return sorted(found, key=lambda each: (-each[2], each[3], each[0], each[1]))[:most]


# --- branches


@dataclass(frozen=True, slots=True)
class Branches:
    """`merged` has, for each branch that a merge commit brought into the main line, its commits and its age in days.
    `squashed` counts the commits of the main line that are squashed pull requests. `unmerged` has the name of each
    other branch, its commits that the head does not have, and the time of the newest."""

    merged: tuple[tuple[int, float], ...]
    squashed: int
    unmerged: tuple[tuple[str, int, int], ...]


def main_line(facts: Sequence[Fact]) -> list[Fact]:
    """The head and its first parents, as far as they were analyzed, newest first."""
    by_id = {fact.commit.id: fact for fact in facts}
    line, here = [], facts[0].commit.id
    while here in by_id:
        line.append(by_id[here])
        here = next(iter(by_id[here].commit.parents), "")
    return line


def branches(repository: Repository, facts: Sequence[Fact], is_late: Callable[[], bool]) -> Branches:
    """`is_late` says that there is no time left for further branches."""
    line = main_line(facts)
    squashed = [fact for fact in line if fact.message.is_squashed and not fact.commit.is_merge]
    unmerged = takewhile(lambda _: not is_late(), _unmerged(repository, facts, squashed))
    return Branches(
        tuple(_merged(line, facts)), len(squashed), tuple(sorted(unmerged, key=lambda each: (-each[2], each[0])))
    )


def _merged(line: Sequence[Fact], facts: Sequence[Fact]) -> Iterator[tuple[int, float]]:
    by_id = {fact.commit.id: fact.commit for fact in facts}
    reached: set[str] = set()
    for fact in reversed(line):
        reached.add(fact.commit.id)
        for parent in fact.commit.parents[1:]:
            came, waiting = [], [parent]
            while waiting:
                here = waiting.pop()
                if here in by_id and here not in reached:
                    reached.add(here)
                    came.append(by_id[here].at)
                    waiting += by_id[here].parents
            if came:
                yield len(came), max(0, fact.commit.at - min(came)) / DAY


def _unmerged(
    repository: Repository, facts: Sequence[Fact], squashed: Sequence[Fact]
) -> Iterator[tuple[str, int, int]]:
    """Branches that are not merged. A branch is merged by a squash if the subject of its last commit is
    the squash's subject, or a line of its body."""
    reached = {fact.commit.id for fact in facts}
    since = min(fact.commit.at for fact in facts)
    lines = {line for fact in squashed for line in (fact.commit.subject, *fact.commit.body.splitlines())}
    taken = {line.strip("*- ").rpartition(" (#")[0] or line.strip("*- ") for line in lines}
    for name, tip in repository.branches().items():
        commit = repository.commit(tip)
        if commit and tip not in reached and commit.at >= since and commit.subject not in taken:
            yield name, _beside(repository, commit, since, reached), commit.at


def _beside(repository: Repository, tip: Commit, since: int, reached: set[str]) -> int:
    """How many commits of a branch the head does not have; those before `since` are not counted."""
    waiting, seen, count = [tip], {tip.id}, 0
    while waiting and count < _MOST_BESIDE:
        count += 1
        new = [parent for parent in waiting.pop().parents if parent not in seen and parent not in reached]
        seen.update(new)
        waiting += [found for name in new if (found := repository.commit(name)) and found.at >= since]
    return count
