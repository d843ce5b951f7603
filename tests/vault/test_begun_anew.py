"""What has a vault look at every memory again is not lost to a writer who is just following (compare and set)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from django.db import connection

from memory import store, time_machine
from memory.models import Agent
from memory.time_machine import What
from memory.vault import following, mending, pages
from tests.rules.talking import settings
from tests.steps import ME, PERSON, fresh, last_entry, remember
from tests.vault.tree import differ


def meanwhile(ada: Agent, change: Callable[[], Any]) -> None:
    """A memory is stored, and while its file is written somebody changes something."""
    threads: list[threading.Thread] = []
    real = pages.add

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

    with mock.patch.object(pages, "add", side_effect=add):
        remember(fresh(ada), "Moss is green.", category="behavioral")
    threads[0].join()


def clear(vault: Path, word: str) -> list[str]:
    return [path.name for path in vault.rglob("*.md") if word in path.name or word in path.read_text()]


def test_made_private(ada: Agent, vault: Path) -> None:
    remember(ada, "Heather blooms.", category="technical")
    assert clear(vault, "eather")
    meanwhile(ada, lambda: settings(ada, categories__technical__storage_location="private"))
    following.catch_up()
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
    assert mending.repair(fresh(ada)).indexed == 1
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
    store.discard(fresh(ada), [number], ME)
    discarded = last_entry(ada).seq
    settings(ada, categories__technical__enabled=False)
    time_machine.roll_back(fresh(ada), What.entry(discarded), PERSON)
    meanwhile(ada, lambda: settings(ada))
    following.catch_up()
    assert differ(fresh(ada)) == []
