"""What is known of each commit, gathered within limits (seed 004, "Git History Analysis", steps 4 to 6).

The facts of a commit never change: those of an earlier analysis are taken as they are, and the figures made of them are
the same as if all had been read.
"""

from __future__ import annotations

import json
import time
import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from memory.errors import Invalid
from memory.git_history.commits import decisions, kind_of, without_trailers
from memory.git_history.repository import Commit, Repository, readable

DAY = 86_400  # seconds
# Shares of the time after which no more files are looked at, and no more commits: the rest is for what is made of them.
_FOR_FILES, _FOR_COMMITS = 0.6, 0.8
_MOST_PATHS = 2_000  # of a commit that are kept between analyses; what changed more is read again

MOST_DAYS, MOST_COMMITS, MOST_SECONDS = 36_500, 1_000_000, 3_600


@dataclass(frozen=True, slots=True)
class Limits:
    """Of days back from now, of commits, of seconds that it may take. Raises Invalid."""

    days: int
    commits: int
    seconds: float

    def __post_init__(self) -> None:
        for name, most in (("days", MOST_DAYS), ("commits", MOST_COMMITS), ("seconds", MOST_SECONDS)):
            if not 0 < getattr(self, name) <= most:
                raise Invalid(name, f"must be from 1 to {most:,}")


class Deadline:
    """When an analysis is to be over; `clock` counts seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._seconds, self._begun = clock, seconds, clock()

    def is_over(self, share: float = 1.0) -> bool:
        return self._clock() - self._begun >= self._seconds * share


@dataclass(frozen=True, slots=True, repr=False)
class Fact:
    """`changes`: what became of which path; None of a merge, and where they were not read or are not here."""

    id: str
    parents: tuple[str, ...]
    at: int
    author: str
    subject: str
    type: str
    is_conventional: bool = False
    is_breaking: bool = False
    is_security: bool = False
    is_explained: bool = False
    decided: tuple[str, ...] = ()
    changes: Mapping[str, str] | None = None

    @property
    def is_merge(self) -> bool:
        return len(self.parents) > 1


@dataclass(frozen=True, slots=True, repr=False)
class Gathered:
    """The facts of the commits that were covered, the newest first, and what was left out."""

    facts: tuple[Fact, ...]
    is_all: bool = True  # nothing of the time asked for was left out for its number or for want of time
    ran_out: bool = False  # of time
    unread: int = 0  # commits whose changes were not reached in time, the oldest ones
    absent: int = 0  # … whose changes are not here: a clone that is shallow or partial

    @property
    def newest(self) -> Fact:
        return self.facts[0]

    @property
    def oldest(self) -> Fact:
        return min(self.facts, key=lambda fact: fact.at)


def gathered(  # what is asked for, and what is known
    repository: Repository,
    head: str,
    limits: Limits,
    *,
    now: int,
    deadline: Deadline,
    known: Mapping[str, Fact] | None = None,
    with_changes: bool = True,
    progress: Callable[[int], None] = lambda _: None,
) -> Gathered:
    """The facts of what `head` was made of. `known` are those of an earlier analysis. Raises Invalid."""
    known, unread, absent = known or {}, 0, 0
    facts: list[Fact] = []
    is_all, ran_out = True, False
    with readable():
        for commit in repository.walk(head, now - limits.days * DAY):
            ran_out = deadline.is_over(_FOR_COMMITS) and bool(facts)
            is_all = not ran_out and len(facts) < limits.commits
            if not is_all:
                break
            fact = known.get(commit.id)
            if fact is None or (with_changes and fact.changes is None):
                is_late = deadline.is_over(_FOR_FILES)
                fact = _fact(repository, commit, with_changes=with_changes and not is_late)
                is_wanting = with_changes and not commit.is_merge and fact.changes is None
                unread, absent = unread + (is_wanting and is_late), absent + (is_wanting and not is_late)
            facts.append(fact)
            progress(1)
    return Gathered(tuple(facts), is_all, ran_out or unread > 0, unread, absent)


def _fact(repository: Repository, commit: Commit, *, with_changes: bool) -> Fact:
    kind = kind_of(commit.subject, commit.body, is_merge=commit.is_merge)
    return Fact(
        id=commit.id,
        parents=commit.parents,
        at=commit.at,
        author=commit.author,
        subject=commit.subject,
        type=kind.type,
        is_conventional=kind.is_conventional,
        is_breaking=kind.is_breaking,
        is_security=kind.is_security,
        is_explained=bool(without_trailers(commit.body)),
        decided=tuple(decisions(commit.body)),
        changes=repository.changes(commit) if with_changes and not commit.is_merge else None,
    )


# --- kept between analyses


def packed(facts: Gathered) -> str:
    """As text, for the silo to seal; what is large is left out, and read again."""
    kept = [asdict(fact) for fact in facts.facts if fact.changes is None or len(fact.changes) <= _MOST_PATHS]
    return b85encode(zlib.compress(json.dumps(kept, separators=(",", ":")).encode(), 6)).decode()


def unpacked(text: str) -> dict[str, Fact]:
    """By commit; none where it was packed by another version, or is none."""
    try:
        kept = json.loads(zlib.decompress(b85decode(text)))
        facts = [Fact(**each | {"parents": tuple(each["parents"]), "decided": tuple(each["decided"])}) for each in kept]
    except (ValueError, TypeError, KeyError, zlib.error):
        return {}
    return {fact.id: fact for fact in facts}
