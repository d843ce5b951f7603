"""Limits of requests and proposals per day: by one person, and to one agent."""

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
from memory.consent import approval, requests, withdrawals
from memory.errors import TooManyRequests
from memory.models import Agent
from tests.access_requests import EVE, PAT, STEWARD, ask, with_a_past
from tests.queueing import work
from tests.steps import ME, fresh, problems, refused

TENANT = Actor.operator("k3v9x1m7q2aa")
DAY, HOUR, SECOND = timedelta(hours=24), timedelta(hours=1), timedelta(seconds=1)


@pytest.fixture
def agent(ada: Agent) -> Agent:
    return with_a_past(ada)


@pytest.fixture(autouse=True)
def _low_limits(settings: Any) -> None:
    settings.ASKS_PER_PERSON, settings.ASKS_PER_AGENT = 3, 5


def denied(agent: Agent, person: Person = PAT) -> None:
    requests.deny(fresh(agent), ask(agent, person).number, ME)


def withdrawn(agent: Agent, person: Person = PAT) -> None:
    ask(agent, person)
    withdrawals.withdraw_all(person.id, "password")


def revoked(agent: Agent, person: Person = PAT) -> None:
    number = ask(agent, person).number
    approval.approve(fresh(agent), number, ME)
    requests.revoke(fresh(agent), number, Actor.person(person.address))


def proposed(agent: Agent, person: Person = PAT) -> int:
    """A proposal replaces an earlier one."""
    model = f"openai/{fresh(agent).audit_seq}"
    requests.propose(fresh(agent), Actor.person(person.address), model=model)
    open_one = requests.open_proposal(fresh(agent))
    assert open_one is not None
    return open_one.number


def declined(agent: Agent, person: Person = PAT) -> None:
    requests.deny(fresh(agent), proposed(agent, person), Actor.person(person.address))


def redaction_requested(agent: Agent, person: Person = PAT) -> None:
    requests.ask_redaction(fresh(agent), [1], Actor.person(person.address), reason="request 17")


KINDS: list[Callable[..., object]] = [denied, withdrawn, revoked, proposed, declined, redaction_requested]


def next_time(error: BaseException) -> datetime:
    [text] = re.findall(r"Try again after (.*) UTC", str(error))
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


def is_limited(agent: Agent, request: Callable[..., object] = ask, *person: Person) -> datetime:
    """The request must be refused. Return when it is possible again."""
    with refused(agent, TooManyRequests) as caught:
        request(agent, *person)
    return next_time(caught.value)


@pytest.mark.parametrize(("first", "then"), [*zip(KINDS, [denied, proposed, redaction_requested] * 2, strict=True)])
def test_a_person_has_a_limit_of_requests_a_day(first: Any, then: Any, agent: Agent, time_machine: Any) -> None:
    begun = timezone.now()
    for hours in range(3):
        time_machine.move_to(begun + hours * HOUR)
        first(agent)
    work()
    with refused(agent, TooManyRequests) as caught:
        then(agent)
    assert "You reached the limit of 3 requests" in str(caught.value)
    assert work() == [], "no mail is sent"
    again = next_time(caught.value)
    assert (
        begun + DAY <= again < begun + DAY + timedelta(minutes=2)
    )  # a whole minute; the first request came a moment later
    time_machine.move_to(begun + DAY - SECOND)
    is_limited(agent, then)
    time_machine.move_to(again)
    then(agent)
    is_limited(agent, then)
    assert problems(agent) == []


def test_the_limit_counts_all_agents_also_with_the_clock_set_back(agent: Agent, bob: Agent, time_machine: Any) -> None:
    other, _ = lifecycle.create("acme", "other", model="builtin/dedupe", actor=TENANT)
    begun = timezone.now()
    for each in (agent, bob, other):
        denied(each)
    for moment in (begun, begun - timedelta(days=3)):
        time_machine.move_to(moment)
        for each in (agent, bob, other):
            is_limited(each)


def test_each_person_has_a_limit_of_their_own(ada: Agent) -> None:
    """Also for an agent without a steward."""
    for _ in range(3):
        denied(ada)
    is_limited(ada)
    ask(ada, EVE)
    requests.propose(fresh(ada), TENANT, model="openai/x")


def test_a_program_has_a_limit_of_its_own(agent: Agent) -> None:
    for number in range(3):
        requests.propose(fresh(agent), TENANT, model=f"openai/{number}")
    is_limited(agent, lambda row: requests.propose(fresh(row), TENANT, model="openai/x"))
    ask(agent, Person(7, TENANT.label))  # a person with the label of the program


def test_an_agents_side_receives_so_many_requests_a_day(agent: Agent, bob: Agent, time_machine: Any) -> None:
    begun = timezone.now()
    for number in range(5):
        time_machine.move_to(begun + timedelta(minutes=number))
        ask(agent, Person(number, f"p{number}@acme.test"))
    late = Person(8, "p8@acme.test")
    with refused(agent, TooManyRequests) as caught:
        ask(agent, late)
    assert "This agent's side reached the limit of 5 requests" in str(caught.value)
    for person in (late, Person(9, "p9@acme.test")):
        again = is_limited(agent, ask, person)
        is_limited(agent, proposed, person)
    ask(bob, late)
    assert work().count(("link", "sent")) == 5
    time_machine.move_to(again)
    ask(agent, late)


def test_of_two_limits_the_later_time_counts(agent: Agent, time_machine: Any) -> None:
    begun = timezone.now()
    for hours, person in enumerate([EVE, EVE, PAT, PAT, PAT]):
        time_machine.move_to(begun + hours * HOUR)
        denied(agent, person)
    again = is_limited(agent)
    assert again >= begun + 26 * HOUR
    time_machine.move_to(again)
    ask(agent)


def test_refused_requests_do_not_count(agent: Agent) -> None:
    for _ in range(5):
        with pytest.raises(errors.Invalid):
            ask(agent, purpose="short")
    ask(agent)
    for _ in range(5):
        with pytest.raises(errors.AlreadyRequested):
            ask(agent)
    proposed(agent)
    number = proposed(agent)
    assert AuditEntry.objects.filter(actor_label=PAT.address).count() == 3
    is_limited(agent, proposed)
    assert approval.approve(fresh(agent), number, STEWARD).state == "accepted", "decisions have no limit"


def test_open_requests_to_remove_content_are_limited_but_not_for_operators(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim ends them all: with 300, it locked SQLite for two seconds."""
    monkeypatch.setattr(requests, "MOST_REMOVALS", 1)
    person = Actor.person(PAT.address)
    number = requests.ask_redaction(fresh(agent), [1], person, reason="wrong").number
    with refused(agent, errors.Invalid):
        requests.ask_redaction(fresh(agent), [2], person, reason="wrong")
    requests.ask_redaction(fresh(agent), [2], TENANT, reason="wrong")
    requests.deny(fresh(agent), number, ME)
    with refused(agent, errors.Invalid):
        requests.ask_erasure(fresh(agent), person, reason="wrong")
