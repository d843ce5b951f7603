from __future__ import annotations

import pytest

from memory.models import Agent
from memory.silo.silo import Silo
from memory.writing import operations
from tests import steps
from tests.steps import ME, SESSION, last_entry, remember, row, says

pytestmark = pytest.mark.database


@pytest.fixture
def tea(ada: Agent) -> int:
    return remember(ada, "tea with milk", tags=("drink",))[0]


def test_a_revision_changes_what_it_says_and_keeps_its_tags(ada: Agent, tea: int) -> None:
    operations.revise(ada, tea, ME, content="tea")
    assert (says(ada, tea).content, says(ada, tea).tags) == ("tea", ("drink",))
    assert row(ada, tea).tokens == 1
    agent = steps.fresh(ada)
    assert (agent.core_count, agent.core_tokens, agent.high_water_tokens) == (1, 1, 4)


def test_tags_alone_can_be_revised(ada: Agent, tea: int) -> None:
    digest = bytes(row(ada, tea).digest)
    operations.revise(ada, tea, ME, tags=["habit", "habit"])
    assert (says(ada, tea).content, says(ada, tea).tags) == ("tea with milk", ("habit",))
    assert bytes(row(ada, tea).digest) == digest


def test_a_revision_records_the_row_before_and_after(ada: Agent, tea: int) -> None:
    before = row(ada, tea)
    edited = operations.revise(ada, tea, ME, content="tea", session=SESSION)
    [change], after = steps.changes(ada, edited.seq or 0), row(ada, tea)
    assert (bytes(change.before), bytes(change.after)) == (steps.snapshot(before), steps.snapshot(after))
    assert after.version == edited.seq == before.version + 1
    assert (after.origin, after.created_at) == (before.origin, before.created_at)
    assert (last_entry(ada).operation, last_entry(ada).session, last_entry(ada).changes) == ("revised", SESSION, 1)


def test_revising_into_a_repeat_counts_it_as_one(ada: Agent, tea: int) -> None:
    remember(ada, "coffee!!")
    operations.revise(ada, tea, ME, content="coffee!!")
    assert steps.fresh(ada).duplicate_tokens == 2


def test_what_is_dropped_is_kept_sealed_in_the_entry(ada: Agent, tea: int) -> None:
    edited = operations.revise(ada, tea, ME, content="tea", dropping=["milk", "with"])
    sealed = bytes(last_entry(ada).sealed)
    assert b"milk" not in sealed
    assert Silo.for_agent(ada).open_text("note", edited.seq or 0, sealed) == "milk\nwith"
