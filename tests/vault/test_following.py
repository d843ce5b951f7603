"""The files of an edit exist when the edit returns (seed 004, "Memory Storage Process")."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.agents import rule_changes
from memory.models import Agent
from memory.policy.categories import SCOPES
from memory.policy.validation import Draft
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.writing import operations
from tests.rules.talking import settings
from tests.rules.test_places import TREE
from tests.steps import ME, PERSON, fresh, last_entry, remember
from tests.vault.tree import differences, memory_files, only_file, tree

DAY = datetime(2026, 2, 1, 9, 30, tzinfo=UTC)


def test_a_memory_is_a_file_a_person_can_read(ada: Agent, vault: Path) -> None:
    remember(ada, "The ferry leaves at 14:30.", category="technical", origin=DAY, tags=["ferry", "times"])
    path = only_file(vault)
    assert path.relative_to(vault).as_posix() == "common/technical/000001.md"
    text = path.read_text()
    assert text.startswith("# Memory Entry: technical - 2026-02-01T09:30:00Z\n\n## Metadata\n- **Version**: 1.0.0\n")
    assert "\n## Understanding\nThe ferry leaves at 14:30.\n" in text
    assert text.endswith("\n## Tags\nferry, times\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert differences(ada) == []


def test_every_category_has_its_place(ada: Agent, vault: Path) -> None:
    for category in SCOPES:
        remember(ada, f"About {category}", category=category, project="site")
    assert {str(Path(path).parent) for path in memory_files(vault)} == set(TREE.values())
    pages = ["index.md", "private/index.md", "projects/site/index.md"]
    assert [path for path in tree(vault) if path.endswith("index.md")] == pages


def test_a_discarded_file_moves_away_and_a_restored_file_moves_back(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "The ferry leaves at 14:30.", category="technical")
    before = only_file(vault)
    operations.discard(ada, [number], PERSON)
    assert only_file(vault) == vault / ".discarded" / before.relative_to(vault)
    operations.restore(ada, [number], PERSON)
    assert only_file(vault) == before
    assert differences(ada) == []


def test_a_refused_edit_and_a_notice_write_no_file(ada: Agent, vault: Path) -> None:
    with pytest.raises(Exception, match="category"):
        operations.remember(ada, [Draft("one"), Draft("two", category="none such")], ME)
    operations.notify(ada, "Somebody read.", operation="content_read", actor=PERSON, detail={})
    assert tree(vault) == []


@pytest.mark.parametrize("is_whole", [False, True], ids=["category", "memory"])
def test_a_rollback_while_off_moves_files_when_on(ada: Agent, vault: Path, is_whole: bool) -> None:
    def turn(is_on: bool) -> None:
        if is_whole:
            rule_changes.change(fresh(ada), PERSON, enabled=is_on)
        else:
            settings(ada, categories__technical__enabled=is_on)

    remember(ada, "The ferry leaves at 14:30.", category="technical")
    seq = last_entry(ada).seq
    turn(False)
    before = tree(vault)
    rollback.roll_back(fresh(ada), What.entry(seq), PERSON)  # a rollback does not depend on the switches
    assert tree(vault) == before
    turn(True)
    assert memory_files(vault) == [".discarded/common/technical/000001.md"]
