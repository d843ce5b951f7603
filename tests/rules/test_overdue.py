"""Notices of overdue memories: a worker sends them, seldom and without content, unless a setting forbids it."""

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
from memory.writing import edits, operations
from refinement import tasks
from tests.conftest import OPERATOR
from tests.rules.recordings import settings
from tests.rules.test_cleanup import ago, old
from tests.steps import ME, PERSON, active, fresh, last_entry, problems, remember, row


@pytest.fixture(autouse=True)
def _one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every agent is due now, not only those whose turn of the day it is."""
    monkeypatch.setattr(automatic, "TURN_MINUTES", 24 * 60)


def later(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def notices(agent: Agent) -> list[Memory]:
    return list(Memory.objects.filter(agent=agent, source=Source.SYSTEM).order_by("number"))


def another(name: str) -> Agent:
    return lifecycle.create("acme", name, model="builtin/dedupe", actor=OPERATOR)[0]


def test_a_notice_counts_overdue_memories_without_content(ada: Agent, bob: Agent) -> None:
    old(ada, "ZEBRA", "ZEBRA and more", days=100)
    remember(ada, "young", category="technical")
    constitutional, kept, discarded = old(ada, "a", "b", "c")  # cleanup suggests none of these
    operations.protect(fresh(ada), [constitutional], PERSON)
    cleanup.decide(fresh(ada), [kept], [discarded], ME, expect={discarded: row(ada, discarded).version})
    assert send_notices() == 1
    [notice] = notices(ada)
    text = reading.one(fresh(ada), notice.number).opened.content
    assert text.startswith("2 of your memories are older than the suggested retention of their category.")
    assert "ZEBRA" not in text
    entry = last_entry(ada)
    assert (entry.operation, entry.detail) == ("agent_changed", {"cleanup": {"overdue": 2}})
    assert (entry.actor_label, notices(bob), len(active(ada))) == (SYSTEM.label, [], 6)
    assert problems(ada) == []


def test_while_memory_is_off_no_notice_is_sent(ada: Agent, bob: Agent) -> None:
    for agent in (ada, bob):
        old(agent, "tea")
    settings(ada, search__max_results=9)  # a change of the agent is no notice
    rule_changes.change(lifecycle.change(fresh(ada), PERSON, paused=True), PERSON, enabled=False)
    assert (send_notices(), notify_overdue(fresh(ada), SYSTEM), len(notices(bob))) == (1, None, 1)
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    assert notify_overdue(fresh(ada), SYSTEM) == last_entry(ada).seq
    assert reading.one(fresh(ada), 2).opened.content.startswith("1 of your memories is older")
    assert AuditEntry.objects.filter(detail__has_key="cleanup").count() == 2


def test_overdue_memories_are_counted_before_the_agent_is_locked(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """There can be hundreds of thousands."""
    old(ada, "tea")
    locked, count = list[bool](), automatic._counts
    note = lambda *of: locked.append(bool(edits._locked_here.get())) or count(*of)  # noqa: E731
    monkeypatch.setattr(automatic, "_counts", note)
    assert notify_overdue(fresh(ada), SYSTEM)
    assert locked == [False]


def test_the_frequency_of_notices_is_a_setting(ada: Agent) -> None:
    old(ada, "tea")
    assert send_notices() == 1
    for now in (None, later(29)):
        assert (send_notices(now), notify_overdue(fresh(ada), SYSTEM, now)) == (0, None)
    assert send_notices(later(30.1)) == 1
    settings(ada, cleanup_guidance__notification_frequency_days=2)
    assert send_notices(later(2.1)) == 1


@pytest.mark.parametrize(
    ("values", "sent"),
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
def test_settings_decide_whether_a_notice_is_sent(ada: Agent, values: dict[str, Any], sent: int) -> None:
    old(ada, "tea", days=100)
    settings(ada, **values)
    assert send_notices() == sent
    assert notify_overdue(fresh(ada), SYSTEM, later(0.5)) is None
    assert len(notices(ada)) == sent


@pytest.mark.parametrize("value", [{"wrapped_key": b"nonsense"}, {"rules": "x"}])
def test_a_regular_task_sends_notices_even_if_one_agent_fails(value: dict[str, Any], ada: Agent) -> None:
    eve = another("eve")
    for agent in (ada, eve):
        old(agent, "tea")
    Agent.objects.filter(pk=ada.pk).update(**value)
    assert (tasks.sweep(), notices(eve)) == ("swept", [])
    assert (tasks.close_stale(), len(notices(eve)), notices(ada)) == ("closed", 1, [])


def test_each_agent_has_its_turn_of_the_day(ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "TURN_MINUTES", 10)
    midnight = datetime(2026, 6, 1, tzinfo=UTC)
    times = [midnight + timedelta(minutes=minutes) for minutes in range(3, 24 * 60, 10)]
    for agent in (ada, bob):
        assert sum(agent in automatic._in_turn(time) for time in times) == 1
    assert not set(automatic._in_turn(midnight)) & set(automatic._in_turn(midnight + timedelta(minutes=10)))


def statements() -> list[str]:
    with CaptureQueriesContext(connection) as queries:
        send_notices(datetime.now(UTC))
    return [each["sql"] for each in queries]


def test_without_overdue_memories_three_queries_serve_all_agents(ada: Agent, bob: Agent) -> None:
    assert len(statements()) == 3
    for name in ("eve", "fay", "gus"):
        remember(another(name), *["tea"] * 20, origin=ago(1))
    assert len(statements()) == 3
    assert not any('"sealed"' in sql for sql in statements() if "memory_memory" in sql)


@pytest.mark.sqlite
def test_an_index_finds_the_last_notice(ada: Agent) -> None:
    [sql] = [sql for sql in statements() if "audit_auditentry" in sql]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        plan = " ".join(str(row[-1]) for row in cursor.fetchall())
    assert ("audit_entry_consent" in plan, "SCAN" in plan) == (True, False)
