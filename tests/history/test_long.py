"""A long history: the analysis ends in time, and what it says of the commits that it read is right."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from memory.git_history import figures, messages, report
from memory.git_history.analysis import Limits, Parts, analyze
from memory.git_history.repository import Repository
from tests.history import plain_git
from tests.history.repositories import made

COMMITS = 3_000
NOW = int(time.time())


class Counted:
    """A clock by which each commit takes a hundredth of a second: no machine is too slow for it."""

    looked = 0

    def __call__(self) -> float:
        self.looked += 1
        return self.looked / 100


def test_three_thousand_commits(tmp_path: Path) -> None:
    folder = made(tmp_path / "long.git", COMMITS, ending=NOW - 60)
    with Repository(folder) as repository:
        parts, limits = Parts(branches=True, authors=True), Limits(36_500, 1_000_000, 30)
        found = analyze(repository, limits, parts, now=NOW, clock=Counted())
    assert found is not None
    read = [fact.id for fact in found.facts]
    assert read == plain_git.commits(folder)[: len(read)]
    assert 2_000 < len(read) < COMMITS  # it stopped
    assert f"{len(read):,} commits from " in report.render(found, "long")
    assert "; the newest that could be read in 30 seconds" in report.covered(found)
    types = Counter(fact.message.type for fact in found.facts if not fact.is_merge)
    assert types == Counter(messages.read(subject).type for subject in plain_git.subjects(folder, read))
    most = [(path, types.total()) for path, types in figures.most_changed(found.facts)[:10]]
    assert most == plain_git.most_changed(folder, read)[:10]
    assert found.now is not None
    assert found.now.files == len(plain_git.files(folder, "HEAD"))
