"""An agent held for several edits: read and locked once, and never taken for what a rollback undid."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from memory import errors
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.writing import edits, operations
from tests import steps
from tests.steps import ME, problems, remember


@contextmanager
def undone() -> Iterator[None]:
    """A savepoint that is rolled back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def contents(agent: Agent) -> list[int]:
    return list(Memory.objects.filter(agent=agent).order_by("number").values_list("number", flat=True))


def test_edits_of_an_agent_held_read_it_once(ada: Agent) -> None:
    with CaptureQueriesContext(connection) as asked, edits.locked(ada):
        operations.remember(ada, [Draft("one")], ME)
        operations.remember(ada, [Draft("two")], ME)
    reads = [q["sql"] for q in asked.captured_queries if 'FROM "memory_agent"' in q["sql"]]
    assert len(reads) == 1
    assert contents(ada) == [1, 2]
    assert problems(ada) == []


def test_memories_read_before_an_edit_are_not_read_for_it_again(ada: Agent) -> None:
    remember(ada, "one", "two")
    with CaptureQueriesContext(connection) as asked, edits.locked(ada):
        edits.fetch(ada, [1, 2])
        operations.discard(ada, [1], ME)
    reads = [q["sql"] for q in asked.captured_queries if q["sql"].startswith("SELECT")]
    assert len([sql for sql in reads if '"memory_memory"."sealed"' in sql]) == 1


def test_memories_read_after_an_edit_are_as_it_left_them(ada: Agent) -> None:
    remember(ada, "one")
    with edits.locked(ada):
        [before] = edits.fetch(ada, [1])
        assert before.discarded_at is None
        operations.discard(ada, [1], ME)
        [after] = edits.fetch(ada, [1])
        assert after.discarded_at is not None
        with pytest.raises(errors.Discarded), transaction.atomic():
            operations.discard(ada, [1], ME)
    assert problems(ada) == []


def test_an_edit_rolled_back_to_a_savepoint_is_not_built_upon(ada: Agent) -> None:
    remember(ada, "one")
    with edits.locked(ada):
        with undone():
            operations.remember(ada, [Draft("undone")], ME)
            operations.discard(ada, [1], ME)
            edits.fetch(ada, [1, 2])
        operations.remember(ada, [Draft("two")], ME)
        [one, _] = edits.fetch(ada, [1, 2])
        assert one.discarded_at is None
        with pytest.raises(errors.UnknownMemory):
            edits.fetch(ada, [3])
    assert steps.fresh(ada).core_count == 2
    assert problems(ada) == []


def test_an_edit_in_a_savepoint_that_is_kept_is_built_upon(ada: Agent) -> None:
    with edits.locked(ada):
        with transaction.atomic():
            operations.remember(ada, [Draft("one")], ME)
        operations.remember(ada, [Draft("two")], ME)
    assert contents(ada) == [1, 2]
    assert problems(ada) == []


def spoil(agent: Agent) -> None:
    with edits.begin(agent, "remembered", ME) as edit:
        edit.agent.next_number += 5
        raise errors.Invalid("content", "is not to be")


def test_a_refused_edit_in_a_savepoint_leaves_the_agent_as_it_was(ada: Agent) -> None:
    remember(ada, "one")
    with edits.locked(ada) as held:
        before = dict(held.__dict__)
        with pytest.raises(errors.Invalid), transaction.atomic():
            spoil(ada)
        assert held.__dict__ == before
        operations.remember(ada, [Draft("two")], ME)
    assert contents(ada) == [1, 2]
    assert problems(ada) == []


@pytest.mark.django_db(transaction=True)
def test_a_refused_edit_without_one_takes_the_transaction_with_it(ada: Agent) -> None:
    remember(ada, "one")
    before = steps.state(ada)
    with pytest.raises(TransactionManagementError):
        go_on_after_a_refusal(ada)
    assert steps.state(ada) == before


def go_on_after_a_refusal(agent: Agent) -> None:
    with edits.locked(agent):
        operations.remember(agent, [Draft("two")], ME)
        with pytest.raises(errors.UnknownMemory):
            operations.discard(agent, [99], ME)
        operations.remember(agent, [Draft("three")], ME)


def test_an_agent_is_held_no_longer_than_its_block(ada: Agent) -> None:
    with edits.locked(ada):
        pass
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    with pytest.raises(errors.MemoryDisabled):
        operations.remember(ada, [Draft("one")], ME)


def test_one_agent_held_is_not_taken_for_another(ada: Agent, bob: Agent) -> None:
    with edits.locked(ada), edits.locked(bob):
        operations.remember(ada, [Draft("one")], ME)
        operations.remember(bob, [Draft("one"), Draft("two")], ME)
    assert (contents(ada), contents(bob)) == ([1], [1, 2])
    assert problems(ada) == problems(bob) == []


def test_an_agent_there_is_none_of_is_not_held(ada: Agent) -> None:
    with pytest.raises(errors.NotFound), edits.locked(Agent(pk=10**9, tenant=ada.tenant)):
        pass
    assert not edits._holding.by_agent


# --- interrupts: Python hands on a signal where a function is entered, any function


def interrupted_at(step: int, agent: Agent) -> bool:
    """Edit twice, and be interrupted at this step: a call that `memory/writing/edits.py` makes or is made to it, but
    for those with which Django enters and leaves a transaction. Whether it came to that."""
    steps_left = step

    def trace(frame: FrameType, *_: Any) -> None:
        nonlocal steps_left
        ours = edits.__file__ in (frame.f_code.co_filename, frame.f_back and frame.f_back.f_code.co_filename)
        steps_left -= ours and frame.f_code.co_filename != transaction.__file__
        if steps_left == 0:
            steps_left = -1
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with edits.locked(agent):
            operations.remember(agent, [Draft(f"first {step}")], ME)
            operations.remember(agent, [Draft(f"second {step}")], ME)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_step_leaves_nothing_to_be_taken_for_present(ada: Agent) -> None:
    """80-traps: what was held of a transaction that is over would be written over what others did since."""
    step = 1
    while interrupted_at(step, ada):
        remember(ada, f"after {step}")
        step += 1
    assert step > 100
    assert problems(ada) == []
    assert len(contents(ada)) == step - 1 + 2


def test_what_a_savepoint_made_by_hand_undid_cannot_be_built_upon(ada: Agent) -> None:
    """Django does not tell of those: the database refuses the entry that would leave one out."""

    def undo_and_build() -> None:
        with edits.locked(ada):
            savepoint = transaction.savepoint()
            operations.remember(ada, [Draft("undone")], ME)
            transaction.savepoint_rollback(savepoint)
            operations.remember(ada, [Draft("built upon it")], ME)

    with pytest.raises(IntegrityError):
        undo_and_build()
    assert problems(ada) == []
