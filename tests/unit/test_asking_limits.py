"""A steward is not buried in letters: so many requests and proposals a day by one person, and about one agent."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from audit.consent import Person
from audit.models import AuditEntry
from audit.trail import Actor
from memory import errors
from memory.agents import lifecycle
from memory.consent import grants, proposals, removal_requests
from memory.errors import TooManyRequests
from memory.models import Agent
from tests.asking import EVE, PAT, STEWARD, ask, with_a_past
from tests.queueing import work
from tests.steps import ME, fresh, problems, refused

TENANT = Actor.operator("k3v9x1m7q2aa")


@pytest.fixture
def past(ada: Agent) -> Agent:
    return with_a_past(ada)


@pytest.fixture(autouse=True)
def _few(settings: Any) -> None:
    settings.ASKS_PER_PERSON, settings.ASKS_PER_AGENT = 3, 5


def denied(agent: Agent, person: Person = PAT) -> None:
    grants.deny(fresh(agent), ask(agent, person).number, ME)


def withdrawn(agent: Agent, person: Person = PAT) -> None:
    ask(agent, person)
    grants.withdraw_all(person.id, "password")


def granted_and_ended(agent: Agent, person: Person = PAT) -> None:
    number = ask(agent, person).number
    grants.approve(fresh(agent), number, ME)
    grants.revoke(fresh(agent), number, Actor.person(person.address))


def proposed(agent: Agent, person: Person = PAT) -> None:
    """Each takes the place of the one before."""
    model = f"openai/{fresh(agent).audit_seq}"
    proposals.propose(fresh(agent), Actor.person(person.address), model=model)


def taken_back(agent: Agent, person: Person = PAT) -> None:
    proposed(agent, person)
    open_one = proposals.open_one(fresh(agent))
    assert open_one is not None
    proposals.decline(fresh(agent), open_one.number, Actor.person(person.address))


def removal_asked(agent: Agent, person: Person = PAT) -> None:
    removal_requests.ask_redaction(fresh(agent), [1], Actor.person(person.address), reason="request 17")


ROADS: list[Callable[..., None]] = [denied, withdrawn, granted_and_ended, proposed, taken_back, removal_asked]


def again_from(error: BaseException) -> datetime:
    told = re.search(r"Try again after (.*) UTC", str(error))
    assert told is not None
    return datetime.strptime(told[1], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


@pytest.mark.parametrize(("first", "then"), [*zip(ROADS, [denied, proposed, removal_asked] * 2, strict=True)])
def test_somebody_asks_so_many_times_a_day(first: Any, then: Any, past: Agent, time_machine: Any) -> None:
    """Whatever became of it, and whether they asked to read or for a change."""
    begun = timezone.now()
    for hours in range(3):
        time_machine.move_to(begun + timedelta(hours=hours))
        first(past)
    work()
    with refused(past, TooManyRequests) as caught:
        then(past)
    assert "You reached the limit of 3 requests" in str(caught.value)
    assert work() == [], "nothing is mailed"
    again = again_from(caught.value)
    assert begun + timedelta(hours=24) <= again < begun + timedelta(hours=24, minutes=1)
    time_machine.move_to(begun + timedelta(hours=24) - timedelta(seconds=1))
    with refused(past, TooManyRequests):
        then(past)
    time_machine.move_to(again)
    then(past)
    with refused(past, TooManyRequests):
        then(past)
    assert problems(past) == []


def test_of_whichever_agents(past: Agent, bob: Agent) -> None:
    other, _ = lifecycle.create("acme", "other", model="builtin/dedupe", actor=TENANT)
    for agent in (past, bob, other):
        denied(agent)
    for agent in (past, bob, other):
        with refused(agent, TooManyRequests):
            ask(agent)


def test_others_ask_meanwhile(ada: Agent) -> None:
    """Of an agent without a steward, too."""
    for _ in range(3):
        denied(ada)
    with refused(ada, TooManyRequests):
        ask(ada)
    ask(ada, EVE)
    proposals.propose(fresh(ada), TENANT, model="openai/x")


def test_a_program_is_counted_as_somebody(past: Agent) -> None:
    for each in range(3):
        proposals.propose(fresh(past), TENANT, model=f"openai/{each}")
    with refused(past, TooManyRequests):
        proposals.propose(fresh(past), TENANT, model="openai/x")
    ask(past, Person(7, TENANT.label))  # a person of that name is somebody else


def test_one_agents_side_is_asked_so_many_times_by_all(past: Agent, bob: Agent, time_machine: Any) -> None:
    begun = timezone.now()
    for each in range(5):
        time_machine.move_to(begun + timedelta(minutes=each))
        ask(past, Person(each, f"p{each}@acme.test"))
    for late in (Person(8, "p8@acme.test"), Person(9, "p9@acme.test")):
        with refused(past, TooManyRequests) as caught:
            ask(past, late)
        assert "This agent's side reached the limit of 5 requests" in str(caught.value)
        with refused(past, TooManyRequests):
            proposed(past, late)
    ask(bob, late)
    assert work().count(("ask_steward", "sent")) == 5
    time_machine.move_to(again_from(caught.value))
    ask(past, late)


def test_where_both_are_full_the_later_time_is_told(past: Agent, time_machine: Any) -> None:
    begun = timezone.now()
    for hours, person in enumerate([EVE, EVE, PAT, PAT, PAT]):
        time_machine.move_to(begun + timedelta(hours=hours))
        denied(past, person)
    with refused(past, TooManyRequests) as caught:
        ask(past)
    again = again_from(caught.value)
    assert again >= begun + timedelta(hours=26)
    time_machine.move_to(again)
    ask(past)


def test_a_clock_that_is_set_back_buys_nothing(past: Agent, bob: Agent, time_machine: Any) -> None:
    begun = timezone.now()
    time_machine.move_to(begun + timedelta(hours=1))
    for _ in range(3):
        denied(past)
    time_machine.move_to(begun - timedelta(days=3))
    for agent in (past, bob):
        with refused(agent, TooManyRequests):
            ask(agent)


def test_what_was_refused_does_not_count(past: Agent) -> None:
    for _ in range(5):
        with pytest.raises(errors.Invalid):
            ask(past, purpose="short")
    ask(past)
    for _ in range(5):
        with pytest.raises(errors.AlreadyRequested):
            ask(past)
    proposed(past)
    proposed(past)
    assert AuditEntry.objects.filter(actor_label=PAT.address).count() == 3


def test_the_agents_side_is_not_kept_from_deciding(past: Agent) -> None:
    for _ in range(3):
        proposed(past)
    open_one = proposals.open_one(fresh(past))
    assert open_one is not None
    assert proposals.accept(fresh(past), open_one.number, STEWARD).state == "accepted"
