"""How often a memory was recalled: told in the ledger, listed in the admin, gone with the silo."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from memory.admin.memories import MemoryPage
from memory.consent import erasure, removal_requests
from memory.models import Agent, CleanupDecision, Memory, Recall, RecordedSession
from memory.recording import usage
from refinement import ledger
from tests.admin.conftest import enrolled, sign_in
from tests.steps import ME, PERSON, fresh, remember

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def lines(agent: Agent) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ledger.text(ledger.read(agent)).split("\n")]


def test_the_ledger_tells_what_was_recalled(ada: Agent, bob: Agent) -> None:
    remember(ada, "tea", "milk")
    remember(bob, "tea", "milk")
    for _ in range(3):
        usage.note(ada, [2], NOW)
    usage.note(bob, [1], NOW)
    assert [line.get("recalled") for line in lines(fresh(ada))] == [None, 3]
    [entry] = ledger.read(fresh(ada), [2])
    assert entry.record()["recalled"] == 3


@pytest.mark.parametrize("count", [2, 100])
def test_the_ledger_asks_once_for_all(ada: Agent, count: int) -> None:
    numbers = remember(ada, *(f"tea {n}" for n in range(count)))
    usage.note(ada, numbers, NOW)
    agent = fresh(ada)
    for read in (lambda: ledger.read(agent), lambda: ledger.read(agent, numbers)):
        with CaptureQueriesContext(connection) as asked:
            assert len(read()) == count
        assert len([each for each in asked if "memory_recall" in each["sql"]]) == 1
        assert len(asked) == 2


# --- in the admin


@pytest.fixture
def people(ada: Agent, settings: Any) -> Client:
    """A client signed in as a superuser."""
    settings.ALLOWED_HOSTS = ["testserver"]
    settings.PASSWORD_HASHERS = ["tests.admin.conftest.Quick"]
    client = Client()
    assert sign_in(client, enrolled("root@service.test", is_superuser=True)).status_code == 302
    return client


def listed(client: Client, asked: str = "") -> str:
    answer = client.get(f"/admin/memory/memory/{asked}")
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_list_shows_how_often_and_when_last(people: Client, ada: Agent) -> None:
    remember(ada, "tea", "milk")
    assert "last on" not in listed(people)
    for day in (1, 3):
        usage.note(ada, [2], datetime(2026, 6, day, tzinfo=UTC))
    page = listed(people)
    assert page.count("2, last on 2026-06-03") == 1


def test_the_list_can_be_sorted_by_it(people: Client, ada: Agent) -> None:
    remember(ada, "tea", "milk", "water")
    usage.note(ada, [1], NOW)
    usage.note(ada, [1, 3], NOW)
    place = MemoryPage.list_display.index("recalled") + 1
    page = listed(people, f"?o={place}")
    assert page.index("2, last on") < page.index("1, last on")
    page = listed(people, f"?o=-{place}")
    assert page.index("1, last on") < page.index("2, last on")


def test_it_costs_no_query_a_row(people: Client, ada: Agent) -> None:
    counts = []
    for _ in range(2):
        usage.note(ada, remember(ada, *["tea"] * 15), NOW)
        with CaptureQueriesContext(connection) as asked:
            listed(people)
        counts.append(len(asked))
    assert counts[0] == counts[1]


# --- erasure


def test_erasure_takes_what_the_rules_kept(ada: Agent, bob: Agent) -> None:
    for agent in (ada, bob):
        remember(agent, "tea")
        usage.note(agent, [1], NOW)
        CleanupDecision.objects.create(agent=agent, number=1, category="technical", is_kept=True, at=NOW)
        RecordedSession.objects.create(agent=agent, name="one", project="", began_at=NOW, last_at=timezone.now())
    erasure.erase(fresh(ada), removal_requests.ask_erasure(fresh(ada), PERSON, reason="request 1").number, ME)
    for rows in (Recall, CleanupDecision, RecordedSession):
        assert list(rows.objects.values_list("agent", flat=True)) == [bob.pk]
    assert Memory.objects.filter(agent=ada).count() == 1
