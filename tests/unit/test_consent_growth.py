"""Queries for requests, proposals, reads and recent edits use an index, so a long trail does not slow them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit import consent, verify
from audit.consent import PROPOSAL, REMOVALS, waiting_removals
from audit.models import Operation
from audit.trail import Actor
from memory.consent import approval, grants, notices, requests, withdrawals
from memory.models import Agent
from memory.time_machine.rollback import What, preview
from memory.writing import daily_limit, edits
from tests.access_requests import PAT, granted, read, with_a_past
from tests.bench import trails
from tests.growth import growth
from tests.steps import ME, PERSON, fresh, remember

pytestmark = pytest.mark.database

ENTRIES = 3_000
INDEXES = ("consent", "reads", "asks", "own_edits", "rollback", "redaction")
ONE_ENTRY = ["(agent_id=? AND seq=?)", "(agent_id=? AND seq>? AND seq<?)", "audit_entry_one_per_seq"]


@pytest.fixture
def old(ada: Agent) -> Agent:
    """An agent with a long trail, and a read at each end of it."""
    agent = with_a_past(ada)
    read(agent, granted(agent), 1)
    trails.lengthen(agent, trails.toggles(3, ENTRIES))
    read(agent, granted(agent), 1)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # remains of earlier tests make an index look expensive
            cursor.execute("REINDEX TABLE audit_auditentry")
        cursor.execute("ANALYZE")
    return fresh(agent)


QUERIES: dict[str, Callable[[Agent], object]] = {
    "requests": lambda agent: requests.present(agent, Operation.ACCESS_REQUESTED),
    "one request": lambda agent: requests.get(agent, 9),
    "proposals": lambda agent: requests.waiting(agent, PROPOSAL),
    "removals": lambda agent: requests.waiting(agent, *REMOVALS),
    "removals of all agents": lambda _: waiting_removals(Agent.objects.order_by("pk"), 9),
    "edits of today": lambda agent: list(
        daily_limit._touched(agent, timezone.now() - daily_limit.DAY, *daily_limit._LOSING)
    ),
    "reads": lambda agent: grants.reads(agent, after=0, limit=100),
    "reads by one grant": lambda agent: notices.reads(agent, 9).count(),
    "an entry to undo, and notices of reads": lambda agent: preview(agent, What("entry", ENTRIES)),
    "requests of today": lambda agent: requests.require_room(agent, Actor.person(PAT.address)),
    "withdrawal": lambda _: withdrawals.withdraw_all(PAT.id, "password"),
}


@contextmanager
def query_plans() -> Iterator[list[str]]:
    """The plan of each SELECT of the trail, with its parameters."""
    plans: list[str] = []
    explain = "EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN "

    def explained(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        is_named = getattr(context["cursor"].cursor, "name", "")  # on PostgreSQL, such a cursor explains nothing
        is_of_trail = sql.startswith("SELECT") and 'FROM "audit_auditentry"' in sql
        if is_of_trail and not sql.endswith("DESC LIMIT 1") and not is_named:
            execute(explain + sql, params, many, context)
            plans.append("\n".join(str(row) for row in context["cursor"].fetchall()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explained):
        yield plans


def _states(agent: Agent) -> list[str]:
    return [requests.find(agent, each.number).state for each in requests.present(agent, Operation.ACCESS_REQUESTED)]


def test_queries_of_a_long_trail_use_an_index_and_find_all(old: Agent) -> None:
    states = ["active", "active"]
    for name, query in QUERIES.items():
        assert _states(old) == states
        with query_plans() as plans:
            query(old)
        assert plans, name
        used = [f"audit_entry_{index}" for index in INDEXES] + ONE_ENTRY
        assert [plan for plan in plans if not any(index in str(plan) for index in used)] == [], name
    assert _states(old) == ["revoked", "revoked"]
    assert [entry.seq > ENTRIES for entry in grants.reads(old, after=0, limit=9)] == [False, True]


def test_settled_removal_requests_cost_linear_time(ada: Agent, bob: Agent) -> None:
    """Each admin page and each runtime reads them."""
    agents = {60: ada, 240: bob}
    for size, agent in agents.items():
        _decline_requests(agent, size)
    assert growth(lambda size: requests.waiting(agents[size], *REMOVALS), 60) < 8


def _decline_requests(agent: Agent, times: int) -> None:
    first = fresh(agent).audit_seq + 1
    request = {"reason": "request 17", "asked_by": "owner@acme.test", "memories": [*range(1, 1_001)]}
    entries: list[tuple[str, dict[str, Any]]] = [(Operation.REDACTION_REQUESTED, request)] * times
    entries += [(Operation.REQUEST_DECLINED, {"request": first + number}) for number in range(times)]
    for operation, detail in entries:
        with edits.begin(fresh(agent), operation, Actor.person("owner@acme.test"), is_notice=True) as edit:
            edit.detail = detail
            edit.finish(always=True)
    assert {each.state for each in requests.present(agent, *REMOVALS)} - {"open"} == {"declined"}


@pytest.mark.parametrize(("limit", "value"), [("_MOST_READ", 4), ("_MOST_CHARACTERS", 5_000)])
def test_many_removal_requests_of_one_agent_hide_no_other(
    ada: Agent, bob: Agent, monkeypatch: Any, limit: str, value: int
) -> None:
    monkeypatch.setattr(consent, limit, value, raising=False)
    requests.ask_erasure(ada, PERSON, reason="ticket 2")
    number = requests.ask_erasure(bob, PERSON, reason="ticket 1").number
    _decline_requests(ada, 5)
    waiting = waiting_removals(Agent.objects.order_by("pk"), 9)
    assert [(label, request.number) for (_, label), [request] in waiting.items()] == [("globex/bob", number)]


def test_a_list_reads_the_entries_of_a_limited_number_of_agents_with_open_requests(ada: Agent, bob: Agent) -> None:
    """Otherwise thousands of agents with old requests occupied a worker, and a gigabyte, for a digest."""
    _decline_requests(ada, 5)
    number = requests.ask_erasure(bob, PERSON, reason="ticket 1").number
    for most in (1, 2):
        [((_, label), [request])] = waiting_removals(Agent.objects.order_by("pk"), most).items()
        assert (label, request.number) == ("globex/bob", number)
    requests.ask_erasure(ada, PERSON, reason="ticket 2")
    assert [label for _, label in waiting_removals(Agent.objects.order_by("pk"), 1)] == ["acme/ada"]


def test_the_check_of_the_last_entries_reads_no_earlier_redaction(ada: Agent) -> None:
    def queries() -> int:
        remember(fresh(ada), "tea")
        agent = fresh(ada)
        with CaptureQueriesContext(connection) as captured:
            verify.intact(agent.pk, lambda _: False, agent.audit_seq, agent.audit_seq + 1)
        return len(captured)

    before = queries()
    for _ in range(3):
        number = requests.ask_redaction(fresh(ada), [fresh(ada).next_number - 1], ME, reason="ticket 1").number
        approval.approve(fresh(ada), number, ME)
        assert queries() == before
