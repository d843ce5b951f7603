"""What a request asks of the database: first the key, agent and tenant, by one statement; then its own work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from memory.models import Agent
from memory.search import cache
from memory.time_machine.rollback import What, roll_back
from refinement import session as sessions
from tests import refining, steps
from tests.api.calling import Caller
from tests.unit.test_queries import ADD, LOCK, RECORD, REPEATS, TAKE, asked

pytestmark = pytest.mark.database

KEY = ["SELECT memory_agentkey"]  # with its agent and tenant
AGAIN = ["SELECT memory_agentkey"]  # whether the key has ended meanwhile; not for an edit, if the trail has not grown
FIRST_USE = ["UPDATE memory_agentkey"]  # noted at most once a minute
BEHIND = ["SELECT memory_memory"]  # whether anything changed since the index was made
FOUND = ["SELECT memory_memory"]  # the rows of what was found
SESSIONS = ["SELECT refinement_refinementsession"]
ROLLBACKS = ["SELECT audit_auditentry"]  # and the entries of the sessions on the page
TRANSACTION = ["BEGIN", "COMMIT"]


@pytest.fixture
def used(runtime: Caller, ada: Agent) -> Caller:
    """A runtime whose key was used just now, with a silo that was searched before."""
    steps.remember(ada, "green tea", "black tea", "milk")
    cache.forget()
    assert runtime.post("memories/search", {"q": "tea"}).status == 200
    return runtime


def statements(act: Callable[[], Any]) -> list[str]:
    return [sql for sql in asked(act) if sql not in TRANSACTION]


def test_the_first_use_of_a_key_is_noted_once(runtime: Caller) -> None:
    assert statements(lambda: runtime.get("context")) == [*KEY, *FIRST_USE, *TAKE]
    assert statements(lambda: runtime.get("context")) == [*KEY, *TAKE]


def test_remembering_reads_nothing_back(used: Caller) -> None:
    told = lambda: used.post("memories", {"content": "sugar", "tags": ["a"]})  # noqa: E731
    assert statements(told) == [*KEY, *LOCK, *REPEATS, *ADD, *RECORD]


def test_a_batch_asks_the_same_for_few_and_for_many(used: Caller) -> None:
    for many in (2, 200):
        body = {"memories": [{"content": f"text {number}"} for number in range(many)]}
        told = partial(used.post, "memories/batch", body)
        assert statements(told) == [*KEY, *LOCK, *REPEATS, *ADD, *RECORD]


def test_a_search_asks_whether_it_is_behind_and_for_what_it_found(used: Caller) -> None:
    for query, limit, asked_for in (("tea", 1, FOUND), ("tea", 100, FOUND), ("zebra", 10, [])):
        found = partial(used.post, "memories/search", {"q": query, "limit": limit})
        assert statements(found) == [*KEY, *AGAIN, *BEHIND, *asked_for]


def test_a_search_after_an_edit_takes_it_in(used: Caller, ada: Agent) -> None:
    steps.remember(ada, "rooibos tea")
    found = lambda: used.post("memories/search", {"q": "rooibos"})  # noqa: E731
    assert statements(found) == [*KEY, *AGAIN, *BEHIND, *TAKE, *FOUND]
    assert [each["id"] for each in used.post("memories/search", {"q": "rooibos"}).json["results"]] == [4]


@pytest.mark.parametrize("many", [1, 12])
def test_a_list_of_sessions_asks_once_which_were_rolled_back(used: Caller, ada: Agent, many: int) -> None:
    for _ in range(many):
        sessions.close(refining.opened(ada).session, "completed")
    roll_back(steps.fresh(ada), What.session(many), steps.PERSON)
    listed: list[Any] = []
    asked_for = statements(lambda: listed.extend(used.get("refinement-sessions?limit=100").json["results"]))
    assert asked_for == [*KEY, *SESSIONS, *ROLLBACKS]
    assert [session["undone_by"] is not None for session in listed] == [True] + [False] * (many - 1)
