"""A migration that was taken back and is run again: it ends as the first run did, and a second changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from memory.models import Agent
from memory.time_machine.rollback import What, roll_back
from memory.transfer import migration
from memory.transfer.planning import Fate
from memory.transfer.reading import Item
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.moving.pieces import fates, move, piece
from tests.steps import ME, active, fresh, problems, row, says

PRIVATE: dict[str, Any] = {"category": "personal", "project": ""}
NOTHING = migration.Figures(None)


def taken_back(agent: Agent, *entries: int | None, **values: Any) -> None:
    for entry in entries:
        roll_back(fresh(agent), What.imported(entry or 0), OPERATOR, **values)


def said(agent: Agent) -> list[tuple[str, str, str]]:
    return sorted((says(agent, n).content, row(agent, n).category, row(agent, n).project) for n in active(agent))


def again(agent: Agent, *items: Item, **values: Any) -> None:
    """Taken in, taken back, and taken in once more."""
    done = move(agent, *items)
    ended = said(agent)
    taken_back(agent, done.entry, **values)
    second = move(agent, *items)
    assert said(agent) == ended
    assert (second.stored, second.said_anew) == (done.stored, done.said_anew)
    assert move(agent, *items) == NOTHING
    assert problems(agent) == []


def test_what_was_new(ada: Agent) -> None:
    again(ada, piece("a", "one"), piece("b", "two"))


def test_what_was_said_anew(ada: Agent) -> None:
    move(ada, piece("a", "one"), piece("b", "two"))
    again(ada, piece("a", "one, and more"), piece("b", "two"), piece("c", "three"))


@pytest.mark.parametrize("elsewhere", [PRIVATE, {"project": "pilot-app"}, {"kind": "journal"}])
@pytest.mark.parametrize("content", ["one", "two"])
def test_what_took_the_place_of_another(ada: Agent, content: str, elsewhere: dict[str, Any]) -> None:
    move(ada, piece("a", "one"))
    again(ada, piece("a", content, **elsewhere))
    assert len(active(ada)) == 1


def test_what_took_its_place_more_than_once(ada: Agent) -> None:
    move(ada, piece("a", "one"))
    again(ada, piece("a", "two", **PRIVATE))
    again(ada, piece("a", "three"))
    again(ada, piece("a", "three", category="technical", project=""))
    assert len(active(ada)) == 1


def test_several_migrations_taken_back_one_by_one(ada: Agent) -> None:
    texts = [{}, {}, PRIVATE, {}]
    done = [move(ada, piece("a", f"version {n}", **where)) for n, where in enumerate(texts)]
    taken_back(ada, *(each.entry for each in reversed(done[1:])))
    assert said(ada) == [("version 0", "contextual", "harbour-desk")]
    assert fates(ada, piece("a", "version 2", **PRIVATE)) == [Fate.REPLACED]
    assert fates(ada, piece("a", "version 1")) == [Fate.CHANGED]
    assert fates(ada, piece("a", "version 0")) == [Fate.THERE]
    taken_back(ada, done[0].entry)
    again(ada, piece("a", "version 3"))
    assert len(active(ada)) == 1


@pytest.mark.parametrize("where", [{}, PRIVATE])
def test_a_file_that_says_what_it_said_before_changes_nothing(ada: Agent, where: dict[str, Any]) -> None:
    move(ada, piece("a", "one"))
    done = move(ada, piece("a", "two", **where))
    taken_back(ada, done.entry)
    assert fates(ada, piece("a", "one")) == [Fate.THERE]
    assert move(ada, piece("a", "one")) == NOTHING


def test_what_was_made_by_a_migration_that_was_taken_back_against_later_ones(ada: Agent) -> None:
    done = move(ada, piece("a", "one"))
    move(ada, piece("a", "two"))
    taken_back(ada, done.entry, force=True)
    assert active(ada) == []
    again(ada, piece("a", "two"))


@pytest.mark.parametrize("edit", ["revised", "discarded"])
def test_what_was_edited_since_is_left(ada: Agent, edit: str) -> None:
    move(ada, piece("a", "one"))
    done = move(ada, piece("a", "two", **PRIVATE))
    taken_back(ada, done.entry)
    if edit == "revised":
        operations.revise(ada, 1, ME, content="mine")
    else:
        operations.discard(ada, [1], ME)
    assert fates(ada, piece("a", "two", **PRIVATE)) == [Fate.OTHERWISE]


def test_what_came_back_and_was_discarded_by_the_agent_is_not_new(ada: Agent) -> None:
    done = move(ada, piece("a", "one"))
    taken_back(ada, done.entry)
    operations.restore(ada, [1], OPERATOR)
    operations.discard(ada, [1], ME)
    assert move(ada, piece("a", "one")) == NOTHING


def test_without_the_agents_key_nothing_is_taken_beside_what_came_back(ada: Agent) -> None:
    move(ada, piece("a", "one"))
    done = move(ada, piece("a", "two", **PRIVATE))
    taken_back(ada, done.entry)
    assert fates(ada, piece("a", "two", **PRIVATE), compares=False) == [Fate.THERE]


def test_a_file_that_changed_in_what_is_masked_alone_is_not_said_anew(ada: Agent) -> None:
    tokens = [f"ghp_{sign * 36}" for sign in ("a1B2", "c3D4")]
    first, second = (f"The token is {token[:40]}." for token in tokens)
    move(ada, piece("a", first))
    assert fates(ada, piece("a", second)) == [Fate.THERE]
    assert move(ada, piece("a", second)) == NOTHING


def test_as_much_is_kept_in_mind_as_is_bounded(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.transfer.reconcile.MOST_BEFORE", 2)
    done = [move(ada, piece("a", f"version {n}")) for n in range(5)]
    taken_back(ada, done[-1].entry, done[-2].entry)
    assert move(ada, piece("a", "version 5")).said_anew == 1
