"""Which sessions are told as rolled back: those of which no change stands, whatever took them back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from memory import errors
from memory.models import Agent
from memory.time_machine.rollback import What, preview, roll_back
from memory.writing import operations
from refinement import session as sessions
from refinement import undone_sessions
from refinement.models import Outcome, RefinementSession
from tests.refining import Held, fill, filler, opened
from tests.steps import ME, PERSON, fresh, last_entry, remember

pytestmark = pytest.mark.database


def refined(agent: Agent, *deleting: int) -> Held:
    """A session that removes two exact duplicates, deletes these and is over."""
    remember(agent, *["Tea."] * 3)
    held = opened(agent)
    for number in deleting:
        assert held.call("delete_memory", id=number)["ok"]
    sessions.close(held.session, Outcome.COMPLETED)
    return held


def undo(agent: Agent, what: What, **options: Any) -> int:
    entry = roll_back(fresh(agent), what, PERSON, **options).entry
    assert entry is not None
    return entry


def by(rows: Iterable[RefinementSession] | None = None) -> list[int | None]:
    """Of these sessions, or all, in order, what took them back."""
    found = list(RefinementSession.objects.order_by("pk") if rows is None else rows)
    undone_sessions.mark(found)
    return [session.undone_by for session in found]


def test_a_rollback_of_the_rollback_unmarks_it_and_another_marks_it_again(ada: Agent) -> None:
    fill(ada, 8, 100)
    refined(ada, 1)
    assert by() == [None]
    entry = undo(ada, What.session(1))
    assert by() == [entry]
    undo(ada, What.entry(entry))
    assert by() == [None]
    again = undo(ada, What.session(1))
    assert by() == [again]


def test_everything_taken_back_takes_back_its_sessions(ada: Agent) -> None:
    fill(ada, 8, 100)
    refined(ada, 1)
    since = fresh(ada).audit_seq
    refined(ada, 2)
    only_the_later = undo(ada, What.since_entry(since))
    assert by() == [None, only_the_later]
    both = undo(ada, What.since_entry(1))
    assert by() == [both, both]


def test_a_session_of_which_a_part_stands_is_not_marked(ada: Agent) -> None:
    """Rolled back entry by entry, it is once the last of it is; and no more once one of them is back."""
    fill(ada, 8, 100)
    held = refined(ada, 1, 2)
    first = undo(ada, What.entry(last_entry(ada).seq - 1))
    assert by() == [None]
    rest = undo(ada, What.session(held.session.number))
    assert by() == [rest]
    undo(ada, What.entry(first))
    assert by() == [None]


def test_what_is_taken_back_while_it_is_open_leaves_it_unmarked(ada: Agent) -> None:
    """All it did so far was undone; what it did then, and its notice, stand."""
    fill(ada, 8, 100)
    since = fresh(ada).audit_seq + 1  # its memories, not what it did with them
    remember(ada, *["Tea."] * 3)
    held = opened(ada)
    undo(ada, What.since_entry(since))
    assert by() == [None]
    sessions.close(held.session, Outcome.COMPLETED)
    assert by() == [None]
    ended = undo(ada, What.session(1))
    assert by() == [ended]


def test_a_later_edit_that_was_left_as_it_is_hinders_nothing(ada: Agent) -> None:
    made = fill(ada, 8, 100)
    refined(ada, made[0])
    operations.restore(ada, [made[0]], PERSON)
    operations.revise(ada, made[0], ME, content=filler(90, "new"))
    entry = undo(ada, What.session(1), skip_conflicts=True)
    assert by() == [entry]


def test_another_agents_session_of_that_number_is_not_marked(ada: Agent, bob: Agent) -> None:
    for agent in (ada, bob):
        fill(agent, 8, 100)
        refined(agent, 1)
    entry = undo(bob, What.session(1))
    assert by() == [None, entry]
    undo(ada, What.session(1))
    assert by(RefinementSession.objects.filter(agent=bob)) == [entry]


@pytest.mark.parametrize("several", [1, 12])
def test_it_is_one_query_for_one_session_and_for_many(
    several: int, ada: Agent, bob: Agent, django_assert_num_queries: Callable[[int], Any]
) -> None:
    for agent in (ada, bob):
        for _ in range(several):
            refined(agent)
        undo(agent, What.session(several))
    rows = list(RefinementSession.objects.all())
    with django_assert_num_queries(1):
        undone_sessions.mark(rows)
    assert sum(row.undone_by is not None for row in rows) == 2


def test_open_sessions_are_not_asked_for(ada: Agent, django_assert_num_queries: Callable[[int], Any]) -> None:
    session = opened(ada).session
    with django_assert_num_queries(0):
        undone_sessions.mark([session])
        undone_sessions.mark([])
    assert session.undone_by is None


def test_what_is_marked_is_what_the_time_machine_has_nothing_left_of(ada: Agent) -> None:
    fill(ada, 20, 100)
    for number in (1, 2, 3):
        refined(ada, number)
    undo(ada, What.session(2))
    left = []
    for number in (1, 2, 3):
        try:
            preview(fresh(ada), What.session(number))
        except errors.AlreadyUndone:
            left.append(number)
    assert [session.number for session in RefinementSession.objects.order_by("pk") if by([session]) != [None]] == left
    assert left == [2]
