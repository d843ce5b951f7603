"""A vault follows its silo: each edit's files are there when it returns (seed 004, "Memory Storage Process")."""

from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.agents.rule_changes import change
from memory.models import Agent
from memory.policy.categories import SCOPES
from memory.policy.validation import Draft
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.writing import operations
from tests.rules.talking import agreed
from tests.rules.test_places import TREE
from tests.steps import ME, PERSON, fresh, last_entry, remember
from tests.vault.tree import differ, memories, the_one, tree

DAY = datetime(2026, 2, 1, 9, 30, tzinfo=UTC)


def off(agent: Agent, category: str, *, is_on: bool = False) -> None:
    agreed(agent, {"memory_rules": {"categories": {category: {"enabled": is_on}}}})


def test_a_memory_is_a_file_a_person_can_read(ada: Agent, vault: Path) -> None:
    remember(ada, "The ferry leaves at 14:30.", category="technical", origin=DAY, tags=["ferry", "times"])
    path = the_one(vault)
    assert path.relative_to(vault).as_posix() == "common/technical/000001.md"
    text = path.read_text()
    assert text.startswith("# Memory Entry: technical - 2026-02-01T09:30:00Z\n\n## Metadata\n- **Version**: 1.0.0\n")
    assert "\n## Understanding\nThe ferry leaves at 14:30.\n" in text
    assert text.endswith("\n## Tags\nferry, times\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert differ(ada) == []


def test_every_category_has_its_place(ada: Agent, vault: Path) -> None:
    for category in SCOPES:
        remember(ada, f"About {category}", category=category, project="site")
    assert {str(Path(path).parent) for path in memories(vault)} == set(TREE.values())
    assert [path for path in tree(vault) if path.endswith("index.md")] == [
        "index.md",
        "private/index.md",
        "projects/site/index.md",
    ]


def test_what_is_discarded_is_set_aside_and_comes_back(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "The ferry leaves at 14:30.", category="technical")
    before = the_one(vault)
    operations.discard(ada, [number], PERSON)
    assert the_one(vault) == vault / ".discarded" / before.relative_to(vault)
    operations.restore(ada, [number], PERSON)
    assert the_one(vault) == before
    assert differ(ada) == []


def test_an_edit_that_is_refused_writes_nothing(ada: Agent, vault: Path) -> None:
    with pytest.raises(Exception, match="category"):
        operations.remember(ada, [Draft("one"), Draft("two", category="none such")], ME)
    operations.notify(ada, "Somebody read.", operation="content_read", actor=PERSON, detail={})  # nor does a notice
    assert tree(vault) == []


@pytest.mark.parametrize(
    "switch",
    [lambda ada, is_on: off(ada, "technical", is_on=is_on), lambda ada, is_on: change(ada, PERSON, enabled=is_on)],
    ids=["category", "memory"],
)
def test_files_of_what_is_off_stay_as_they_are(ada: Agent, vault: Path, switch: Callable[[Agent, bool], None]) -> None:
    [number] = remember(ada, "The ferry leaves at 14:30.", category="technical")
    seq = last_entry(ada).seq
    switch(ada, False)
    before = tree(vault)
    rollback.roll_back(fresh(ada), What.entry(seq), PERSON)  # which passes the switches
    assert tree(vault) == before
    switch(fresh(ada), True)
    assert memories(vault) == [f".discarded/common/technical/{number:06}.md"]
