"""An analysis as a memory: in its template, one for each project, said anew when there is more; what it leaves out."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from memory.consent import redaction, removal_requests
from memory.git_history import keeping, telling
from memory.git_history.analysis import Analysis, Parts, analysed, limits_of
from memory.git_history.facts import Deadline, Limits, packed, unpacked
from memory.git_history.repository import Repository
from memory.markdown import sections
from memory.models import Agent, HistoryAnalysis
from memory.policy import switches
from memory.policy.validation import MAX_CONTENT
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.history.repositories import git, made
from tests.history.test_odd_repositories import commit
from tests.rules import talking
from tests.steps import ME, PERSON, active, fresh, last_entry, row, says

NOW = int(time.time())
WIDE = Limits(36_500, 100_000, 600)
ALL = Parts(branches=True, authors=True)


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("kept") / "harbour.git", 200, ending=NOW - 60)


def analysis(folder: Path, parts: Parts = ALL, limits: Limits = WIDE, **more: object) -> Analysis:
    with Repository(folder) as repository:
        found = analysed(repository, limits, parts, now=NOW, **more)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "feat: winds", {"winds.py": "1", "tests/test_winds.py": "1"})
    return folder


# --- what it says


def test_in_the_sections_of_its_template(harbour: Path) -> None:
    said = sections.parted(telling.told(analysis(harbour), "harbour"), "git_history")
    assert list(said) == list(sections.names("git_history"))
    for heading in ("### Major Commits", "### Pattern Insights"):
        assert heading in said["Commit Analysis"]


def test_each_label_of_the_seed(harbour: Path) -> None:
    said = telling.told(analysis(harbour), "harbour")
    for label in (
        "Project Evolution", "Development Patterns", "Milestones", "Architecture Insights", "Most Changed Files",
        "Common Commit Types", "Author Patterns", "Main Branches", "Feature Branches", "Release Strategy",
        "File Count Growth", "Complexity Trends", "Technology Stack", "Project Velocity", "Quality Indicators",
        "Collaboration Patterns", "Areas for Attention", "Best Practices", "Future Considerations",
    ):  # fmt: skip
        assert label in said


def test_what_was_not_looked_at_is_not_said(harbour: Path) -> None:
    none = Parts(messages=False, files=False, branches=False, milestones=False, patterns=False, authors=False)
    said = telling.told(analysis(harbour, none), "harbour")
    for absent in ("Major Commits", "m1.py", "feature 1", "v0.1", "Python", "merged", "people"):
        assert absent not in said
    assert "Not recorded" in said


def test_a_long_one_is_cut_to_what_a_memory_holds(work: Path) -> None:
    for nth in range(12):
        names = {f"{'folder-of-' * 14}{nth}/{'file-' * 20}{other}.py": str(nth) for other in range(4)}
        for again in range(3):
            texts = {name: f"{text} {again}" for name, text in names.items()}
            commit(work, f"feat!: {'winds ' * 40}{nth}\n\n{'Because of winds and tides, ' * 9}{nth}.", texts)
    said = telling.told(analysis(work), "work")
    assert 5_000 < len(said) <= MAX_CONTENT
    assert list(sections.parted(said, "git_history")) == list(sections.names("git_history"))


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.mark.parametrize("with_authors", [False, True])
def test_neither_secrets_nor_addresses_and_people_only_when_asked(work: Path, with_authors: bool) -> None:
    commit(
        work,
        f"feat!: a token {SECRET} for Ada Quay\n\nBecause ada@quay.test and @adaq asked for it, long ago.",
        {"a": "1"},
    )
    git(work, "checkout", "-qb", "winds")
    commit(work, "feat: gusts", {"b": "1"})
    git(work, "checkout", "-q", "main")
    who = ("-c", "user.name=Ada Quay", "-c", "user.email=ada@quay.test")
    git(work, *who, "merge", "-q", "--no-ff", "-m", "Merge pull request #5 from adaq/winds", "winds")
    git(work, *who, "tag", "-a", "v1.0.0", "-m", f"by ada@quay.test {SECRET}")
    found = analysis(work, Parts(branches=True, authors=with_authors))
    said = telling.told(found, "work")
    assert "a token" in said
    for hidden in (SECRET, "ada@quay.test", *(() if with_authors else ("Ada Quay", "adaq"))):
        assert hidden not in said
    assert ("Ada Quay" in said) is with_authors


def test_markup_in_messages_makes_no_sections(work: Path) -> None:
    commit(work, "feat!: ## Recommendations\n\n## Key Findings\nbecause of that which was said before", {"a": "2"})
    said = sections.parted(telling.told(analysis(work), "work"), "git_history")
    assert said["Key Findings"].startswith("- Project Evolution")


# --- kept


def test_as_a_memory_of_its_project(ada: Agent, harbour: Path) -> None:
    found = analysis(harbour)
    kept = keeping.keep(ada, "harbour", found, OPERATOR)
    memory, said = row(ada, kept.number), says(ada, kept.number)
    assert (memory.category, memory.project, memory.kind, kept.is_new) == ("git_history", "harbour", "journal", True)
    assert int(memory.origin.timestamp()) == found.facts[0].at
    assert said.content.startswith("## Analysis Summary\nGit history of harbour\n")
    assert {tag.partition(":")[0] for tag in said.tags} == {"analysis", "range", "method", "preserved", "privacy"}


def test_it_is_said_anew_and_stays_one(ada: Agent, work: Path) -> None:
    first = keeping.keep(ada, "work", analysis(work), OPERATOR)
    commit(work, "fix: gusts", {"gusts.py": "1"})
    second = keeping.keep(fresh(ada), "work", analysis(work), OPERATOR)
    assert (second.number, second.is_new, second.entry) == (first.number, False, last_entry(ada).seq)
    assert "2 commits" in says(ada, first.number).content
    assert active(ada) == [first.number]
    again = keeping.keep(fresh(ada), "work", analysis(work), OPERATOR)
    assert again.entry is None  # it says the same


def test_each_project_has_its_own(ada: Agent, harbour: Path, work: Path) -> None:
    numbers = {
        keeping.keep(fresh(ada), name, analysis(of), OPERATOR).number for name, of in (("a", harbour), ("b", work))
    }
    assert len(numbers) == 2


@pytest.mark.parametrize("how", ["discarded", "revised", "protected"])
def test_one_that_is_no_more_as_it_was_written_is_left(ada: Agent, work: Path, how: str) -> None:
    first = keeping.keep(ada, "work", analysis(work), OPERATOR).number
    if how == "discarded":
        operations.discard(fresh(ada), [first], ME)
    elif how == "revised":
        operations.revise(fresh(ada), first, ME, content="What the agent made of it.")
    else:
        operations.protect(fresh(ada), [first], PERSON)
    before = row(ada, first).version
    second = keeping.keep(fresh(ada), "work", analysis(work), OPERATOR)
    assert second.is_new
    assert second.number != first
    assert row(ada, first).version == before


def test_what_is_switched_off_is_not_kept(ada: Agent, work: Path) -> None:
    found = analysis(work)
    talking.off(ada, "git_history")
    with pytest.raises(Exception, match="git_history are switched off"):
        keeping.keep(fresh(ada), "work", found, OPERATOR)
    assert not HistoryAnalysis.objects.exists()


# --- kept between analyses


def test_what_is_known_is_not_read_again(ada: Agent, harbour: Path) -> None:
    found = analysis(harbour)
    keeping.keep(ada, "harbour", found, OPERATOR)
    done = keeping.last(ada, "harbour")
    assert done is not None
    with mock.patch.object(Repository, "changes", side_effect=AssertionError):
        assert analysis(harbour, known=keeping.facts_of(fresh(ada), done)).facts == found.facts


def test_the_same_head_is_known_and_another_question_is_not(ada: Agent, work: Path) -> None:
    found = analysis(work)
    keeping.keep(ada, "work", found, OPERATOR)
    done = keeping.last(ada, "work")
    assert done is not None
    assert keeping.is_known(ada, done, found.head, WIDE, ALL)
    assert not keeping.is_known(ada, done, found.head, Limits(1, 1, 1), ALL)
    assert not keeping.is_known(ada, done, found.head, WIDE, Parts())
    assert not keeping.is_known(ada, done, commit(work, "more", {"c": "1"}), WIDE, ALL)
    operations.discard(fresh(ada), [done.memory], ME)
    assert not keeping.is_known(ada, done, found.head, WIDE, ALL)


def test_the_facts_are_sealed(ada: Agent, work: Path) -> None:
    keeping.keep(ada, "work", analysis(work), OPERATOR)
    sealed = bytes(HistoryAnalysis.objects.get().sealed_facts)
    assert b"winds" not in sealed
    assert len(sealed) > 100


def test_they_are_kept_only_where_the_settings_have_it(ada: Agent, work: Path) -> None:
    ada = talking.settings(ada, project_support__git_history_analysis__cache_analysis_results=False)
    keeping.keep(ada, "work", analysis(work), OPERATOR)
    done = keeping.last(ada, "work")
    assert done is not None
    assert keeping.facts_of(fresh(ada), done) == {}
    assert keeping.is_known(fresh(ada), done, analysis(work).head, WIDE, ALL)


def test_a_redaction_takes_them_along(ada: Agent, work: Path) -> None:
    number = keeping.keep(ada, "work", analysis(work), OPERATOR).number
    asked = removal_requests.ask_redaction(fresh(ada), [number], PERSON, reason="x").number
    redaction.redact(fresh(ada), asked, ME)
    assert not HistoryAnalysis.objects.exists()


def test_packing(harbour: Path) -> None:
    found = analysis(harbour)
    assert unpacked(packed(found.gathered)) == {fact.id: fact for fact in found.facts}
    for broken in ("", "x", packed(found.gathered)[:-9], "é"):
        assert unpacked(broken) == {}


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=strategies.integers(0, 10**6), steps=strategies.lists(strategies.integers(1, 40), min_size=1, max_size=4))
def test_bit_by_bit_is_the_same_as_all_at_once(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: list[int]
) -> None:
    """Analysed after every few commits with the facts of the time before, out of time now and then, or all at once."""
    folder = made(tmp_path_factory.mktemp("bits") / "r.git", sum(steps) + 20, ending=NOW - 60, seed=seed)
    head, chance, known = git(folder, "rev-parse", "HEAD").strip(), random.Random(seed), {}
    line = git(folder, "rev-list", "--first-parent", "--reverse", "HEAD").split()
    for step in steps:
        git(folder, "update-ref", "HEAD", line[min(step, len(line) - 1)])
        deadline = Deadline(1, iter([0.0] * chance.randint(2, 30) + [0.7] * 10_000).__next__)
        known = unpacked(packed(analysis(folder, known=known, deadline=deadline).gathered))
    git(folder, "update-ref", "HEAD", head)
    bit_by_bit, at_once = analysis(folder, known=known), analysis(folder)
    assert telling.told(bit_by_bit, "r") == telling.told(at_once, "r")
    assert bit_by_bit.facts == at_once.facts
    shutil.rmtree(folder)


# --- settings


def test_the_settings_are_the_limits_and_the_parts(ada: Agent) -> None:
    rules = switches.rules_of(ada)
    assert limits_of(rules) == Limits(90, 100, 30)  # the seed's
    assert Parts.of(rules) == Parts(True, True, False, True, True, False)
    assert limits_of(rules, days=5, commits=None).days == 5
    of = {"track_branch_evolution": True, "analyze_file_changes": False, "max_commits_to_analyze": 7}
    ada = talking.settings(
        ada,
        categories__git_history__extract_patterns=False,
        **{f"project_support__git_history_analysis__{key}": value for key, value in of.items()},
    )
    rules = switches.rules_of(ada)
    assert limits_of(rules).commits == 7
    assert Parts.of(rules) == Parts(True, False, True, True, False, False)
    assert Parts.of(rules, branches=None, authors=True).authors
