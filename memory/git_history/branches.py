"""How branches come, go and stay (seed 004, "Git History Analysis", step 7).

Git keeps no history of branches. What was merged tells of itself: a merge's second parent, and what came with it that
the first had not. What was not merged is a name that points beside the main line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory.git_history.facts import DAY, Deadline, Fact
from memory.git_history.repository import Repository

LONG = 14  # days from which on a branch is a long-lived one
_NAMED = re.compile(
    r"Merge (?:remote-tracking )?branch '(?P<branch>[^']+)'|Merge pull request #\d+ from [^/\s]+/(?P<pull>\S+)|"
    r"Merged in (?P<bitbucket>\S+)"
)


@dataclass(frozen=True, slots=True)
class Merged:
    """A branch that was merged: its name, where the merge says it; when the merge was; how many commits came with it,
    and for how many days it had been worked on."""

    name: str
    at: int
    commits: int
    days: float

    @property
    def is_long(self) -> bool:
        return self.days >= LONG


@dataclass(frozen=True, slots=True)
class Open:
    """A branch with commits that the head has not: how many, up to a bound, and when the last was made."""

    name: str
    commits: int
    at: int


def merged(facts: Sequence[Fact]) -> list[Merged]:
    """What was merged into the main line (the head's first parents), in order of time."""
    by_id = {fact.id: fact for fact in facts}
    line = []
    here = facts[0].id if facts else ""
    while here in by_id:
        line.append(by_id[here])
        here = by_id[here].parents[0] if by_id[here].parents else ""
    reached: set[str] = set()
    found = []
    for fact in reversed(line):
        for parent in fact.parents[1:]:
            came = _new(parent, by_id, reached)
            if came:
                times = [by_id[each].at for each in came]
                found.append(Merged(_name(fact.subject), fact.at, len(came), max(0, fact.at - min(times)) / DAY))
        reached.add(fact.id)
    return found


def _new(start: str, by_id: Mapping[str, Fact], reached: set[str]) -> list[str]:
    """Commits that a line brings and that were not reached before; they are now."""
    waiting, came = [start], []
    while waiting:
        here = waiting.pop()
        if here in by_id and here not in reached:
            reached.add(here)
            came.append(here)
            waiting.extend(by_id[here].parents)
    return came


def _name(subject: str) -> str:
    found = _NAMED.match(subject)
    return next(filter(None, found.groups()), "") if found else ""


def unmerged(repository: Repository, facts: Sequence[Fact], deadline: Deadline, most: int = 1_000) -> list[Open]:
    """Branches beside the main line, those that were worked on last first. Commits before the time that was looked at
    are not counted."""
    reached = {fact.id for fact in facts}
    since = min((fact.at for fact in facts), default=0)
    found = []
    for name, tip in repository.branches().items():
        if deadline.is_over():
            break
        commit = repository.commit(tip)
        if commit is None or tip in reached or commit.at < since:
            continue
        found.append(Open(name, _beside(repository, tip, since, reached, most), commit.at))
    return sorted((each for each in found if each.commits), key=lambda each: (-each.at, each.name))


def _beside(repository: Repository, tip: str, since: int, reached: set[str], most: int) -> int:
    waiting, seen = [tip], {tip}
    count = 0
    while waiting and count < most:
        commit = repository.commit(waiting.pop())
        if commit is None or commit.at < since:
            continue
        count += 1
        new = [parent for parent in commit.parents if parent not in seen and parent not in reached]
        seen.update(new)
        waiting += new
    return count
