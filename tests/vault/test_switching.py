"""Settings that make categories private, masked or off change the files of the vault, also during a write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import connection

from memory.agents import rule_changes
from memory.models import Agent
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.vault import comparing, layout, writer
from memory.vault.files import open_file
from memory.writing import operations
from tests.rules.talking import settings
from tests.steps import ME, PERSON, fresh, last_entry, remember
from tests.vault.tree import all_text, differences, edit, memory_files


def change_during_a_write(ada: Agent, change: Callable[[], Any]) -> None:
    """Store a memory. Another thread makes the change while the memory's file is written."""
    threads: list[threading.Thread] = []
    real = layout.add

    def change_and_close() -> None:
        try:
            change()
        finally:
            connection.close()

    def add(*args: Any, **values: Any) -> None:
        if not threads:
            before, until = fresh(ada).audit_seq, time.monotonic() + 20
            threads.append(threading.Thread(target=change_and_close))
            threads[0].start()
            while fresh(ada).audit_seq == before and time.monotonic() < until:
                time.sleep(0.01)
        real(*args, **values)

    with mock.patch.object(layout, "add", side_effect=add):
        remember(fresh(ada), "Moss is green.", category="behavioral")
    threads[0].join()


def store(agent: Agent, *texts: str, category: str = "technical", **values: Any) -> None:
    remember(fresh(agent), *texts, category=category, **values)


def make_private(ada: Agent, **more: object) -> Agent:
    return settings(ada, categories__technical__storage_location="private", **more)


def assert_sealed(ada: Agent, vault: Path, expected: list[tuple[str, int]] | None = None) -> None:
    assert ("eather" in all_text(vault), differences(ada)) == (False, expected or [])


def test_a_category_that_becomes_private_during_a_write_is_sealed(ada: Agent, vault: Path) -> None:
    store(ada, "Heather blooms.")
    assert "eather" in all_text(vault)
    change_during_a_write(ada, lambda: make_private(ada))
    writer.catch_up()
    assert_sealed(ada, vault)


def test_a_category_that_is_turned_on_during_a_write_is_updated(ada: Agent, vault: Path) -> None:
    store(ada, "Heather blooms.")
    operations.discard(fresh(ada), [1], ME)
    discarded = last_entry(ada).seq
    settings(ada, categories__technical__enabled=False)
    rollback.roll_back(fresh(ada), What.entry(discarded), PERSON)
    change_during_a_write(ada, lambda: settings(ada))
    writer.catch_up()
    assert differences(ada) == []


def test_an_index_does_not_name_memories_of_a_category_that_is_off(ada: Agent, vault: Path) -> None:
    store(ada, "Heather blooms.")
    store(ada, "Moss is green.", category="behavioral")
    store(ada, "Ferns fade.", category="topic", project="secret-garden")

    def named() -> list[str]:
        pages = "".join(path.read_text() for path in vault.rglob("index.md"))
        return [word for word in ("heather", "ferns", "garden", "moss") if word in pages]

    settings(ada, categories__technical__enabled=False, categories__topic__enabled=False)
    for page in vault.rglob("index.md"):
        page.unlink()
    assert comparing.repair(fresh(ada)).indexed == 1
    assert (named(), differences(ada)) == (["moss"], [])
    settings(ada)
    assert (named(), differences(ada)) == (["heather", "ferns", "garden", "moss"], [])


def test_a_category_that_becomes_private_is_sealed_with_its_discarded_files(ada: Agent, vault: Path) -> None:
    store(ada, "Heather blooms.", "Heather fades.", tags=["heather"])
    operations.discard(fresh(ada), [1], ME)
    operations.discard(fresh(ada), [2], ME)
    with mock.patch.object(writer, "rewrite"):  # an older version did not seal discarded files
        make_private(ada)
    assert differences(ada) == [("misplaced", 1), ("misplaced", 2)]
    assert comparing.repair(fresh(ada)).left == ()
    assert_sealed(ada, vault)
    settings(ada)
    assert memory_files(vault) == [f".discarded/common/technical/00000{n}.md" for n in (1, 2)]
    assert "Heather blooms." in all_text(vault)
    make_private(ada)
    assert memory_files(vault) == [f".discarded/private/technical/00000{n}.md" for n in (1, 2)]
    assert_sealed(ada, vault)
    operations.restore(fresh(ada), [1], ME)
    assert memory_files(vault) == [".discarded/private/technical/000002.md", "private/technical/000001.md"]
    assert "000001.md" in (vault / "private/index.md").read_text()
    assert_sealed(ada, vault)


@pytest.mark.parametrize("is_discarded", [False, True])
def test_masking_that_is_turned_on_masks_existing_files(ada: Agent, vault: Path, is_discarded: bool) -> None:
    settings(ada, capture_settings__sensitive_data_masking=False)
    store(ada, "The ferry is blue, and its password is hunter2-Kj81-zz.")
    if is_discarded:
        operations.discard(fresh(ada), [1], ME)
    assert "hunter2-Kj81-zz" in all_text(vault)
    settings(ada)
    assert "hunter2-Kj81" not in all_text(vault)
    assert "[masked: password]" in all_text(vault)
    assert differences(ada) == []


def test_files_that_become_private_while_off_are_removed_until_they_are_on(ada: Agent, vault: Path) -> None:
    store(ada, "Heather blooms.", "Heather fades.")
    store(ada, "Moss is green.", category="behavioral")
    operations.discard(fresh(ada), [2], ME)
    settings(ada, categories__technical__enabled=False)
    make_private(ada, categories__technical__enabled=False)
    assert ("eather" in all_text(vault), len(memory_files(vault))) == (False, 1)
    settings(ada)
    assert "Heather blooms." in all_text(vault)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    make_private(ada)
    assert "eather" not in all_text(vault)
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    sealed = [".discarded/private/technical/000002.md", "private/technical/000001.md"]
    assert memory_files(vault) == [sealed[0], "common/behavioral/000003.md", sealed[1]]
    assert_sealed(ada, vault)


def test_a_changed_file_that_becomes_private_is_kept_sealed(ada: Agent, vault: Path) -> None:
    store(ada, "Heather blooms.", "Heather fades.")
    one, two = (vault / path for path in memory_files(vault))
    edit(one, "Heather blooms.", "Heather blooms by hand.")
    two.unlink()
    make_private(ada)
    assert_sealed(ada, vault, [("copy", 1)])
    kept = vault / ".discarded/private/technical/000001-found-1.md"
    assert "Heather blooms by hand." in open_file(fresh(ada), kept.read_bytes()).content
    assert (vault / "private/technical/000001.md").exists()
