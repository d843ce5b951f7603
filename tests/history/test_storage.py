"""An analysis as a memory: one for each project, rewritten when there is more."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.consent import redaction, removal_requests
from memory.git_history import storage
from memory.git_history.analysis import Limits, Parts, limits_of
from memory.models import Agent, HistoryAnalysis
from memory.policy import switches
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.history.repositories import ALL, WIDE, analysis, commit
from tests.rules import talking
from tests.steps import ME, PERSON, active, fresh, last_entry, row, says


def test_as_a_memory_of_its_project(ada: Agent, harbour: Path) -> None:
    found = analysis(harbour)
    kept = storage.store(ada, "harbour", found, OPERATOR)
    memory, said = row(ada, kept.number), says(ada, kept.number)
    assert (memory.category, memory.project, memory.kind, kept.is_new) == ("git_history", "harbour", "journal", True)
    assert int(memory.origin.timestamp()) == found.newest.at
    assert said.content.startswith("## Analysis Summary\nGit history of harbour: ")
    assert {tag.partition(":")[0] for tag in said.tags} == {"analysis", "range", "method", "preserved", "privacy"}


def test_it_is_said_anew_and_stays_one(ada: Agent, work: Path) -> None:
    first = storage.store(ada, "work", analysis(work), OPERATOR)
    commit(work, "fix: gusts", {"gusts.py": "1"})
    second = storage.store(fresh(ada), "work", analysis(work), OPERATOR)
    assert (second.number, second.is_new, second.entry) == (first.number, False, last_entry(ada).seq)
    assert "2 commits" in says(ada, first.number).content
    assert active(ada) == [first.number]
    again = storage.store(fresh(ada), "work", analysis(work), OPERATOR)
    assert again.entry is None  # it says the same


def test_each_project_has_its_own(ada: Agent, harbour: Path, work: Path) -> None:
    numbers = {
        storage.store(fresh(ada), name, analysis(of), OPERATOR).number for name, of in (("a", harbour), ("b", work))
    }
    assert len(numbers) == 2


@pytest.mark.parametrize("how", ["discarded", "revised", "protected"])
def test_one_that_is_no_more_as_it_was_written_is_left(ada: Agent, work: Path, how: str) -> None:
    first = storage.store(ada, "work", analysis(work), OPERATOR).number
    if how == "discarded":
        operations.discard(fresh(ada), [first], ME)
    elif how == "revised":
        operations.revise(fresh(ada), first, ME, content="What the agent made of it.")
    else:
        operations.protect(fresh(ada), [first], PERSON)
    before = row(ada, first).version
    second = storage.store(fresh(ada), "work", analysis(work), OPERATOR)
    assert second.is_new
    assert second.number != first
    assert row(ada, first).version == before


def test_what_is_switched_off_is_not_kept(ada: Agent, work: Path) -> None:
    found = analysis(work)
    talking.off(ada, "git_history")
    with pytest.raises(Exception, match="git_history is off"):
        storage.store(fresh(ada), "work", found, OPERATOR)
    assert not HistoryAnalysis.objects.exists()


def test_the_same_head_is_current_and_another_question_is_not(ada: Agent, work: Path) -> None:
    found = analysis(work)
    storage.store(ada, "work", found, OPERATOR)
    done, rules = storage.last(ada, "work"), switches.rules_of(ada)
    assert done is not None
    assert storage.is_current(ada, done, found.head, WIDE, ALL, rules)
    assert not storage.is_current(ada, done, found.head, Limits(1, 1, 1), ALL, rules)
    assert not storage.is_current(ada, done, found.head, WIDE, Parts(), rules)
    assert not storage.is_current(ada, done, commit(work, "more", {"c": "1"}), WIDE, ALL, rules)
    off = talking.settings(ada, project_support__git_history_analysis__cache_analysis_results=False)
    assert not storage.is_current(off, done, found.head, WIDE, ALL, switches.rules_of(off))
    operations.discard(fresh(ada), [done.memory], ME)
    assert not storage.is_current(ada, done, found.head, WIDE, ALL, rules)


def test_a_redaction_removes_the_analysis(ada: Agent, work: Path) -> None:
    number = storage.store(ada, "work", analysis(work), OPERATOR).number
    asked = removal_requests.ask_redaction(fresh(ada), [number], PERSON, reason="x").number
    redaction.redact(fresh(ada), asked, ME)
    assert not HistoryAnalysis.objects.exists()


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
