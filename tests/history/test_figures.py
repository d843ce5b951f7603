"""Every figure of an analysis equals the figure that plain git computes."""

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

THIS = Path(__file__).resolve().parents[2]
MANY = 1_000_000
CASES = {
    "all": (Limits(36_500, MANY, 600), ()),
    "newest 150": (Limits(36_500, 150, 600), ("-n", "150")),
    "ten days": (Limits(10, MANY, 600), (f"--since={NOW - 10 * DAY}",)),
}


@dataclass(frozen=True)
class Both:
    """A repository, its analysis, and the same commits by plain git."""

    folder: Path
    found: Analysis
    commits: list[str]

    @property
    def is_whole(self) -> bool:
        return len(self.commits) == len(plain_git.commits(self.folder))


@pytest.fixture(scope="module", params=[*CASES, "this repository"])
def both(request: pytest.FixtureRequest, harbour: Path) -> Both:
    if request.param != "this repository":
        limits, which = CASES[request.param]
        return Both(harbour, analysis(harbour, limits=limits), plain_git.commits(harbour, *which))
    if not (THIS / ".git").exists() or git(THIS, "rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("this is no clone with a history")
    return Both(THIS, analysis(THIS), plain_git.commits(THIS))


def test_commits_and_subjects(both: Both) -> None:
    facts = list(both.found.facts)
    assert sorted(commit.id for commit in facts) == sorted(both.commits)
    assert [commit.at for commit in facts] == plain_git.times(both.folder, both.commits)
    subjects = [commit.subject for commit in facts if not commit.is_merge]
    assert sorted(subjects) == sorted(plain_git.subjects(both.folder, both.commits))
    assert sum(commit.is_merge for commit in facts) == plain_git.merges(both.folder, both.commits)


def test_changed_files_and_folders(both: Both) -> None:
    changed = plain_git.changed(both.folder, both.commits)
    found = [sorted(fact.changes) for fact in both.found.facts if fact.changes is not None]
    assert sorted(found) == sorted(sorted(paths) for paths in changed)
    most = [(path, types.total()) for path, types in most_changed(both.found.facts)[:10]]
    assert most == plain_git.most_changed(both.folder, both.commits)[:10]
    folders = [{"/".join(path.split("/")[:-1][:3]) for path in paths if "/" in path} for paths in changed]
    assert dict(report.folders(both.found.facts, 1_000)) == Counter(folder for each in folders for folder in each)


def test_velocity_and_quality(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_TOKENS", 5_000)
    insights = sections.split(report.render(both.found, "x"), "git_history")["Development Insights"]
    days = sorted({date.fromisoformat(day) for day in plain_git.days(both.folder, both.commits)})
    span, pauses = (days[-1] - days[0]).days + 1, [(later - day).days - 1 for day, later in pairwise(days)]
    pace = f"{len(both.commits) * 7 / max(span, 7):.1f} commits a week, longest pause {max(pauses, default=0)} day"
    assert f"- Project Velocity: {pace}" in insights
    tested = sum(any(map(is_test, paths)) for paths in plain_git.changed(both.folder, both.commits))
    assert f"with tests {tested:,} (" in insights


def test_authors_and_tags(both: Both) -> None:
    authors = Counter(commit.name for commit in both.found.facts)
    assert authors.total() == len(both.commits)
    assert not both.is_whole or authors == plain_git.people(both.folder)
    assert both.found.tags is not None
    assert sorted(tag.name for tag in both.found.tags) == sorted(plain_git.tags(both.folder))
    for tag in both.found.tags:
        assert git(both.folder, "rev-parse", f"{tag.name}^{{commit}}").strip() == tag.commit


def test_merged_branches(both: Both) -> None:
    assert both.found.branches is not None
    found, merged = list(both.found.branches.merged), plain_git.merged(both.folder)
    assert len(found) > 3
    assert found == (merged if both.is_whole else merged[-len(found) :])  # also branches that began before the limits


@pytest.mark.parametrize("commits", [MANY, 6])
def test_unmerged_branches(harbour: Path, monkeypatch: pytest.MonkeyPatch, commits: int) -> None:
    monkeypatch.setattr("memory.git_history.analysis.LISTED", 100)
    found, unmerged = analysis(harbour, limits=Limits(36_500, commits, 600)), plain_git.unmerged(harbour)
    assert found.branches is not None
    last = {name: int(git(harbour, "log", "-1", "--format=%ct", name)) for name in unmerged}
    recent = {name: count for name, count in unmerged.items() if last[name] >= found.oldest.at}
    assert {name: count for name, count, _ in found.branches.newest} == recent != {}
    assert found.branches.unmerged == len(recent)
    if commits == 6:  # a branch began before the analyzed commits
        since = f"--since={found.oldest.at}"
        within = {name: int(git(harbour, "rev-list", "--count", since, f"HEAD..{name}")) for name in recent}
        assert any(within[name] < count for name, count in recent.items())


def test_files_and_folders_at_the_end_and_at_the_start(both: Both) -> None:
    now, before = both.found.now, both.found.before
    line = git(both.folder, "rev-list", "--first-parent", "HEAD").split()
    start = next((commit for commit in line if commit not in set(both.commits)), None)
    paths = plain_git.files(both.folder, "HEAD")
    assert now is not None
    assert (now.files, now.folders) == (len(paths), len(plain_git.folders(both.folder, "HEAD")))
    for language, endings in (("Python", (".py", ".pyi")), ("Markdown", (".md", ".markdown"))):
        assert now.languages[language] == sum(path.endswith(endings) for path in paths)
    assert (before is None) == (start is None)
    assert start is None or (before and before.files) == len(plain_git.files(both.folder, start))
