"""How often a memory was recalled: shown in the ledger and in the admin, and erased with the agent."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from memory.access import authority
from memory.admin.memories import MemoryPage
from memory.consent import erasure, requests
from memory.models import Agent, CleanupDecision, Memory, Recall, RecordedSession
from memory.recording import usage
from refinement import ledger
from tests.admin.conftest import enrolled, sign_in
from tests.steps import ME, PERSON, fresh, remember

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def test_the_ledger_has_the_recalls_of_its_agent(ada: Agent, bob: Agent) -> None:
    for agent, number, times in ((ada, 2, 3), (bob, 1, 1)):
        remember(agent, "tea", "milk")
        for _ in range(times):
            usage.note(agent, [number], NOW)
    lines = ledger.text(ledger.read(fresh(ada))).split("\n")
    assert [json.loads(line) for line in lines[1:]] == [[1, "tea"], [2, "milk", {"recalled": 3}]]
    [entry] = ledger.read(fresh(ada), [2])
    assert entry.record()["recalled"] == 3


@pytest.mark.parametrize("count", [2, 100])
def test_the_ledger_reads_all_recalls_with_one_query(ada: Agent, count: int) -> None:
    numbers = remember(ada, *(f"tea {n}" for n in range(count)))
    usage.note(ada, numbers, NOW)
    agent = fresh(ada)
    authority.require(agent)
    for read in (lambda: ledger.read(agent), lambda: ledger.read(agent, numbers)):
        with CaptureQueriesContext(connection) as queries:
            assert len(read()) == count
        assert len([each for each in queries if "memory_recall" in each["sql"]]) == 1
        assert len(queries) == 2


@pytest.fixture
def people(ada: Agent, settings: Any) -> Client:
    """A client signed in as a superuser."""
    settings.ALLOWED_HOSTS = ["testserver"]
    settings.PASSWORD_HASHERS = ["tests.admin.conftest.Quick"]
    client = Client()
    assert sign_in(client, enrolled("root@service.test", is_superuser=True)).status_code == 302
    return client


def page(client: Client, query: str = "") -> str:
    response = client.get(f"/admin/memory/memory/{query}")
    assert response.status_code == 200
    return response.content.decode()


def test_the_admin_list_shows_and_sorts_by_recalls(people: Client, ada: Agent) -> None:
    remember(ada, "tea", "milk", "water")
    assert "last on" not in page(people)
    usage.note(ada, [1], NOW)
    usage.note(ada, [1, 3], datetime(2026, 6, 3, tzinfo=UTC))
    column = MemoryPage.list_display.index("recalled") + 1
    for order, first, second in ((column, "2, last on", "1, last on"), (-column, "1, last on", "2, last on")):
        text = page(people, f"?o={order}")
        assert text.index(first) < text.index(second)
        assert text.count("2, last on 2026-06-03") == 1


def test_an_erasure_removes_recalls_decisions_and_recorded_sessions(ada: Agent, bob: Agent) -> None:
    for agent in (ada, bob):
        remember(agent, "tea")
        usage.note(agent, [1], NOW)
        CleanupDecision.objects.create(agent=agent, number=1, category="technical", is_kept=True, at=NOW)
        RecordedSession.objects.create(agent=agent, name="one", project="", began_at=NOW, last_at=timezone.now())
    erasure.erase(fresh(ada), requests.ask_erasure(fresh(ada), PERSON, reason="request 1").number, ME)
    for rows in (Recall, CleanupDecision, RecordedSession):
        assert list(rows.objects.values_list("agent", flat=True)) == [bob.pk]
    assert Memory.objects.filter(agent=ada).count() == 1
