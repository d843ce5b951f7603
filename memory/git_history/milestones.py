"""Releases and other tags (seed 004, "Git History Analysis", step 8)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from memory.git_history.facts import DAY
from memory.git_history.repository import Tagged

_VERSION = re.compile(
    r"(?:\A|[^\d.])v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?P<early>[-.+]?(?:a|b|rc|alpha|beta|dev|pre)\w*)?"
)


@dataclass(frozen=True, slots=True)
class Milestones:
    """Tags in order of time, those of versions among them, and how many days lie between two releases, the median;
    None of fewer than three."""

    tags: tuple[Tagged, ...]
    releases: tuple[Tagged, ...]
    days_between: float | None

    def within(self, since: int) -> tuple[Tagged, ...]:
        return tuple(tag for tag in self.tags if tag.at >= since)


def milestones(tags: Sequence[Tagged]) -> Milestones:
    releases = [tag for tag in tags if is_release(tag.name)]
    gaps = [(after.at - before.at) / DAY for before, after in pairwise(releases)]
    return Milestones(tuple(tags), tuple(releases), median(gaps) if len(gaps) > 1 else None)


def is_release(name: str) -> bool:
    """Whether a tag names a version that is none on the way to one: v1.2.0, and not v1.2.0-rc1."""
    found = _VERSION.search(name)
    return found is not None and not found["early"]


def is_major(name: str) -> bool:
    found = _VERSION.search(name)
    return found is not None and not found["early"] and found[2] == "0" and found[3] in (None, "0")
