"""Promote and notify."""

from __future__ import annotations

import pytest

from memory.models import Agent
from memory.writing import operations
from tests import steps
from tests.steps import ME, SESSION, SYSTEM, last_entry, remember, row, says

pytestmark = pytest.mark.database


@pytest.fixture
def log(ada: Agent) -> int:
    return remember(ada, "x" * 40, kind="journal")[0]


def test_a_promoted_memory_is_core_and_counts(ada: Agent, log: int) -> None:
    before = steps.snapshot(row(ada, log))
    edited = operations.promote(ada, log, ME, session=SESSION)
    agent = steps.fresh(ada)
    assert (row(ada, log).kind, row(ada, log).version) == ("core", edited.seq)
    assert (agent.core_count, agent.core_tokens, agent.journal_count, agent.high_water_tokens) == (1, 10, 0, 10)
    assert (last_entry(ada).operation, last_entry(ada).session, last_entry(ada).changes) == ("promoted", SESSION, 1)
    [change] = steps.changes(ada, edited.seq or 0)
    assert (bytes(change.before), bytes(change.after)) == (before, steps.snapshot(row(ada, log)))


def test_promoting_into_a_repeat_counts_it_as_one(ada: Agent, log: int) -> None:
    remember(ada, "x" * 40)
    operations.promote(ada, log, ME)
    assert (steps.fresh(ada).duplicate_tokens, steps.fresh(ada).high_water_tokens) == (10, 10)


def test_a_constitutional_journal_memory_may_be_promoted(ada: Agent, log: int) -> None:
    steps.protect(ada, log)
    operations.promote(ada, log, ME)
    assert (row(ada, log).kind, row(ada, log).constitutional) == ("core", True)


def test_a_notice_is_a_journal_memory_of_the_system_in_one_entry_and_passes_the_switch(ada: Agent) -> None:
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    edited = operations.notify(
        ada, "closed", operation="session_closed", actor=SYSTEM, detail={"merged": 3}, session=SESSION
    )
    entry, memory = last_entry(ada), edited.memory
    assert (entry.seq, entry.operation, entry.session, entry.changes) == (edited.seq, "session_closed", SESSION, 1)
    assert (entry.detail, entry.actor_kind) == ({"merged": 3}, "system")
    assert (memory.kind, memory.source, memory.scope, memory.constitutional) == ("journal", "system", "common", False)
    assert says(ada, memory.number).content == "closed"
    assert steps.fresh(ada).journal_count == 1
