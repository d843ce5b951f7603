"""Rollbacks beside other writers, in threads with connections of their own: one after the other, and nothing lost."""

from __future__ import annotations

import pytest

from memory import errors, store
from memory.intake import Draft
from memory.models import Agent
from memory.time_machine import Figures, What, roll_back
from refinement import session as sessions
from tests import refining, steps
from tests.fault.test_writers import at_once, whole
from tests.steps import ME, PERSON, fresh, remember

pytestmark = pytest.mark.django_db(transaction=True)


def seq(agent: Agent) -> int:
    return int(fresh(agent).audit_seq)


def test_of_two_rollbacks_of_one_entry_one_goes_through(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(200)))
    store.discard(ada, numbers, ME)
    what = What.entry(seq(ada))
    outcomes = at_once(*[lambda: roll_back(fresh(ada), what, PERSON)] * 3)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyUndone", "AlreadyUndone", "Figures"]
    assert steps.active(ada) == numbers
    whole(ada)


def test_edits_during_a_rollback_come_before_or_after_it(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(200)))
    start = seq(ada)
    store.discard(ada, numbers[:100], ME)

    def edits() -> int:
        for n in range(10):
            store.remember(fresh(ada), [Draft(f"new {n}")], ME)
        return 10

    rolled, _ = at_once(lambda: roll_back(fresh(ada), What.since_entry(start), PERSON), edits)
    assert isinstance(rolled, Figures)
    assert set(numbers) <= set(steps.active(ada))
    discarded_new = 10 - (len(steps.active(ada)) - 200)
    assert discarded_new == rolled.discarded
    whole(ada)


def test_a_rollback_during_a_session_makes_its_next_edits_stale(ada: Agent) -> None:
    remember(ada, "tea with milk and sugar", "coffee")
    store.revise(ada, 1, ME, content="tea with milk")
    held = refining.opened(ada)
    roll_back(fresh(ada), What.entry(seq(ada) - 1), PERSON)
    answer = held.call("update_memory", id=1, content="tea & milk")
    assert answer["code"] == "stale_memory"
    assert steps.says(ada, 1).content == "tea with milk and sugar"
    sessions.close(held.session, "completed")
    whole(ada)


def test_a_session_is_not_rolled_back_while_it_goes_on(ada: Agent) -> None:
    refining.fill(ada, 8, 20)
    held = refining.opened(ada)
    assert held.call("delete_memory", id=1)["ok"]
    with pytest.raises(errors.NotOver):
        roll_back(fresh(ada), What.session(held.session.number), PERSON)
    sessions.close(held.session, "completed")
    roll_back(fresh(ada), What.session(held.session.number), PERSON)
    assert steps.active(ada) == list(range(1, 9))
    whole(ada)
