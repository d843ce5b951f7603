"""Notices of overdue memories: told by a worker, seldom, without content, and to those who want them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit.models import AuditEntry
from memory.agents import lifecycle, rule_changes
from memory.models import Agent, Memory, Source
from memory.recording import automatic, cleanup
from memory.recording.automatic import SYSTEM, notify_overdue, send_notices
from memory.search import reading
from memory.writing import operations
from refinement import tasks
from tests.conftest import OPERATOR
from tests.rules.talking import settings as settle
from tests.rules.test_cleanup import ago, old
from tests.steps import ME, PERSON, active, fresh, last_entry, problems, remember, row

FIRST = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every agent's place in the day is now."""
    monkeypatch.setattr(automatic, "STALE_MINUTES", 24 * 60)


def later(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def notices(agent: Agent) -> list[Memory]:
    return list(Memory.objects.filter(agent=agent, source=Source.SYSTEM).order_by("number"))


def test_an_agent_is_told_how_many_are_overdue(ada: Agent, bob: Agent) -> None:
    old(ada, "ZEBRA", "ZEBRA and more", days=100)
    remember(ada, "young", category="technical")
    assert send_notices() == 1
    [notice] = notices(ada)
    said = reading.one(fresh(ada), notice.number).opened.content
    assert said.startswith("2 of your memories are older than the suggested retention of their category.")
    assert "ZEBRA" not in said
    assert (last_entry(ada).operation, last_entry(ada).detail) == ("agent_changed", {"cleanup": {"overdue": 2}})
    assert last_entry(ada).actor_label == SYSTEM.label
    assert notices(bob) == []
    assert len(active(ada)) == 4  # and nothing went
    assert problems(ada) == []


def test_one_memory_is_told_as_one(ada: Agent, bob: Agent) -> None:
    """Changes of the agent, and notices to others, are no notices. With memory off nobody is told."""
    for agent in (ada, bob):
        old(agent, "tea")
    settle(ada, search__max_results=9)
    rule_changes.change(lifecycle.change(fresh(ada), PERSON, paused=True), PERSON, enabled=False)
    assert (send_notices(), notify_overdue(fresh(ada), SYSTEM)) == (1, None)  # bob is told
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    assert notify_overdue(fresh(ada), SYSTEM) == last_entry(ada).seq
    assert reading.one(fresh(ada), 2).opened.content.startswith("1 of your memories is older")
    assert AuditEntry.objects.filter(detail__has_key="cleanup").count() == 2


def test_no_more_often_than_is_set(ada: Agent) -> None:
    old(ada, "tea")
    assert send_notices() == 1
    for now in (None, later(29)):
        assert send_notices(now) == 0
        assert notify_overdue(fresh(ada), SYSTEM, now) is None
    assert send_notices(later(30.1)) == 1
    settle(ada, cleanup_guidance__notification_frequency_days=2)
    assert send_notices(later(2.1)) == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, 1),
        ({"cleanup_guidance__notify_overdue_memories": False}, 0),
        ({"cleanup_guidance__suggest_cleanup_actions": False}, 1),
        ({"categories__technical__enabled": False}, 0),
        ({"categories__technical__suggested_retention_days": 0}, 0),
        ({"cleanup_guidance_days": 101}, 0),
        ({"cleanup_guidance_days": 0}, 1),
    ],
)
def test_what_is_set_is_honoured(ada: Agent, given: dict[str, Any], told: int) -> None:
    old(ada, "tea", days=100)
    settle(ada, **given)
    assert send_notices() == told
    assert notify_overdue(fresh(ada), SYSTEM, later(0.5)) is None
    assert len(notices(ada)) == told


def test_what_is_never_suggested_is_not_counted(ada: Agent) -> None:
    constitutional, kept, gone = old(ada, "a", "b", "c")
    operations.protect(fresh(ada), [constitutional], PERSON)
    cleanup.decide(fresh(ada), [kept], [gone], ME, expect={gone: row(ada, gone).version})
    assert send_notices() == 0


def test_a_task_that_comes_regularly_tells(ada: Agent) -> None:
    old(ada, "tea")
    assert tasks.sweep() == "swept"
    assert notices(ada) == []
    assert tasks.close_stale() == "closed"
    assert len(notices(ada)) == 1


def test_an_agent_whose_key_is_missing_keeps_nobody_waiting(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, _ = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=OPERATOR)
    for agent in (ada, eve):
        old(agent, "tea")
    Agent.objects.filter(pk=ada.pk).update(wrapped_key=b"nonsense")
    assert send_notices() == 1
    assert len(notices(eve)) == 1


def test_each_has_its_place_in_the_day(ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "STALE_MINUTES", 10)
    midnight = datetime(2026, 6, 1, tzinfo=UTC)
    for agent in (ada, bob):
        turns = [
            minutes
            for minutes in range(0, 24 * 60, 10)
            if agent in automatic._in_turn(midnight + timedelta(minutes=minutes + 3))
        ]
        assert len(turns) == 1
    assert not set(automatic._in_turn(midnight)) & set(automatic._in_turn(midnight + timedelta(minutes=10)))


def statements(now: datetime) -> list[str]:
    with CaptureQueriesContext(connection) as asked:
        send_notices(now)
    return [each["sql"] for each in asked]


def test_where_nobody_is_told_it_asks_three_times_for_all(ada: Agent, bob: Agent) -> None:
    few = statements(FIRST)
    for name in ("eve", "fay", "gus"):
        agent, _ = lifecycle.create("acme", name, model="builtin/dedupe", actor=OPERATOR)
        remember(agent, *["tea"] * 20, origin=ago(1))
    assert len(statements(FIRST)) == len(few) == 3
    assert not any('"sealed"' in sql for sql in statements(FIRST) if "memory_memory" in sql)


@pytest.mark.sqlite
def test_the_last_notice_is_found_by_an_index(ada: Agent) -> None:
    [sql] = [sql for sql in statements(FIRST) if "audit_auditentry" in sql]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        plan = " ".join(str(row[-1]) for row in cursor.fetchall())
    assert "audit_entry_consent" in plan
    assert "SCAN" not in plan
