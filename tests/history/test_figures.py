"""Every figure of an analysis equals that of plain git, run beside it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest

from memory.git_history import report
from memory.git_history.analysis import DAY, Analysis, Limits, most_changed
from memory.git_history.stack import is_test
from memory.markdown import sections
from tests.history import plain_git
from tests.history.repositories import NOW, analysis, git

OURS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Both:
    """A repository, its analysis, and the same commits by git."""

    folder: Path
    found: Analysis
    these: list[str]

    @property
    def is_whole(self) -> bool:
        return len(self.these) == len(plain_git.commits(self.folder))


@pytest.fixture(scope="module", params=["all", "the newest 150", "of ten days", "our own"])
def both(request: pytest.FixtureRequest, harbour: Path) -> Both:
    if request.param == "our own":
        if not (OURS / ".git").exists() or git(OURS, "rev-parse", "--is-shallow-repository").strip() == "true":
            pytest.skip("this is no clone with a history")
        return Both(OURS, analysis(OURS), plain_git.commits(OURS))
    if request.param == "the newest 150":
        return Both(
            harbour, analysis(harbour, limits=Limits(36_500, 150, 600)), plain_git.commits(harbour, "-n", "150")
        )
    if request.param == "of ten days":
        since = f"--since={NOW - 10 * DAY}"
        return Both(harbour, analysis(harbour, limits=Limits(10, 1_000_000, 600)), plain_git.commits(harbour, since))
    return Both(harbour, analysis(harbour), plain_git.commits(harbour))


def test_the_same_commits(both: Both) -> None:
    ours = list(both.found.facts)
    assert sorted(commit.id for commit in ours) == sorted(both.these)
    assert [commit.at for commit in ours] == plain_git.times(both.folder, both.these)  # in the same order
    subjects = [commit.subject for commit in ours if not commit.is_merge]
    assert sorted(subjects) == sorted(plain_git.subjects(both.folder, both.these))
    assert sum(commit.is_merge for commit in ours) == plain_git.merges(both.folder, both.these)


def test_the_same_files_of_each_commit(both: Both) -> None:
    ours = [sorted(fact.changes) for fact in both.found.facts if fact.changes is not None]
    assert sorted(ours) == sorted(sorted(paths) for paths in plain_git.changed(both.folder, both.these))


def test_most_changed_files_and_folders(both: Both) -> None:
    ours = [(path, types.total()) for path, types in most_changed(both.found.facts)[:10]]
    assert ours == plain_git.most_changed(both.folder, both.these)[:10]
    theirs = Counter(
        folder
        for paths in plain_git.changed(both.folder, both.these)
        for folder in {"/".join(path.split("/")[:-1][:3]) for path in paths if "/" in path}
    )
    assert dict(report.folders(both.found.facts, 1_000)) == theirs


def test_velocity_and_quality(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_TOKENS", 5_000)
    insights = sections.split(report.render(both.found, "x"), "git_history")["Development Insights"]
    times = plain_git.times(both.folder, both.these)
    days = sorted({date.fromisoformat(day) for day in plain_git.days(both.folder, both.these)})
    span, pauses = (days[-1] - days[0]).days + 1, [(later - day).days - 1 for day, later in pairwise(days)]
    per_week = len(times) * 7 / max(span, 7)
    pace = f"{per_week:.1f} commits a week, longest pause {max(pauses, default=0)} day"
    assert f"- Project Velocity: {pace}" in insights
    tested = sum(any(map(is_test, paths)) for paths in plain_git.changed(both.folder, both.these))
    assert f"with tests {tested:,} (" in insights


def test_authors(both: Both) -> None:
    ours = Counter(commit.name for commit in both.found.facts)
    assert ours.total() == len(both.these)
    assert not both.is_whole or ours == plain_git.people(both.folder)


def test_branches_that_were_merged(both: Both) -> None:
    assert both.found.branches is not None
    merged, theirs = list(both.found.branches.merged), plain_git.merged(both.folder)
    assert len(merged) > 3
    assert merged == (theirs if both.is_whole else theirs[-len(merged) :])  # also those that began before these commits


@pytest.mark.parametrize("commits", [1_000_000, 6])
def test_branches_that_were_not(harbour: Path, monkeypatch: pytest.MonkeyPatch, commits: int) -> None:
    monkeypatch.setattr("memory.git_history.analysis.LISTED", 100)
    found, theirs = analysis(harbour, limits=Limits(36_500, commits, 600)), plain_git.unmerged(harbour)
    assert found.branches is not None
    last = {name: int(git(harbour, "log", "-1", "--format=%ct", name)) for name in theirs}
    recent = {name: many for name, many in theirs.items() if last[name] >= found.oldest.at}
    assert {name: many for name, many, _ in found.branches.newest} == recent != {}
    assert found.branches.unmerged == len(recent)
    if commits == 6:  # a branch is older than the analyzed commits
        assert any(int(git(harbour, "rev-list", "--count", f"--since={found.oldest.at}", f"HEAD..{name}")) < many
                   for name, many in recent.items())  # fmt: skip


def test_tags(both: Both) -> None:
    assert both.found.tags is not None
    assert sorted(tag.name for tag in both.found.tags) == sorted(plain_git.tags(both.folder))
    for tag in both.found.tags:
        assert git(both.folder, "rev-parse", f"{tag.name}^{{commit}}").strip() == tag.commit


def test_files_and_folders_now_and_before(both: Both) -> None:
    now, before = both.found.now, both.found.before
    line = git(both.folder, "rev-list", "--first-parent", "HEAD").split()
    start = next((commit for commit in line if commit not in set(both.these)), None)
    paths = plain_git.files(both.folder, "HEAD")
    assert now is not None
    assert (now.files, now.folders) == (len(paths), len(plain_git.folders(both.folder, "HEAD")))
    assert now.languages["Python"] == sum(path.endswith((".py", ".pyi")) for path in paths)
    assert now.languages["Markdown"] == sum(path.endswith((".md", ".markdown")) for path in paths)
    assert (before is None) == (start is None)
    assert start is None or (before and before.files) == len(plain_git.files(both.folder, start))


def test_what_this_project_is_made_of() -> None:
    if not (OURS / ".git").exists():
        pytest.skip("this is no clone")
    found = analysis(OURS, limits=Limits(36_500, 5, 600))
    assert found.now is not None
    assert {"Make", "Python", "Django"} <= found.now.tools
    assert found.description.startswith("Palimpsest is ")
    assert found.description.endswith(".")
