"""Discard, restore and trim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from memory import errors
from memory.models import Agent
from memory.writing import operations
from tests import steps
from tests.steps import ME, PERSON, SESSION, SYSTEM, active, last_entry, refused, remember, row, says

pytestmark = pytest.mark.database

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def three(ada: Agent) -> list[int]:
    return remember(ada, "tea", "coffee", "x" * 40)


def test_discarded_memories_are_gone_from_use_and_kept(ada: Agent, three: list[int]) -> None:
    before = [steps.snapshot(row(ada, n)) for n in (1, 3)]
    edited = operations.discard(ada, [3, 1], ME, session=SESSION)
    assert active(ada) == [2]
    assert says(ada, 1).content == "tea"
    assert row(ada, 1).discarded_at == last_entry(ada).at
    agent = steps.fresh(ada)
    assert (agent.core_count, agent.core_tokens, agent.high_water_tokens) == (1, 2, 13)
    touched = steps.changes(ada, edited.seq or 0)
    assert (last_entry(ada).operation, last_entry(ada).session, last_entry(ada).changes) == ("discarded", SESSION, 2)
    assert [bytes(change.before) for change in touched] == before
    assert [bytes(change.after) for change in touched] == [steps.snapshot(row(ada, n)) for n in (1, 3)]
    assert {row(ada, 1).version, row(ada, 3).version} == {edited.seq}


def test_discarding_a_repeat_takes_its_weight_off_the_repeats(ada: Agent) -> None:
    remember(ada, "x" * 40, "x" * 40)
    operations.discard(ada, [1], ME)
    assert steps.fresh(ada).duplicate_tokens == 0


def test_restored_memories_are_as_they_were(ada: Agent, three: list[int]) -> None:
    before = steps.snapshot(row(ada, 1))
    operations.discard(ada, [1], ME)
    edited = operations.restore(ada, [1], PERSON)
    assert steps.snapshot(row(ada, 1)) == before
    assert (row(ada, 1).version, last_entry(ada).operation) == (edited.seq, "restored")
    assert steps.fresh(ada).core_tokens == 13


def test_a_restored_source_of_a_merge_is_no_longer_superseded(ada: Agent, three: list[int]) -> None:
    operations.consolidate(ada, [1, 2], "drinks", ME)
    operations.restore(ada, [1], PERSON)
    assert (row(ada, 1).superseded_by, row(ada, 2).superseded_by) == (None, 4)


def test_restoring_leaves_alone_what_is_there(ada: Agent, three: list[int]) -> None:
    operations.discard(ada, [1], ME)
    assert [m.number for m in operations.restore(ada, [1, 2], PERSON).memories] == [1]
    before = steps.state(ada)
    assert operations.restore(ada, [1, 2], PERSON).seq is None
    assert steps.state(ada) == before
    with refused(ada, errors.UnknownMemory):
        operations.restore(ada, [99], PERSON)


def runs(agent: Agent, *days: int) -> None:
    for day in days:
        remember(agent, f"run {day}", kind="journal", source="run", origin=NEW_YEAR + timedelta(days=day))


def test_trim_keeps_the_newest_runs_by_origin(ada: Agent) -> None:
    runs(ada, 5, 1, 4, 2)
    edited = operations.trim(ada, 2, SYSTEM)
    assert active(ada) == [1, 3]
    assert (last_entry(ada).operation, edited.seq) == ("trimmed", last_entry(ada).seq)
    assert last_entry(ada).changes == 2
    runs(ada, 6, 6)
    operations.trim(ada, 1, SYSTEM)
    assert active(ada) == [6], "the later of two of one moment"
    with refused(ada, errors.Invalid):
        operations.trim(ada, -1, SYSTEM)


def test_trim_touches_neither_core_nor_words_nor_notices(ada: Agent) -> None:
    remember(ada, "core")
    remember(ada, "said", kind="journal")
    steps.tell(ada)
    assert operations.trim(ada, 0, SYSTEM).seq is None
    assert active(ada) == [1, 2, 3]


def test_constitutional_runs_stay_and_do_not_count(ada: Agent) -> None:
    runs(ada, 1, 2, 3)
    steps.protect(ada, 3)
    operations.trim(ada, 1, SYSTEM)
    assert active(ada) == [2, 3]
