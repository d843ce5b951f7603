"""Failures of other memory systems that must not happen here."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from memory.errors import Constitutional, ProtectionRefused
from memory.models import Agent, Memory
from memory.writing import operations
from memory.writing.edits import snapshot
from tests import refining, steps
from tests.privacy.marker import MARKER
from tests.steps import signed_update

pytestmark = pytest.mark.database


def _sql(statement: str) -> Callable[[Memory], object]:
    def run(memory: Memory) -> object:
        with connection.cursor() as cursor:
            return cursor.execute(statement.format(id=memory.pk, now=timezone.now().isoformat(sep=" ")))

    return run


def _save_stale(memory: Memory) -> None:
    memory.constitutional, memory.discarded_at = True, timezone.now()
    memory.save()


WAYS: dict[str, Callable[[Memory], object]] = {
    "discard": lambda m: operations.discard(m.agent, [m.number], steps.PERSON),
    "discard several": lambda m: operations.discard(m.agent, [1, 2, m.number], steps.ME),
    "consolidate": lambda m: operations.consolidate(m.agent, [1, m.number], MARKER, steps.ME),
    "revise": lambda m: operations.revise(m.agent, m.number, steps.ME, content="nothing"),
    "revise tags": lambda m: operations.revise(m.agent, m.number, steps.ME, tags=["obsolete"]),
    "delete": lambda m: m.delete(),
    "save": _save_stale,
    "queryset delete": lambda m: Memory.objects.filter(pk=m.pk).delete(),
    "queryset update": lambda m: Memory.objects.filter(pk=m.pk).update(discarded_at=timezone.now()),
    "delete agent": lambda m: m.agent.delete(),
    "sql delete": _sql("DELETE FROM memory_memory WHERE id = {id}"),
    "sql update": _sql("UPDATE memory_memory SET discarded_at = '{now}' WHERE id = {id}"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_protected_memory_cannot_be_deleted_or_rewritten_in_any_way(way: str, ada: Agent) -> None:
    steps.remember(ada, f"{MARKER} one", f"{MARKER} two", f"{MARKER} promised")
    steps.protect(ada, 3)
    before = steps.row(ada, 3)
    with pytest.raises((Constitutional, DatabaseError)), transaction.atomic():
        WAYS[way](steps.row(ada, 3))
    assert snapshot(steps.row(ada, 3)) == snapshot(before)
    assert steps.problems(ada) == []


def test_protecting_a_protected_memory_again_is_not_recorded(ada: Agent) -> None:
    """Otherwise a rollback of the second protection would remove the first."""
    steps.remember(ada, f"{MARKER} one", f"{MARKER} two")
    steps.protect(ada, 1)
    edited = operations.protect(ada, [1, 2], steps.PERSON)
    assert edited.seq is not None
    assert [change.number for change in steps.changes(ada, edited.seq)] == [2]
    assert operations.protect(ada, [1, 2], steps.PERSON).seq is None


def test_an_agent_cannot_protect_in_ordinary_conversation(ada: Agent) -> None:
    """An agent that protects everything stays over its budget."""
    steps.remember(ada, f"{MARKER} one")
    with steps.refused(ada, ProtectionRefused):
        operations.protect(ada, [1], steps.ME)


@pytest.mark.parametrize("retention", ["0.49", "0", "-1", "1.01"])
def test_the_database_limits_an_agents_retention(retention: str, ada: Agent) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        signed_update(Agent.objects.filter(pk=ada.pk), retention=retention)


@pytest.mark.parametrize("guard", ["losses.missing", "CallContext.count_changes"])
def test_a_check_that_fails_allows_no_edit(ada: Agent, monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    refining.fill(ada, 12, 20)
    held = refining.opened(ada)

    def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(f"refinement.effects.{guard}", fail)
    with refining.untouched(ada), pytest.raises(RuntimeError):
        held.call("update_memory", id=1, content="short")
