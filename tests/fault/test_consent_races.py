"""Concurrent decisions by links, double clicks and the runtime: one counts, and everyone sees which."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from audit.consent import Person, Scope
from audit.models import AuditEntry
from audit.trail import Actor
from memory import errors
from memory.agents import lifecycle
from memory.consent import granted_reads, grants, links, proposals
from memory.models import Agent
from tests.conftest import House
from tests.fault.test_writers import assert_whole, at_once, outcomes
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, remember

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

PAT, STEWARD = Person(1, "pat@else.test"), "stew@acme.test"
ADMIN = Actor.person("admin@else.test")
DECISIONS = ("access_granted", "access_denied")


@pytest.fixture
def ada(house: House, settings: Any) -> Agent:
    """An agent with a steward and a memory."""
    settings.ALLOWED_HOSTS = ["testserver"]
    remember(house.ada, f"{MARKER} tea")
    lifecycle.change(house.ada, ME, steward=STEWARD)
    return fresh(house.ada)


def request_access(agent: Agent, person: Person = PAT) -> int:
    return grants.ask(fresh(agent), person, purpose="to see why it forgot the customer", scope=Scope("silo")).number


def press(address: str, decision: str) -> int:
    return Client(raise_request_exception=False).post(address, {"decision": decision}).status_code


def count(agent: Agent, *operations: str) -> int:
    return AuditEntry.objects.filter(agent_id=agent.pk, operation__in=operations).count()


def test_one_of_several_posts_decides_and_the_others_see_it(ada: Agent) -> None:
    for _ in range(5):
        number = request_access(ada)
        pages = [f"/consent/{links.make(fresh(ada), number)}" for _ in range(2)]
        before = count(ada, *DECISIONS)
        posts = [(pages[0], "approve"), (pages[0], "approve"), (pages[1], "deny"), (pages[1], "approve")]
        assert at_once(*[lambda post=post: press(*post) for post in posts]) == [303] * 4
        assert count(ada, *DECISIONS) == before + 1
        is_active = grants.find(fresh(ada), number).state == "active"
        text = "approved this" if is_active else "denied this"
        assert all(text in Client().get(page).content.decode() for page in pages)
        if is_active:
            grants.revoke(fresh(ada), number, ME)
    assert_whole(ada)


def test_the_runtime_and_a_link_decide_once(ada: Agent) -> None:
    number = request_access(ada)
    token = links.make(fresh(ada), number)
    found = outcomes(lambda: grants.deny(fresh(ada), number, ME), lambda: links.decide(token, approve=True))
    assert found.count("NotOpen") == 1
    assert count(ada, *DECISIONS) == 1
    assert_whole(ada)


def test_a_link_decides_only_while_its_person_is_the_steward(ada: Agent) -> None:
    for _ in range(5):
        number, steward = request_access(ada), fresh(ada).steward
        token = links.make(fresh(ada), number)
        decided, _ = at_once(
            lambda token=token: links.decide(token, approve=False),
            lambda steward=steward: lifecycle.change(fresh(ada), ME, steward=f"new-{steward}"),
        )
        if isinstance(decided, errors.InvalidLink):
            assert grants.find(fresh(ada), number).state == "requested"
            grants.deny(fresh(ada), number, ME)
        else:
            entry = AuditEntry.objects.get(agent_id=ada.pk, operation="access_denied", detail__request=number)
            exchange = AuditEntry.objects.filter(agent_id=ada.pk, operation="agent_changed").latest("seq")
            assert (entry.actor_label, entry.seq < exchange.seq) == (steward, True)
    assert_whole(ada)


def test_a_proposal_is_decided_once(ada: Agent) -> None:
    number = proposals.propose(ada, ADMIN, model="openai/gpt-4.1").number
    token = links.make(fresh(ada), number)
    found = outcomes(
        lambda: proposals.accept(fresh(ada), number, ME),
        lambda: proposals.decline(fresh(ada), number, ME),
        lambda: links.decide(token, approve=True),
        lambda: links.decide(token, approve=False),
    )
    assert found.count("NotOpen") == 3
    is_accepted = proposals.find(fresh(ada), number).state == "accepted"
    assert fresh(ada).model == ("openai/gpt-4.1" if is_accepted else "builtin/dedupe")
    assert_whole(ada)


def test_one_of_several_concurrent_proposals_stays_open(ada: Agent) -> None:
    made = at_once(*[lambda n=n: proposals.propose(fresh(ada), ADMIN, model=f"openai/gpt-{n}") for n in range(4)])
    states = sorted(proposals.find(fresh(ada), each.number).state for each in made)
    assert states == ["open", "replaced", "replaced", "replaced"]
    assert_whole(ada)


def test_concurrent_requests_do_not_exceed_the_limit_of_an_agent(ada: Agent, settings: Any) -> None:
    settings.ASKS_PER_AGENT = 3
    people = [Person(each, f"p{each}@else.test") for each in range(1, 7)]
    found = outcomes(*[lambda person=person: request_access(ada, person) for person in people])
    assert found.count("TooManyRequests") == 3
    assert count(ada, "access_requested") == 3
    assert_whole(ada)


def test_an_expired_grant_that_several_see_ends_once(ada: Agent, time_machine: Any) -> None:
    number = request_access(ada)
    grants.approve(fresh(ada), number, ME)
    time_machine.move_to(timezone.now() + timedelta(hours=5))
    acts = [
        lambda: grants.current_state(fresh(ada), grants.find(ada, number)),
        lambda: granted_reads.memories(fresh(ada), number, PAT, [1]),
        lambda: grants.revoke(fresh(ada), number, ME),
    ]
    results = at_once(*acts, *acts)
    assert {getattr(each, "code", each) for each in results} <= {"expired", "not_granted", "not_open"}
    assert count(ada, "access_expired", "access_revoked", "content_read") == 1
    assert_whole(ada)
