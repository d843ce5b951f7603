"""A vault follows its silo: each edit's files are there when it returns (seed 004, "Memory Storage Process")."""

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
from memory.vault import sealed
from memory.writing import operations
from tests.rules.talking import agreed
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
    folders = sorted({str(Path(path).parent) for path in memories(vault)})
    assert folders == [
        "common/behavioral",
        "common/technical",
        "private/credentials",
        "private/keys",
        "private/personal",
        "private/sensitive",
        "projects/site/contextual",
        "projects/site/git_history",
        "projects/site/interactions",
        "projects/site/sessions",
        "projects/site/topics",
    ]
    assert [path for path in tree(vault) if path.endswith("index.md")] == [
        "index.md",
        "private/index.md",
        "projects/site/index.md",
    ]


@pytest.mark.parametrize("category", ["personal", "credentials", "sensitive", "keys"])
def test_what_is_private_is_sealed(ada: Agent, vault: Path, category: str) -> None:
    remember(ada, "sesame opens the door", category=category, tags=["door"])
    for path in tree(vault):
        assert "sesame" not in path + (vault / path).read_text()
        assert "door" not in path + (vault / path).read_text()
    opened = sealed.open_file(fresh(ada), the_one(vault).read_bytes())
    assert (opened.content, opened.tags) == ("sesame opens the door", ("door",))


def test_a_credential_is_named_by_its_service(ada: Agent, vault: Path) -> None:
    said = {"category": "credentials", "tags": ["service:OpenAI", "credential:api-key"]}
    remember(ada, "one", **said)
    remember(ada, "two", **said)
    remember(ada, "three", **{**said, "project": "project-a"})
    assert memories(vault) == [
        "private/credentials/openai-api-key-000002.md",
        "private/credentials/openai-api-key.md",
        "private/credentials/project-a-openai-api-key.md",
    ]


def test_a_revision_rewrites_its_file(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "The ferry leaves at 14:30.", category="technical")
    path = the_one(vault)
    operations.revise(ada, number, ME, content="The ferry leaves at 15:10.")
    assert the_one(vault) == path
    assert "15:10" in path.read_text()
    assert "14:30" not in path.read_text()


def test_what_is_discarded_is_set_aside_and_comes_back(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "The ferry leaves at 14:30.", category="technical")
    before = the_one(vault)
    operations.discard(ada, [number], PERSON)
    assert the_one(vault) == vault / ".discarded" / before.relative_to(vault)
    operations.restore(ada, [number], PERSON)
    assert the_one(vault) == before
    assert differ(ada) == []


def test_a_merge_and_its_rollback(ada: Agent, vault: Path) -> None:
    one, two = remember(ada, "The ferry leaves at 14:30.", "The ferry is blue.", category="technical")
    operations.consolidate(ada, [one, two], "The blue ferry leaves at 14:30.", PERSON)
    assert [path.startswith(".discarded") for path in memories(vault)] == [True, True, False]
    rollback.roll_back(ada, What.entry(last_entry(ada).seq), PERSON)
    assert [path.startswith(".discarded") for path in memories(vault)] == [True, False, False]
    assert differ(ada) == []


def test_an_edit_that_is_refused_writes_nothing(ada: Agent, vault: Path) -> None:
    with pytest.raises(Exception, match="category"):
        operations.remember(ada, [Draft("one"), Draft("two", category="none such")], ME)
    assert tree(vault) == []


def test_a_closed_categorys_files_stay_as_they_are(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "The ferry leaves at 14:30.", category="technical")
    seq = last_entry(ada).seq
    off(ada, "technical")
    before = tree(vault)
    rollback.roll_back(ada, What.entry(seq), PERSON)  # which passes the switches
    assert tree(vault) == before
    off(ada, "technical", is_on=True)
    assert memories(vault) == [f".discarded/common/technical/{number:06}.md"]


def test_while_memory_is_off_nothing_is_written(ada: Agent, vault: Path) -> None:
    remember(ada, "The ferry leaves at 14:30.", category="technical")
    seq = last_entry(ada).seq
    rule_changes.change(ada, PERSON, enabled=False)
    before = tree(vault)
    rollback.roll_back(fresh(ada), What.entry(seq), PERSON)
    assert tree(vault) == before
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    assert memories(vault) == [".discarded/common/technical/000001.md"]


def test_a_notice_of_the_system_has_no_file(ada: Agent, vault: Path) -> None:
    operations.notify(ada, "Somebody read.", operation="content_read", actor=PERSON, detail={})
    assert tree(vault) == []
