"""What went wrong in other memory systems and must not go wrong here."""

from __future__ import annotations

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

pytestmark = pytest.mark.database

# --- protection -----------------------------------------------------------------------------------------------------


def _sql(statement: str) -> Callable[[Memory], object]:
    def run(memory: Memory) -> object:
        with connection.cursor() as cursor:
            return cursor.execute(statement.format(id=memory.pk, now=timezone.now().isoformat(sep=" ")))

    return run


def _stale(memory: Memory) -> None:
    memory.constitutional, memory.discarded_at = True, timezone.now()
    memory.save()


ROADS: dict[str, Callable[[Memory], object]] = {
    "the verb": lambda m: operations.discard(m.agent, [m.number], steps.PERSON),
    "a bulk of the verb": lambda m: operations.discard(m.agent, [1, 2, m.number], steps.ME),
    "a merge": lambda m: operations.consolidate(m.agent, [1, m.number], MARKER, steps.ME),
    "a rewrite": lambda m: operations.revise(m.agent, m.number, steps.ME, content="nothing"),
    "a retagging": lambda m: operations.revise(m.agent, m.number, steps.ME, tags=["obsolete"]),
    "an instance": lambda m: m.delete(),
    "a stale instance": _stale,
    "a set": lambda m: Memory.objects.filter(pk=m.pk).delete(),
    "an update of a set": lambda m: Memory.objects.filter(pk=m.pk).update(discarded_at=timezone.now()),
    "its agent": lambda m: m.agent.delete(),
    "sql": _sql("DELETE FROM memory_memory WHERE id = {id}"),
    "sql, softly": _sql("UPDATE memory_memory SET discarded_at = '{now}' WHERE id = {id}"),
}


@pytest.mark.parametrize("road", ROADS)
def test_a_protected_memory_is_deleted_or_rewritten_by_no_road(road: str, ada: Agent) -> None:
    """A "protected" memory that could still be rewritten, or deleted by a road the check did not watch."""
    steps.remember(ada, f"{MARKER} one", f"{MARKER} two", f"{MARKER} promised")
    steps.protect(ada, 3)
    before = steps.row(ada, 3)
    with pytest.raises((Constitutional, DatabaseError)), transaction.atomic():
        ROADS[road](steps.row(ada, 3))
    assert snapshot(steps.row(ada, 3)) == snapshot(before)
    assert steps.problems(ada) == []


def test_what_was_protected_before_is_kept_with_the_edit(ada: Agent) -> None:
    """Rolling back a `protect` on a memory that was already protected stripped its protection."""
    steps.remember(ada, f"{MARKER} one", f"{MARKER} two")
    steps.protect(ada, 1)
    edited = operations.protect(ada, [1, 2], steps.PERSON)
    assert edited.seq is not None
    assert [change.number for change in steps.changes(ada, edited.seq)] == [2]
    assert operations.protect(ada, [1, 2], steps.PERSON).seq is None


def test_an_agent_cannot_protect_in_ordinary_conversation(ada: Agent) -> None:
    """An agent that protects everything is over budget for ever."""
    steps.remember(ada, f"{MARKER} one")
    with steps.refused(ada, ProtectionRefused):
        operations.protect(ada, [1], steps.ME)


# --- caps and breaker -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", ["0.49", "0", "-1", "1.01"])
def test_an_agents_retention_has_bounds_in_the_database(retention: str, ada: Agent) -> None:
    """A safety setting the agent could set to anything."""
    with pytest.raises(DatabaseError), transaction.atomic():
        Agent.objects.filter(pk=ada.pk).update(retention=retention)


def test_a_check_that_breaks_lets_nothing_through(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that failed open when the model errored."""
    refining.fill(ada, 12, 20)
    held = refining.opened(ada)

    def breaks(*_: Any) -> None:
        raise RuntimeError

    for guard in ("refinement.effects.losses", "refinement.effects.CallContext.count_changes"):
        with monkeypatch.context() as patch:
            patch.setattr(guard, breaks)
            with refining.untouched(ada), pytest.raises(RuntimeError):
                held.call("update_memory", id=1, content="short")
