"""Several edits under one lock: the agent's row is read once, passed on, and never locked twice."""

import contextlib
import sys
import weakref
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
from tests.steps import ME, fresh, problems, remember, signed_update

pytestmark = pytest.mark.database


def numbers_of(agent: Agent) -> list[int]:
    """The numbers of all memories. The trail must verify."""
    assert problems(agent) == []
    return list(Memory.objects.filter(agent=agent).order_by("number").values_list("number", flat=True))


def store(agent: Agent, *texts: str) -> None:
    operations.remember(agent, [Draft(text) for text in texts], ME)


def test_edits_of_a_locked_row_read_the_agent_once(ada: Agent) -> None:
    with CaptureQueriesContext(connection) as queries, edits.locked(ada) as row:
        store(row, "one")
        store(row, "two")
    assert len([q for q in queries if 'FROM "memory_agent"' in q["sql"]]) == 1
    assert numbers_of(ada) == [1, 2]


def test_memories_fetched_after_an_edit_include_it(ada: Agent) -> None:
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


def test_a_missing_agent_or_one_that_another_object_locks_cannot_be_locked(ada: Agent) -> None:
    """The other object does not hold the edits of the first."""
    with edits.locked(ada) as row:
        store(row, "one")
        for other in (ada, fresh(ada)):
            with pytest.raises(RuntimeError, match="Pass on the row"):
                store(other, "two")
            with pytest.raises(RuntimeError, match="Pass on the row"), edits.locked(other):
                pass
    assert numbers_of(ada) == [1]
    missing = Agent(pk=10**9, tenant=ada.tenant)
    for _ in range(2):
        with pytest.raises(errors.NotFound), edits.locked(missing):
            pass


def test_a_locked_row_is_locked_until_its_block_ends(ada: Agent) -> None:
    with edits.locked(ada) as row, edits.locked(row) as same:
        assert same is row
        assert row.is_locked
    assert not row.is_locked
    with edits.locked(row) as again:
        assert again is not row
    signed_update(Agent.objects.filter(pk=ada.pk), memory_enabled=False)
    for each in (ada, row):
        with pytest.raises(errors.MemoryDisabled):
            store(each, "one")


def _failed_edit(agent: Agent) -> None:
    with edits.begin(agent, "remembered", ME) as edit:
        edit.add(Draft("never stored").checked(), Silo.for_agent(agent))
        raise errors.Invalid("content", "is not to be")


def test_a_failed_edit_leaves_the_locked_row_unchanged(ada: Agent) -> None:
    remember(ada, "one")
    with edits.locked(ada) as row:
        before = dict(row.__dict__)
        with pytest.raises(errors.Invalid):
            _failed_edit(row)
        with pytest.raises(errors.UnknownMemory):
            operations.discard(row, [99], ME)
        assert row.__dict__ == before
        store(row, "two")
    assert numbers_of(ada) == [1, 2]


def test_two_agents_can_be_locked_at_once(ada: Agent, bob: Agent) -> None:
    with edits.locked(ada) as one, edits.locked(bob) as other:
        store(one, "one")
        store(other, "one", "two")
    assert (numbers_of(ada), numbers_of(bob)) == ([1], [1, 2])


def interrupt_at(step: int, agent: Agent) -> bool:
    """Edit twice, with a KeyboardInterrupt at this step. Return False if there is no such step.

    A step is a call from or to `memory/writing/edits.py`, without code of others that enters and leaves a transaction,
    and without callbacks of weak references, whose errors are lost: Python delivers a signal at a call.
    """
    steps_left = step

    def trace(frame: FrameType, *_: Any) -> None:
        nonlocal steps_left
        is_edit = edits.__file__ in (frame.f_code.co_filename, frame.f_back and frame.f_back.f_code.co_filename)
        others = (contextlib.__file__, transaction.__file__, weakref.__file__)
        steps_left -= is_edit and frame.f_code.co_filename not in others
        if steps_left == 0:
            steps_left = -1
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with edits.locked(agent) as row:
            store(row, f"first {step}")
            store(row, f"second {step}")
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_step_leaves_no_stale_state(ada: Agent) -> None:
    """80-traps: stale state of an ended transaction would overwrite later edits."""
    step = 1
    while interrupt_at(step, ada):
        remember(ada, f"after {step}")
        step += 1
    assert step > 50
    assert len(numbers_of(ada)) == step - 1 + 2


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_no_row_counts_as_locked(ada: Agent) -> None:
    """An interrupt can leave a mark in the context. A copy of the row keeps its mark."""
    with edits.locked(ada) as row:
        copied = copy(row)

    def edit() -> None:
        edits._locked_here.set(frozenset({ada.pk}))
        for each in (ada, copied):
            store(each, "one")

    copy_context().run(edit)
    assert numbers_of(ada) == [1, 2]


def test_the_database_refuses_an_edit_based_on_an_undone_savepoint(ada: Agent) -> None:
    def undo_and_store() -> None:
        with edits.locked(ada) as row:
            with transaction.atomic():
                store(row, "undone")
                transaction.set_rollback(True)
            store(row, "based on it")

    with pytest.raises(IntegrityError):
        undo_and_store()
    assert problems(ada) == []
