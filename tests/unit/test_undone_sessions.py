"""A session is marked as rolled back when none of its changes is in effect."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from memory import errors
from memory.models import Agent
from memory.time_machine.rollback import What, preview, roll_back
from refinement import session as sessions
from refinement import undone_sessions
from refinement.models import Outcome, RefinementSession
from tests.refining import Held, fill, opened
from tests.steps import PERSON, fresh, last_entry, remember

pytestmark = pytest.mark.database


def refined(agent: Agent, *to_delete: int) -> Held:
    """A closed session that removed two exact duplicates and deleted these memories."""
    remember(agent, *["Tea."] * 3)
    held = opened(agent)
    for number in to_delete:
        assert held.call("demote_memory", id=number)["ok"]
    sessions.close(held.session, Outcome.COMPLETED)
    return held


def undo(agent: Agent, what: What, **options: Any) -> int:
    entry = roll_back(fresh(agent), what, PERSON, **options).entry
    assert entry is not None
    return entry


def undone_by(rows: Iterable[RefinementSession] | None = None) -> list[int | None]:
    """The entry that undid each of these sessions, or of all."""
    found = list(RefinementSession.objects.order_by("pk") if rows is None else rows)
    undone_sessions.mark(found)
    return [session.undone_by for session in found]


def test_a_session_is_marked_by_a_rollback_and_unmarked_when_that_is_undone(ada: Agent) -> None:
    fill(ada, 8, 100)
    refined(ada, 1)
    since = fresh(ada).audit_seq
    entry = undo(ada, What("session", 1))
    assert undone_by() == [entry]
    undo(ada, What("entry", entry))
    assert undone_by() == [None]
    refined(ada, 2)
    later = undo(ada, What("since_entry", since + 2))
    assert undone_by() == [None, later]
    both = undo(ada, What("since_entry", 1))
    assert undone_by() == [both, both]


def test_a_session_undone_in_part_is_not_marked(ada: Agent) -> None:
    fill(ada, 8, 100)
    held = refined(ada, 1, 2)
    first = undo(ada, What("entry", last_entry(ada).seq - 1))
    assert undone_by() == [None]
    rest = undo(ada, What("session", held.session.number))
    assert undone_by() == [rest]
    undo(ada, What("entry", first))
    assert undone_by() == [None]


def test_the_same_number_of_another_agent_is_not_marked(ada: Agent, bob: Agent) -> None:
    for agent in (ada, bob):
        fill(agent, 8, 100)
        refined(agent, 1)
    entry = undo(bob, What("session", 1))
    assert undone_by() == [None, entry]
    undo(ada, What("session", 1))
    assert undone_by(RefinementSession.objects.filter(agent=bob)) == [entry]


@pytest.mark.parametrize("count", [1, 12])
def test_marking_needs_one_query_and_none_for_open_sessions(
    count: int, ada: Agent, bob: Agent, django_assert_num_queries: Callable[[int], Any]
) -> None:
    for agent in (ada, bob):
        for _ in range(count):
            refined(agent)
        undo(agent, What("session", count))
    rows = list(RefinementSession.objects.all())
    with django_assert_num_queries(1):
        undone_sessions.mark(rows)
    assert sum(row.undone_by is not None for row in rows) == 2
    session = opened(ada).session
    with django_assert_num_queries(0):
        undone_sessions.mark([session])
        undone_sessions.mark([])
    assert session.undone_by is None


def test_a_marked_session_cannot_be_rolled_back_and_others_can(ada: Agent) -> None:
    fill(ada, 20, 100)
    for number in (1, 2, 3):
        refined(ada, number)
    undo(ada, What("session", 2))
    for session in RefinementSession.objects.order_by("pk"):
        is_marked = undone_by([session]) != [None]
        assert is_marked == (session.number == 2)
        if is_marked:
            with pytest.raises(errors.AlreadyUndone):
                preview(fresh(ada), What("session", session.number))
        else:
            preview(fresh(ada), What("session", session.number))
