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
from memory.vault import following, pages
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


def test_switched_on_again(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "Heather blooms.", category="technical")
    store.discard(fresh(ada), [number], ME)
    discarded = last_entry(ada).seq
    settings(ada, categories__technical__enabled=False)
    time_machine.roll_back(fresh(ada), What.entry(discarded), PERSON)
    meanwhile(ada, lambda: settings(ada))
    following.catch_up()
    assert differ(fresh(ada)) == []
