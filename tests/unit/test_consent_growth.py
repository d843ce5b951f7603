"""What a person asked, proposed or read, and what an agent itself took away, is found in a long trail without walking
through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from audit.consent import standings
from audit.models import Operation
from audit.proposals import proposals
from audit.removals import removals
from audit.trail import Actor
from memory.consent import grants, notices, steps
from memory.models import Agent
from memory.time_machine.rollback import What, preview
from memory.writing import daily_limit, edits
from tests.asking import PAT, granted, read, with_a_past
from tests.bench import trails
from tests.growth import growth
from tests.steps import fresh

pytestmark = pytest.mark.database

ENTRIES = 3_000
INDEXES = ("consent", "reads", "asks", "own_edits", "rollback")


@pytest.fixture
def old(ada: Agent) -> Agent:
    """An agent whose trail is long, and was asked for once before and once after."""
    past = with_a_past(ada)
    read(past, granted(past), 1)
    trails.lengthen(past, trails.toggles(3, ENTRIES))
    read(past, granted(past), 1)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # or what earlier tests left in an index counts for its price
            cursor.execute("REINDEX TABLE audit_auditentry")
        cursor.execute("ANALYZE")
    return fresh(past)


ROADS: dict[str, Callable[[Agent], object]] = {
    "requests": lambda agent: standings(agent.pk),
    "one request": lambda agent: standings(agent.pk, 9),
    "proposals": lambda agent: proposals(agent.pk),
    "removals": lambda agent: removals(agent.pk),
    "what the agent itself took away today": lambda agent: list(
        daily_limit._touched(agent, timezone.now() - daily_limit.DAY, *daily_limit._LOSING)
    ),
    "reads": lambda agent: grants.reads(agent, after=0, limit=100),
    "reads by one grant": lambda agent: notices.reads(agent, 9).count(),
    "an entry to undo, and notices of reads": lambda agent: preview(agent, What.entry(ENTRIES)),
    "what is asked today": lambda agent: steps.require_room(agent, Actor.person(PAT.address)),
}


@contextmanager
def plans() -> Iterator[list[str]]:
    """How the database goes about each SELECT of the trail, with the parameters as it is given them."""
    found: list[str] = []
    explain = "EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN "

    def explained(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if sql.startswith("SELECT") and 'FROM "audit_auditentry"' in sql:
            execute(explain + sql, params, many, context)
            found.append("\n".join(str(row) for row in context["cursor"].fetchall()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explained):
        yield found


def test_a_long_trail_is_not_walked_through_and_all_is_found(old: Agent) -> None:
    for road, go in ROADS.items():
        with plans() as found:
            go(old)
        assert found, road
        assert all(any(f"audit_entry_{name}" in plan for name in INDEXES) for plan in found), (road, found)
    assert [each.state for each in standings(old.pk).values()] == ["active", "active"]
    assert [entry.seq > ENTRIES for entry in grants.reads(old, after=0, limit=9)] == [False, True]
    with plans() as found:
        grants.withdraw_all(PAT.id, "password")
    assert all(any(f"audit_entry_{name}" in plan for name in INDEXES) for plan in found), found
    assert [each.state for each in standings(old.pk).values()] == ["revoked", "revoked"]


def test_what_was_asked_and_settled_costs_no_more_for_what_came_before(ada: Agent, bob: Agent) -> None:
    """An agent's page asks for it, and so does its runtime: who asks again and again slows none of them down."""
    agents = {60: ada, 240: bob}
    for size, agent in agents.items():
        _asked_and_declined(agent, size)
    assert growth(lambda size: removals(agents[size].pk), 60) < 8


def _asked_and_declined(agent: Agent, times: int) -> None:
    first = fresh(agent).audit_seq + 1
    asked = {"reason": "request 17", "asked_by": "owner@acme.test", "memories": [*range(1, 1_001)]}
    steps: list[tuple[str, dict[str, Any]]] = [(Operation.REDACTION_REQUESTED, asked)] * times
    steps += [(Operation.REQUEST_DECLINED, {"request": first + number}) for number in range(times)]
    for operation, detail in steps:
        with edits.begin(fresh(agent), operation, Actor.person("owner@acme.test"), is_notice=True) as edit:
            edit.detail = detail
            edit.finish(always=True)
    assert {each.state for each in removals(agent.pk).values()} == {"declined"}
