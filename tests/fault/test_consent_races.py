"""Decisions made at the same time, by links, buttons pressed twice and the runtime: one counts, and all see which."""

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
from memory.consent import granted_reads, grants, proposals
from memory.consent import links as steward_links
from memory.models import Agent
from tests.conftest import House
from tests.fault.test_writers import at_once, whole
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, remember

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

PAT, STEW = Person(1, "pat@else.test"), "stew@acme.test"
ADMIN = Actor.person("admin@else.test")
PURPOSE = "to see why it forgot the customer"


@pytest.fixture
def led(house: House, settings: Any) -> Agent:
    settings.ALLOWED_HOSTS = ["testserver"]
    remember(house.ada, f"{MARKER} tea")
    lifecycle.change(house.ada, ME, steward=STEW)
    return fresh(house.ada)


def ask(agent: Agent) -> int:
    return grants.ask(fresh(agent), PAT, purpose=PURPOSE, scope=Scope("silo")).number


def press(address: str, decision: str) -> int:
    return Client(raise_request_exception=False).post(address, {"decision": decision}).status_code


def settled(agent: Agent, *operations: str) -> int:
    return AuditEntry.objects.filter(agent_id=agent.pk, operation__in=operations).count()


def test_of_raced_posts_one_decides_and_the_others_see_it(led: Agent) -> None:
    for _ in range(5):
        number = ask(led)
        links = [f"/consent/{steward_links.make(fresh(led), number)}" for _ in range(2)]
        before = settled(led, "access_granted", "access_denied")
        posts = [(links[0], "approve"), (links[0], "approve"), (links[1], "deny"), (links[1], "approve")]
        assert at_once(*[lambda post=post: press(*post) for post in posts]) == [303] * 4
        assert settled(led, "access_granted", "access_denied") == before + 1
        state = grants.find(fresh(led), number).state
        told = "approved this" if state == "active" else "denied this"
        assert all(told in Client().get(link).content.decode() for link in links)
        if state == "active":
            grants.revoke(fresh(led), number, ME)
    whole(led)


def test_the_runtime_and_a_link_at_once(led: Agent) -> None:
    number = ask(led)
    token = steward_links.make(fresh(led), number)
    outcomes = at_once(lambda: grants.deny(fresh(led), number, ME), lambda: steward_links.decide(token, approve=True))
    assert [type(each).__name__ for each in outcomes].count("NotOpen") == 1
    assert settled(led, "access_granted", "access_denied") == 1
    whole(led)


def test_a_link_and_the_exchange_of_its_steward_at_once(led: Agent) -> None:
    """It decided while they were the steward, or not at all."""
    for _ in range(5):
        number = ask(led)
        steward = fresh(led).steward
        token = steward_links.make(fresh(led), number)
        decided, _ = at_once(
            lambda token=token: steward_links.decide(token, approve=False),
            lambda steward=steward: lifecycle.change(fresh(led), ME, steward=f"new-{steward}"),
        )
        if isinstance(decided, errors.InvalidLink):
            assert grants.find(fresh(led), number).state == "requested"
            grants.deny(fresh(led), number, ME)
        else:
            entry = AuditEntry.objects.get(agent_id=led.pk, operation="access_denied", detail__request=number)
            exchange = AuditEntry.objects.filter(agent_id=led.pk, operation="agent_changed").latest("seq")
            assert (entry.actor_label, entry.seq < exchange.seq) == (steward, True)
    whole(led)


def test_a_proposal_is_settled_once(led: Agent) -> None:
    number = proposals.propose(led, ADMIN, model="openai/gpt-4.1").number
    token = steward_links.make(fresh(led), number)
    outcomes = at_once(
        lambda: proposals.accept(fresh(led), number, ME),
        lambda: proposals.decline(fresh(led), number, ME),
        lambda: steward_links.decide(token, approve=True),
        lambda: steward_links.decide(token, approve=False),
    )
    assert sum(isinstance(each, errors.NotOpen) for each in outcomes) == 3
    accepted = proposals.find(fresh(led), number).state == "accepted"
    assert fresh(led).model == ("openai/gpt-4.1" if accepted else "builtin/dedupe")
    whole(led)


def test_of_proposals_at_once_one_stays_open(led: Agent) -> None:
    made = at_once(*[lambda n=n: proposals.propose(fresh(led), ADMIN, model=f"openai/gpt-{n}") for n in range(4)])
    states = sorted(proposals.find(fresh(led), each.number).state for each in made)
    assert states == ["open", "replaced", "replaced", "replaced"]
    whole(led)


def test_the_last_place_to_ask_is_taken_once(led: Agent, settings: Any) -> None:
    settings.ASKS_PER_AGENT = 3
    people = [Person(each, f"p{each}@else.test") for each in range(1, 7)]
    asked = at_once(
        *[
            lambda person=person: grants.ask(fresh(led), person, purpose=PURPOSE, scope=Scope("silo"))
            for person in people
        ]
    )
    assert [type(each).__name__ for each in asked].count("TooManyRequests") == 3
    assert settled(led, "access_requested") == 3
    whole(led)


def test_a_grant_seen_to_be_over_by_many_at_once_ends_once(led: Agent, time_machine: Any) -> None:
    number = ask(led)
    grants.approve(fresh(led), number, ME)
    time_machine.move_to(timezone.now() + timedelta(hours=5))
    seen = [
        lambda: grants.current_state(fresh(led), grants.find(led, number)),
        lambda: granted_reads.memories(fresh(led), number, PAT, [1]),
        lambda: grants.revoke(fresh(led), number, ME),
    ]
    outcomes = at_once(*seen, *seen)
    assert {getattr(each, "code", each) for each in outcomes} <= {"expired", "not_granted", "not_open"}
    assert settled(led, "access_expired", "access_revoked", "content_read") == 1
    whole(led)
