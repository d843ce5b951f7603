"""An analysis is stored as one memory for each project, which is updated by later analyses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory.consent import redaction, requests
from memory.git_history import storage
from memory.git_history.analysis import Limits, Parts, limits_of
from memory.models import Agent, HistoryAnalysis
from memory.policy import switches
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.history.repositories import ALL, WIDE, analysis, commit
from tests.rules import recordings
from tests.steps import ME, PERSON, active, fresh, last_entry, remember, row, says


def test_an_analysis_is_a_memory_of_its_project(ada: Agent, harbour: Path, work: Path) -> None:
    found = analysis(harbour)
    stored = storage.store(ada, "harbour", found, OPERATOR)
    memory, opened = row(ada, stored.number), says(ada, stored.number)
    assert (memory.category, memory.project, memory.kind, stored.is_new) == ("git_history", "harbour", "journal", True)
    assert int(memory.origin.timestamp()) == found.newest.at
    assert opened.content.startswith("## Analysis Summary\nGit history of harbour: ")
    assert {tag.partition(":")[0] for tag in opened.tags} == {"analysis", "range", "method", "preserved", "privacy"}
    assert storage.store(fresh(ada), "work", analysis(work), OPERATOR).number != stored.number


def test_a_later_analysis_updates_the_memory(ada: Agent, work: Path) -> None:
    first = storage.store(ada, "work", analysis(work), OPERATOR)
    commit(work, "fix: gusts", {"gusts.py": "1"})
    second = storage.store(fresh(ada), "work", analysis(work), OPERATOR)
    assert (second.number, second.is_new, last_entry(ada).operation) == (first.number, False, "revised")
    assert ("2 commits" in says(ada, first.number).content, active(ada)) == (True, [first.number])
    entries = fresh(ada).audit_seq
    storage.store(fresh(ada), "work", analysis(work), OPERATOR)  # the same text
    assert fresh(ada).audit_seq == entries


CHANGES: dict[str, Callable[[Agent, int], Any]] = {
    "discarded": lambda ada, number: operations.discard(ada, [number], ME),
    "revised": lambda ada, number: operations.revise(ada, number, ME, content="What the agent made of it."),
    "protected": lambda ada, number: operations.protect(ada, [number], PERSON),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_memory_that_was_changed_since_is_not_overwritten(ada: Agent, work: Path, change: str) -> None:
    first = storage.store(ada, "work", analysis(work), OPERATOR).number
    CHANGES[change](fresh(ada), first)
    before = row(ada, first).version
    second = storage.store(fresh(ada), "work", analysis(work), OPERATOR)
    assert (second.is_new, second.number != first, row(ada, first).version) == (True, True, before)


def test_a_row_that_names_another_memory_overwrites_nothing(ada: Agent, work: Path) -> None:
    """SQL can change the row."""
    storage.store(ada, "work", analysis(work), OPERATOR)
    [secret] = remember(ada, "the code of the safe", kind="journal")
    HistoryAnalysis.objects.update(memory=secret, version=row(ada, secret).version, head="")
    assert storage.store(fresh(ada), "work", analysis(work), OPERATOR).is_new
    assert says(ada, secret).content == "the code of the safe"


def test_while_the_category_is_off_nothing_is_stored(ada: Agent, work: Path) -> None:
    recordings.off(ada, "git_history")
    with pytest.raises(Exception, match="git_history is off"):
        storage.store(fresh(ada), "work", analysis(work), OPERATOR)
    assert not HistoryAnalysis.objects.exists()


def test_an_analysis_is_current_for_the_same_head_limits_and_parts(ada: Agent, work: Path) -> None:
    found = analysis(work)
    storage.store(ada, "work", found, OPERATOR)
    done, rules = storage.last(ada, "work"), switches.rules_of(ada)
    assert done is not None
    assert storage.is_current(ada, done, found.head, WIDE, ALL, rules)
    assert not storage.is_current(ada, done, found.head, Limits(1, 1, 1), ALL, rules)
    assert not storage.is_current(ada, done, found.head, WIDE, Parts(), rules)
    assert not storage.is_current(ada, done, commit(work, "more", {"c": "1"}), WIDE, ALL, rules)
    off = recordings.settings(ada, project_support__git_history_analysis__cache_analysis_results=False)
    assert not storage.is_current(off, done, found.head, WIDE, ALL, switches.rules_of(off))
    operations.discard(fresh(ada), [done.memory], ME)
    assert not storage.is_current(ada, done, found.head, WIDE, ALL, rules)


def test_a_redaction_removes_the_analysis(ada: Agent, work: Path) -> None:
    number = storage.store(ada, "work", analysis(work), OPERATOR).number
    request = requests.ask_redaction(fresh(ada), [number], PERSON, reason="x").number
    redaction.redact(fresh(ada), request, ME)
    assert not HistoryAnalysis.objects.exists()


def test_the_settings_are_the_limits_and_the_parts(ada: Agent) -> None:
    rules = switches.rules_of(ada)
    assert (limits_of(rules), limits_of(rules, days=5, commits=None).days) == (Limits(90, 100, 30), 5)  # the seed's
    assert Parts.of(rules) == Parts(True, True, False, True, True, False)
    changed = {"track_branch_evolution": True, "analyze_file_changes": False, "max_commits_to_analyze": 7}
    paths = {f"project_support__git_history_analysis__{name}": value for name, value in changed.items()}
    rules = switches.rules_of(recordings.settings(ada, categories__git_history__extract_patterns=False, **paths))
    assert limits_of(rules).commits == 7
    assert Parts.of(rules) == Parts(True, False, True, True, False, False)
    assert Parts.of(rules, branches=None, authors=True).authors
