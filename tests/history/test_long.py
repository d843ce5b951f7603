"""A history of 50,000 commits: it ends in time, and what it says of what it covered is right."""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice
from pathlib import Path

from memory.git_history import telling
from memory.git_history.analysis import Parts, analysed
from memory.git_history.commits import kind_of
from memory.git_history.facts import Deadline, Limits
from memory.git_history.repository import Repository
from tests.history import plain_git
from tests.history.repositories import git, made

COMMITS = 50_000
NOW = int(time.time())


class Counted:
    """A clock by which everything that is looked at takes as long: no machine is too slow for it."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.asked / 1_000


def test_fifty_thousand_commits(tmp_path: Path) -> None:
    folder = made(tmp_path / "long.git", COMMITS, ending=NOW - 60)
    ids = plain_git.commits(folder)
    limits, clock = Limits(36_500, 1_000_000, 20), Counted()
    with Repository(folder) as repository:
        found = analysed(repository, limits, Parts(branches=True, authors=True), now=NOW, deadline=Deadline(20, clock))
    assert found is not None
    covered = [fact.id for fact in found.facts]
    read = [fact.id for fact in found.facts if fact.changes is not None]
    assert covered == ids[: len(covered)]
    assert 5_000 < len(covered) < COMMITS  # it stopped
    assert 1_000 < len(read) < len(covered)
    assert found.gathered.unread == len(covered) - len(read) - plain_git.merges(folder, covered)

    said = telling.told(found, "long")
    assert f"{len(covered):,} commits from " in said
    unreached = f"the files of the oldest {found.gathered.unread:,} of them were not reached in 20 seconds"
    assert unreached in " ".join(said.split())  # its lines are folded
    theirs = Counter(kind_of(subject).type for subject in plain_git.subjects(folder, covered))
    assert {name: number for name, number in (found.types or {}).items() if name != "merge"} == theirs
    known = set(read)
    with_files = list(islice((commit for commit in ids if commit in known), len(read)))
    assert found.most_changed == tuple(plain_git.most_changed(folder, with_files)[:10])
    pairs = plain_git.together(folder, with_files)
    assert [(two.times, two.of) for two in found.together or ()] == [
        pairs[two.first, two.second] for two in found.together or ()
    ]
    times = plain_git.times(folder, covered)
    assert (found.velocity.commits, found.velocity.active_days) == (
        len(times),
        len(set(plain_git.days(folder, covered))),
    )
    assert len(found.milestones.tags) == len(plain_git.tags(folder))  # type: ignore[union-attr]
    assert found.growth is not None
    assert found.growth.now.files == len(git(folder, "ls-tree", "-r", "--name-only", "HEAD").splitlines())
