"""Figures of a history, of the facts of its commits alone (seed 004, "Git History Analysis", steps 6 and 9).

Each can be had of plain git too, and the tests do: of the commits that were covered, `git log --no-merges --no-renames
--name-status`; days and weeks are UTC's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import combinations, pairwise
from statistics import median

from memory.git_history.facts import DAY, Fact
from memory.git_history.repository import ADDED, CHANGED

WEEK = 7 * DAY
_WHOLESALE = 50  # files: who changed more did not change them together
_OFTEN, _MOSTLY = 3, 0.5  # commits, and share of the rarer one's, from which on two files change together
_TEST = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__)/|(?:^|/)test_[^/]*$|[._-](?:test|spec)s?\.[^/.]+$", re.IGNORECASE
)
_MANIFESTS = re.compile(
    r"(?:^|/)(?:pyproject\.toml|setup\.py|package\.json|go\.mod|Cargo\.toml|pom\.xml|build\.gradle(?:\.kts)?|Gemfile|"
    r"composer\.json|CMakeLists\.txt)$"
)
_MIGRATION = re.compile(r"(?:^|/)migrations?/", re.IGNORECASE)


def day(at: int) -> date:
    """Of seconds since 1970; times that no calendar has are put at its ends."""
    return datetime.fromtimestamp(min(max(at, -62_135_596_800), 253_402_300_799), UTC).date()


# --- what was done


def types(facts: Iterable[Fact]) -> Counter[str]:
    """How many commits there are of each type; merges are one."""
    return Counter(fact.type for fact in facts)


@dataclass(frozen=True, slots=True, repr=False)
class Significant:
    """A commit that matters, and why."""

    fact: Fact
    reasons: tuple[str, ...]


def significant(facts: Sequence[Fact], tagged: Mapping[str, Sequence[str]], most: int) -> list[Significant]:
    """The commits that matter most, the newest first: features, fixes and refactorings that reach far, what breaks,
    what was released, and what changed the shape of the whole. `tagged` are tags by commit."""
    scored = []
    for fact in facts:
        weights = _weights(fact, tagged.get(fact.id, ()))
        if (score := sum(weights.values())) >= 2:
            scored.append((score, Significant(fact, tuple(weights))))
    scored.sort(key=lambda each: (-each[0], -each[1].fact.at, each[1].fact.id))
    return sorted((each for _, each in scored[:most]), key=lambda each: (-each.fact.at, each.fact.id))


def _weights(fact: Fact, tags: Sequence[str]) -> dict[str, int]:
    found = {f"tagged {', '.join(tags[:3])}": 4} if tags else {}
    if fact.is_merge:
        return found
    if fact.is_breaking:
        found["breaking change"] = 5
    if fact.is_security:
        found["security"] = 3
    if fact.type in ("feature", "refactoring", "revert", "release"):
        found[fact.type] = 2
    elif fact.type in ("fix", "performance"):
        found[fact.type] = 1
    changes = fact.changes or {}
    if len(changes) >= 20:
        found[f"{len(changes):,} files"] = 2
    if shapes := _shapes(changes):
        found[shapes] = 2
    if fact.decided:
        found["gives its reason"] = 1
    return found


def _shapes(changes: Mapping[str, str]) -> str:
    if any(_MANIFESTS.search(path) and kind != CHANGED for path, kind in changes.items()):
        return "a project's manifest came or went"
    if any(_MIGRATION.search(path) and kind == ADDED for path, kind in changes.items()):
        return "a migration"
    return ""


# --- files


def most_changed(facts: Iterable[Fact], most: int) -> list[tuple[str, int]]:
    """Paths, and in how many commits each was changed: the most first, then by name."""
    counted = Counter(path for fact in facts for path in fact.changes or ())
    return sorted(counted.items(), key=lambda each: (-each[1], each[0]))[:most]


@dataclass(frozen=True, slots=True)
class Together:
    """Two files that change together: in how many commits, and in how many the rarer of them changed at all."""

    first: str
    second: str
    times: int
    of: int


def together(facts: Iterable[Fact], most: int) -> list[Together]:
    """Files that change together in at least three commits, and in half of those that the rarer one changes in."""
    alone: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    looked_at = [fact.changes for fact in facts if fact.changes and len(fact.changes) <= _WHOLESALE]
    for changes in looked_at:
        alone.update(changes.keys())
    often = {path for path, times in alone.items() if times >= _OFTEN}
    for changes in looked_at:
        pairs.update(combinations(sorted(often.intersection(changes)), 2))
    found = [
        Together(first, second, times, min(alone[first], alone[second]))
        for (first, second), times in pairs.items()
        if times >= _OFTEN and times >= _MOSTLY * min(alone[first], alone[second])
    ]
    return sorted(found, key=lambda each: (-each.times, each.of, each.first, each.second))[:most]


# --- how it goes


@dataclass(frozen=True, slots=True)
class Velocity:
    """Commits, on how many days, within how many days (the first and the last included); the longest time without one,
    in whole days; commits of the earlier and of the later half of that time; and of each week, the last one last."""

    commits: int
    active_days: int
    days: int
    longest_pause: int
    earlier: int
    later: int
    weeks: tuple[int, ...]

    @property
    def a_week(self) -> float:
        return self.commits * 7 / max(self.days, 7)


def velocity(facts: Sequence[Fact], weeks: int = 13) -> Velocity:
    times = sorted(fact.at for fact in facts)
    days = sorted({day(at) for at in times})
    first, last = times[0], times[-1]
    middle = first + (last - first) / 2
    told = Counter((last - at) // WEEK for at in times)
    reached = min(weeks, (last - first) // WEEK + 1)
    return Velocity(
        commits=len(times),
        active_days=len(days),
        days=(days[-1] - days[0]).days + 1,
        longest_pause=max(((after - before).days - 1 for before, after in pairwise(days)), default=0),
        earlier=sum(at < middle for at in times),
        later=sum(at >= middle for at in times),
        weeks=tuple(told[nth] for nth in reversed(range(reached))),
    )


@dataclass(frozen=True, slots=True)
class Quality:
    """Of the commits that are no merges: how many there are, how many fix, revert, refactor, say why, and say their
    type as Conventional Commits do; how many of those whose files are known touched tests; files of one, the median."""

    commits: int
    fixes: int
    reverts: int
    refactorings: int
    explained: int
    conventional: int
    known: int
    with_tests: int
    median_files: float


def quality(facts: Iterable[Fact]) -> Quality:
    plain = [fact for fact in facts if not fact.is_merge]
    known = [fact.changes for fact in plain if fact.changes is not None]
    counted = types(plain)
    return Quality(
        commits=len(plain),
        fixes=counted["fix"],
        reverts=counted["revert"],
        refactorings=counted["refactoring"],
        explained=sum(fact.is_explained for fact in plain),
        conventional=sum(fact.is_conventional for fact in plain),
        known=len(known),
        with_tests=sum(any(map(is_test, changes)) for changes in known),
        median_files=median(map(len, known)) if known else 0,
    )


def is_test(path: str) -> bool:
    return bool(_TEST.search(path))


def authors(names: Iterable[str]) -> list[tuple[str, int]]:
    """People by their commits, the most first. `names` are those of each commit."""
    return sorted(Counter(names).items(), key=lambda each: (-each[1], each[0]))
