"""Every figure of an analysis is that of plain git, run beside it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from memory.git_history.analysis import Analysis, Parts, analysed
from memory.git_history.facts import DAY, Limits
from memory.git_history.growth import POINTS
from memory.git_history.repository import Repository
from tests.history import plain_git
from tests.history.repositories import git, made

ALL = Parts(branches=True, authors=True)
NOW = int(time.time())
OURS = Path(__file__).resolve().parents[2]


def analysis(folder: Path, *, days: int = 36_500, commits: int = 1_000_000) -> Analysis:
    with Repository(folder) as repository:
        found = analysed(repository, Limits(days, commits, 600), ALL, now=NOW)
    assert found is not None
    return found


@dataclass(frozen=True)
class Both:
    """A repository, its analysis, and the commits that were covered, by git."""

    folder: Path
    found: Analysis
    these: list[str]


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("history") / "harbour.git", 700, ending=NOW - 60)


@pytest.fixture(scope="module", params=["all", "the newest 150", "of ten days", "our own"])
def both(request: pytest.FixtureRequest, harbour: Path) -> Both:
    if request.param == "our own":
        if not (OURS / ".git").exists() or git(OURS, "rev-parse", "--is-shallow-repository").strip() == "true":
            pytest.skip("this is no clone with a history")
        return Both(OURS, analysis(OURS), plain_git.commits(OURS))
    if request.param == "the newest 150":
        return Both(harbour, analysis(harbour, commits=150), plain_git.commits(harbour, "-n", "150"))
    if request.param == "of ten days":
        since = f"--since={NOW - 10 * DAY}"
        return Both(harbour, analysis(harbour, days=10), plain_git.commits(harbour, since))
    return Both(harbour, analysis(harbour), plain_git.commits(harbour))


# --- commits


def test_the_same_commits_in_the_same_order(both: Both) -> None:
    assert [fact.id for fact in both.found.facts] == both.these
    assert [fact.at for fact in both.found.facts] == plain_git.times(both.folder, both.these)
    plain = [fact.subject for fact in both.found.facts if not fact.is_merge]
    assert plain == plain_git.subjects(both.folder, both.these)


def test_merges_and_what_is_counted_of_the_others(both: Both) -> None:
    merges = plain_git.merges(both.folder, both.these)
    assert both.found.types is not None
    assert both.found.types["merge"] == merges
    assert both.found.quality.commits == len(both.these) - merges == sum(both.found.types.values()) - merges


def test_conventional_commits(both: Both) -> None:
    known = ("feat", "fix", "refactor", "docs", "test", "chore", "perf", "build", "ci", "style", "revert")
    said = [subject.split(":")[0].split("(")[0].rstrip("!") for subject in plain_git.subjects(both.folder, both.these)]
    if both.folder != OURS:  # people write what they like
        assert both.found.quality.conventional == sum(name in known for name in said)


# --- files


def test_the_same_files_of_each_commit(both: Both) -> None:
    ours = [sorted(fact.changes) for fact in both.found.facts if fact.changes is not None]
    assert ours == [sorted(paths) for paths in plain_git.changed(both.folder, both.these)]


def test_most_changed_files(both: Both) -> None:
    assert both.found.most_changed == tuple(plain_git.most_changed(both.folder, both.these)[:10])


def test_what_changes_together(both: Both) -> None:
    theirs = plain_git.together(both.folder, both.these)
    assert both.found.together is not None
    for two in both.found.together:
        assert theirs[two.first, two.second] == (two.times, two.of)
    most = sorted((times for times, _ in theirs.values()), reverse=True)[:10]
    assert [two.times for two in both.found.together] == most


def test_files_of_a_commit_and_tests_among_them(both: Both) -> None:
    each = plain_git.changed(both.folder, both.these)
    good = both.found.quality
    assert good.known == len(each)
    assert good.median_files == median(map(len, each))
    if both.folder != OURS:
        assert good.with_tests == sum(any(path.startswith("tests/") for path in paths) for paths in each)


# --- how it goes


def test_velocity(both: Both) -> None:
    speed, times = both.found.velocity, sorted(plain_git.times(both.folder, both.these))
    days = sorted({date.fromisoformat(day) for day in plain_git.days(both.folder, both.these)})
    middle = (times[0] + times[-1]) / 2
    assert (speed.commits, speed.active_days) == (len(times), len(days))
    assert speed.days == (days[-1] - days[0]).days + 1
    assert (speed.earlier, speed.later) == (sum(at < middle for at in times), sum(at >= middle for at in times))
    weeks = Counter((times[-1] - at) // (7 * DAY) for at in times)
    assert speed.weeks == tuple(weeks[nth] for nth in reversed(range(len(speed.weeks))))
    assert sum(speed.weeks) == len(times) or len(speed.weeks) == 13
    pauses = [(after - before).days - 1 for before, after in pairwise(days)]
    assert speed.longest_pause == max(pauses, default=0)


def test_authors(both: Both) -> None:
    assert both.found.authors is not None
    if len(both.these) == len(plain_git.commits(both.folder)):
        assert dict(both.found.authors) == plain_git.people(both.folder)
    assert sum(commits for _, commits in both.found.authors) == len(both.these)


# --- branches, tags


def test_branches_that_were_merged(both: Both) -> None:
    assert both.found.merged is not None
    ours = [(each.at, each.commits, each.days) for each in both.found.merged]
    if len(both.these) == len(plain_git.commits(both.folder)):
        assert ours == plain_git.merged(both.folder)
    assert len(ours) > 3


def test_branches_that_were_not(harbour: Path) -> None:
    found = analysis(harbour)
    assert found.unmerged is not None
    assert {each.name: each.commits for each in found.unmerged} == plain_git.unmerged(harbour) != {}


def test_tags(both: Both) -> None:
    assert both.found.milestones is not None
    assert sorted(tag.name for tag in both.found.milestones.tags) == sorted(plain_git.tags(both.folder))
    assert all(
        git(both.folder, "rev-parse", f"{tag.name}^{{commit}}").strip() == tag.commit
        for tag in both.found.milestones.tags
    )


# --- growth


def before(both: Both) -> str | None:
    """The first commit of the main line that was not covered."""
    line = git(both.folder, "rev-list", "--first-parent", "HEAD").split()
    return next((commit for commit in line if commit not in set(both.these)), None)


def test_growth(both: Both) -> None:
    grown, start = both.found.growth, before(both)
    assert grown is not None
    assert grown.now.files == len(plain_git.files(both.folder, "HEAD"))
    assert (grown.before is None) == (start is None)
    if grown.before is not None and start is not None:
        assert grown.before.files == len(plain_git.files(both.folder, start))
    line = [each for each in git(both.folder, "rev-list", "--first-parent", "HEAD").split() if each in set(both.these)]
    counted = {
        (int(git(both.folder, "show", "-s", "--format=%ct", each)), len(plain_git.files(both.folder, each)))
        for each in (line[-1], line[0])
    }
    assert {grown.points[0], grown.points[-1]} == counted
    assert len(grown.points) <= POINTS


def test_stack_and_shape(both: Both) -> None:
    grown, paths = both.found.growth, plain_git.files(both.folder, "HEAD")
    assert grown is not None
    assert grown.now.languages["Python"] == sum(path.endswith(".py") for path in paths)
    assert grown.now.languages["Markdown"] == sum(path.endswith((".md", ".markdown")) for path in paths)
    assert grown.now.folders == len({path.rpartition("/")[0] for path in paths})
    assert grown.now.deepest == max(path.count("/") for path in paths)


def test_what_this_project_is_made_of() -> None:
    if not (OURS / ".git").exists():
        pytest.skip("this is no clone")
    grown = analysis(OURS, commits=5).growth
    assert grown is not None
    assert "Django" in grown.frameworks
    assert {"Make", "Python packaging", "pip"} <= set(grown.now.tools)
