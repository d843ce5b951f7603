"""An agent locked for several edits: its row is read once, passed on, and never locked twice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from copy import copy
from types import FrameType
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from memory import errors
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.writing import edits, operations
from tests import steps
from tests.steps import ME, problems, remember

pytestmark = pytest.mark.database


@contextmanager
def undone() -> Iterator[None]:
    """A savepoint that is rolled back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def contents(agent: Agent) -> list[int]:
    return list(Memory.objects.filter(agent=agent).order_by("number").values_list("number", flat=True))


def test_edits_of_a_locked_row_read_it_once(ada: Agent) -> None:
    with CaptureQueriesContext(connection) as asked, edits.locked(ada) as row:
        operations.remember(row, [Draft("one")], ME)
        operations.remember(row, [Draft("two")], ME)
    reads = [q["sql"] for q in asked.captured_queries if 'FROM "memory_agent"' in q["sql"]]
    assert len(reads) == 1
    assert contents(ada) == [1, 2]
    assert problems(ada) == []


def test_memories_that_are_passed_on_are_not_read_again(ada: Agent) -> None:
    remember(ada, "one", "two")
    with CaptureQueriesContext(connection) as asked, edits.locked(ada) as row:
        operations.discard(row, edits.fetch(row, [1]), ME)
    reads = [q["sql"] for q in asked.captured_queries if q["sql"].startswith("SELECT")]
    assert len([sql for sql in reads if '"memory_memory"."sealed"' in sql]) == 1
    assert problems(ada) == []


def test_memories_read_after_an_edit_are_as_it_left_them(ada: Agent) -> None:
    remember(ada, "one")
    with edits.locked(ada) as row:
        [before] = edits.fetch(row, [1])
        assert before.discarded_at is None
        operations.discard(row, [1], ME)
        [after] = edits.fetch(row, [1])
        assert after.discarded_at is not None
        with pytest.raises(errors.Discarded):
            operations.discard(row, [1], ME)
    assert problems(ada) == []


def test_an_agent_is_not_locked_again_by_another_object(ada: Agent) -> None:
    """An edit of the other object would not know of the edits of this one."""
    with edits.locked(ada) as row:
        operations.remember(row, [Draft("one")], ME)
        for other in (ada, steps.fresh(ada)):
            with pytest.raises(RuntimeError, match="Pass on the row"):
                operations.remember(other, [Draft("two")], ME)
            with pytest.raises(RuntimeError, match="Pass on the row"), edits.locked(other):
                pass
    assert contents(ada) == [1]
    assert problems(ada) == []


def test_the_locked_row_may_be_passed_on_until_its_block_ends(ada: Agent) -> None:
    with edits.locked(ada) as row, edits.locked(row) as same:
        assert same is row
        assert row.is_locked
    assert not row.is_locked
    with edits.locked(row) as again:
        assert again is not row


def spoil(agent: Agent) -> None:
    with edits.begin(agent, "remembered", ME) as edit:
        edit.add(Draft("never stored").checked(), Silo.for_agent(agent))
        raise errors.Invalid("content", "is not to be")


def test_a_refused_edit_leaves_the_locked_row_as_it_was(ada: Agent) -> None:
    remember(ada, "one")
    with edits.locked(ada) as row:
        before = dict(row.__dict__)
        with pytest.raises(errors.Invalid):
            spoil(row)
        with pytest.raises(errors.UnknownMemory):
            operations.discard(row, [99], ME)
        assert row.__dict__ == before
        operations.remember(row, [Draft("two")], ME)
    assert contents(ada) == [1, 2]
    assert problems(ada) == []


def test_an_agent_is_locked_no_longer_than_its_block(ada: Agent) -> None:
    with edits.locked(ada) as row:
        pass
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    for each in (ada, row):
        with pytest.raises(errors.MemoryDisabled):
            operations.remember(each, [Draft("one")], ME)


def test_one_locked_agent_is_not_taken_for_another(ada: Agent, bob: Agent) -> None:
    with edits.locked(ada) as one, edits.locked(bob) as other:
        operations.remember(one, [Draft("one")], ME)
        operations.remember(other, [Draft("one"), Draft("two")], ME)
    assert (contents(ada), contents(bob)) == ([1], [1, 2])
    assert problems(ada) == problems(bob) == []


def test_an_agent_that_does_not_exist_is_not_locked(ada: Agent) -> None:
    missing = Agent(pk=10**9, tenant=ada.tenant)
    for _ in range(2):
        with pytest.raises(errors.NotFound), edits.locked(missing):
            pass


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
        with edits.locked(agent) as row:
            operations.remember(row, [Draft(f"first {step}")], ME)
            operations.remember(row, [Draft(f"second {step}")], ME)
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
    assert step > 50
    assert problems(ada) == []
    assert len(contents(ada)) == step - 1 + 2


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_nothing_counts_as_locked(ada: Agent) -> None:
    """An interrupt can come between a mark and the block that removes it; and a copy of the row keeps its mark."""
    with edits.locked(ada) as row:
        left = copy(row)

    def edit() -> None:
        edits._locked_here.set(frozenset({ada.pk}))
        for each in (ada, left):
            operations.remember(each, [Draft("one")], ME)

    copy_context().run(edit)
    assert contents(ada) == [1, 2]
    assert problems(ada) == []


def test_what_a_savepoint_undid_cannot_be_built_upon(ada: Agent) -> None:
    """The locked row does not know of it: the database refuses the entry that would leave one out."""

    def undo_and_build() -> None:
        with edits.locked(ada) as row:
            with undone():
                operations.remember(row, [Draft("undone")], ME)
            operations.remember(row, [Draft("built upon it")], ME)

    with pytest.raises(IntegrityError):
        undo_and_build()
    assert problems(ada) == []
