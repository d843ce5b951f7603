"""What has a vault look at every memory again is not lost to a writer who is just following (compare and set)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

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
from tests.vault.tree import differ, memories


def meanwhile(ada: Agent, change: Callable[[], Any]) -> None:
    """A memory is stored, and while its file is written somebody changes something."""
    threads: list[threading.Thread] = []
    real = layout.add

    def changed() -> None:
        try:
            change()
        finally:
            connection.close()

    def add(*args: Any, **values: Any) -> None:
        if not threads:
            before, until = fresh(ada).audit_seq, time.monotonic() + 20
            threads.append(threading.Thread(target=changed))
            threads[0].start()
            while fresh(ada).audit_seq == before and time.monotonic() < until:
                time.sleep(0.01)
        real(*args, **values)

    with mock.patch.object(layout, "add", side_effect=add):
        remember(fresh(ada), "Moss is green.", category="behavioral")
    threads[0].join()


def clear(vault: Path, word: str) -> list[str]:
    return [path.name for path in vault.rglob("*.md") if word in path.name or word in path.read_text()]


def test_made_private(ada: Agent, vault: Path) -> None:
    remember(ada, "Heather blooms.", category="technical")
    assert clear(vault, "eather")
    meanwhile(ada, lambda: settings(ada, categories__technical__storage_location="private"))
    writer.catch_up()
    assert clear(vault, "eather") == []
    assert differ(fresh(ada)) == []


def all_pages(vault: Path) -> str:
    return "".join(path.read_text() for path in vault.rglob("index.md"))


def test_no_page_is_written_with_words_of_what_is_off(ada: Agent, vault: Path) -> None:
    remember(ada, "Heather blooms.", category="technical")
    remember(fresh(ada), "Moss is green.", category="behavioral")
    remember(fresh(ada), "Ferns fade.", category="topic", project="secret-garden")
    settings(ada, categories__technical__enabled=False, categories__topic__enabled=False)
    for page in vault.rglob("index.md"):
        page.unlink()
    assert comparing.repair(fresh(ada)).indexed == 1
    said = all_pages(vault)
    assert "moss" in said
    assert not [word for word in ("heather", "ferns", "garden") if word in said]
    assert differ(fresh(ada)) == []
    settings(ada)
    said = all_pages(vault)
    assert [word for word in ("heather", "ferns", "garden", "moss") if word not in said] == []
    assert differ(fresh(ada)) == []


def test_switched_on_again(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "Heather blooms.", category="technical")
    operations.discard(fresh(ada), [number], ME)
    discarded = last_entry(ada).seq
    settings(ada, categories__technical__enabled=False)
    rollback.roll_back(fresh(ada), What.entry(discarded), PERSON)
    meanwhile(ada, lambda: settings(ada))
    writer.catch_up()
    assert differ(fresh(ada)) == []


# --- what becomes private is nowhere in clear


def made_private(ada: Agent, **more: object) -> Agent:
    return settings(ada, categories__technical__storage_location="private", **more)


def test_what_was_discarded_is_sealed_too(ada: Agent, vault: Path) -> None:
    remember(ada, "Heather blooms.", "Moss is green.", category="technical")
    operations.discard(fresh(ada), [1], ME)
    operations.discard(fresh(ada), [2], ME)
    assert clear(vault, "eather")
    with mock.patch.object(writer, "rewrite"):  # as before what was discarded was sealed
        made_private(ada)
    assert differ(fresh(ada)) == [("misplaced", 1), ("misplaced", 2)]
    assert comparing.repair(fresh(ada)).left == ()
    assert (clear(vault, "eather"), clear(vault, "oss")) == ([], [])
    settings(ada)
    assert clear(vault, "eather")
    made_private(ada)
    assert (clear(vault, "eather"), clear(vault, "oss")) == ([], [])
    assert memories(vault) == [f".discarded/private/technical/00000{nth}.md" for nth in (1, 2)]
    assert differ(fresh(ada)) == []
    operations.restore(fresh(ada), [1], ME)
    assert memories(vault) == [".discarded/private/technical/000002.md", "private/technical/000001.md"]
    assert (clear(vault, "eather"), differ(fresh(ada))) == ([], [])


def test_what_was_discarded_shows_no_secret_once_masking_is_on(ada: Agent, vault: Path) -> None:
    settings(ada, capture_settings__sensitive_data_masking=False)
    remember(fresh(ada), "The ferry is blue, and its password is hunter2-Kj81-zz.", category="technical")
    operations.discard(fresh(ada), [1], ME)
    settings(ada)
    assert clear(vault, "hunter2-Kj81") == []
    assert len(clear(vault, "[masked: password]")) == 1
    assert differ(fresh(ada)) == []


def test_of_what_is_off_what_would_be_sealed_goes_until_it_is_on(ada: Agent, vault: Path) -> None:
    remember(ada, "Heather blooms.", "Heather fades.", category="technical")
    remember(fresh(ada), "Moss is green.", category="behavioral")
    operations.discard(fresh(ada), [2], ME)
    settings(ada, categories__technical__enabled=False)
    made_private(ada, categories__technical__enabled=False)
    assert clear(vault, "eather") == []
    assert len(memories(vault)) == 1
    settings(ada)
    assert len(clear(vault, "eather")) > 2
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    made_private(ada)
    assert clear(vault, "eather") == []
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    assert memories(vault) == [
        ".discarded/private/technical/000002.md",
        "common/behavioral/000003.md",
        "private/technical/000001.md",
    ]
    assert (clear(vault, "eather"), differ(fresh(ada))) == ([], [])


def written_to(vault: Path) -> None:
    path = next(vault / each for each in memories(vault) if "000001" in each)
    path.write_text(path.read_text().replace("Heather blooms.", "Heather blooms by hand."))


def opened(agent: Agent, path: Path) -> str:
    return open_file(fresh(agent), path.read_bytes()).content


def test_what_somebody_wrote_to_is_kept_and_sealed(ada: Agent, vault: Path) -> None:
    remember(ada, "Heather blooms.", category="technical")
    written_to(vault)
    made_private(ada)
    assert (clear(vault, "eather"), differ(fresh(ada))) == ([], [("copy", 1)])
    assert "Heather blooms by hand." in opened(ada, vault / ".discarded/private/technical/000001-found-1.md")
    assert (vault / "private/technical/000001.md").exists()


def test_a_file_that_is_gone_leaves_no_line_with_its_title(ada: Agent, vault: Path) -> None:
    remember(ada, "Heather blooms.", category="technical")
    (vault / memories(vault)[0]).unlink()
    made_private(ada)
    assert (clear(vault, "eather"), differ(fresh(ada))) == ([], [])
