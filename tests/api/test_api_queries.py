"""The queries of a request: one for the key with its agent and tenant, then those of the operation."""

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

KEY = ["SELECT memory_agentkey", "SELECT audit_auditentry"]  # with its agent; that no entry is later
AGAIN = ["SELECT memory_agent", "SELECT audit_auditentry"]  # after a read: was the key revoked in the meantime?
FIRST_USE = ["UPDATE memory_agentkey"]  # at most once a minute
CHANGED = ["SELECT memory_memory"]  # is the search index current?
FOUND = ["SELECT memory_memory"]  # the rows of the results
SESSIONS = ["SELECT refinement_refinementsession"]
ROLLBACKS = ["SELECT audit_auditentry"]  # and the entries of the sessions on the page
TRANSACTION = ["BEGIN", "COMMIT"]


@pytest.fixture
def used(runtime: Caller, ada: Agent) -> Caller:
    """A runtime that has just searched its silo."""
    steps.remember(ada, "green tea", "black tea", "milk")
    cache.forget()
    assert runtime.post("memories/search", {"q": "tea"}).status == 200
    return runtime


def statements(call: Callable[[], Any]) -> list[str]:
    return [sql for sql in asked(call) if sql not in TRANSACTION]


def test_the_first_use_of_a_key_is_stored_once(runtime: Caller) -> None:
    assert statements(lambda: runtime.get("context")) == [*KEY, *FIRST_USE, *TAKE, *AGAIN]
    assert statements(lambda: runtime.get("context")) == [*KEY, *TAKE, *AGAIN]


def test_storing_one_or_many_memories_takes_the_same_queries(used: Caller) -> None:
    batches = [{"memories": [{"content": f"text {n}"} for n in range(many)]} for many in (2, 200)]
    calls = [("memories", {"content": "sugar", "tags": ["a"]}), *(("memories/batch", batch) for batch in batches)]
    for path, body in calls:
        assert statements(partial(used.post, path, body)) == [*KEY, *LOCK[:1], *REPEATS, *ADD, *RECORD]


def test_a_search_checks_its_index_and_reads_its_results(used: Caller, ada: Agent) -> None:
    for query, limit, results in (("tea", 1, FOUND), ("tea", 100, FOUND), ("zebra", 10, [])):
        found = partial(used.post, "memories/search", {"q": query, "limit": limit})
        assert statements(found) == [*KEY, *CHANGED, *results, *AGAIN]
    steps.remember(ada, "rooibos tea")
    found = partial(used.post, "memories/search", {"q": "rooibos"})
    assert statements(found) == [*KEY, *CHANGED, *TAKE, *FOUND, *AGAIN]
    assert found().ids == [4]


@pytest.mark.parametrize("many", [1, 12])
def test_a_list_of_sessions_takes_one_query_for_their_rollbacks(used: Caller, ada: Agent, many: int) -> None:
    for _ in range(many):
        sessions.close(refining.opened(ada).session, "completed")
    roll_back(steps.fresh(ada), What("session", many), steps.PERSON)
    listed: list[Any] = []
    queries = statements(lambda: listed.extend(used.get("refinement-sessions?limit=100").json["results"]))
    assert queries == [*KEY, *SESSIONS, *ROLLBACKS, *AGAIN]
    assert [session["undone_by"] is not None for session in listed] == [True] + [False] * (many - 1)
