"""Requests to remove content: asked for with a reason, settled once, by the agent's side alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from audit.trail import Actor
from memory import erasure, errors, redaction, requests
from memory.models import Agent
from tests.steps import ME, fresh, last_entry, refused, remember

OWNER = Actor.person("owner@acme.test")


def ask(agent: Agent, *numbers: int) -> int:
    return requests.ask_redaction(agent, numbers, OWNER, reason="request 17").number


@pytest.fixture
def past(ada: Agent) -> Agent:
    remember(ada, "tea", "milk", "sugar")
    return ada


@pytest.mark.parametrize("actor", [OWNER, Actor.operator("redact"), Actor.system("redact")])
def test_the_agents_side_alone_agrees(past: Agent, actor: Actor) -> None:
    asked = ask(past, 1)
    with refused(past, errors.ConsentNeeded):
        redaction.redact(past, asked, actor)
    with refused(past, errors.ConsentNeeded):
        requests.decline(past, asked, actor)


def test_where_the_steward_alone_consents_the_runtime_does_not(past: Agent) -> None:
    asked = ask(past, 1)
    Agent.objects.filter(pk=past.pk).update(is_steward_only=True)
    with refused(past, errors.ConsentNeeded):
        redaction.redact(past, asked, ME)


def test_without_a_request_nothing_is_redacted(past: Agent) -> None:
    with refused(past, errors.NoRequest):
        redaction.redact(past, 1, ME)


def test_a_request_is_carried_out_once(past: Agent) -> None:
    asked = ask(past, 1)
    assert [request.number for request in requests.waiting(past)] == [asked]
    redaction.redact(past, asked, ME)
    assert requests.waiting(past) == []
    with refused(past, errors.NoRequest):
        redaction.redact(past, asked, ME)


def test_what_was_declined_is_not_carried_out(past: Agent) -> None:
    asked = ask(past, 1)
    requests.decline(past, asked, ME)
    assert last_entry(past).detail == {"request": asked}
    with refused(past, errors.NoRequest):
        redaction.redact(past, asked, ME)
    assert requests.waiting(past) == []


def test_another_agents_request_is_none(past: Agent, bob: Agent) -> None:
    remember(bob, "one", "two", "three", "four")
    asked = ask(past, 1)
    assert fresh(bob).audit_seq < asked
    with refused(bob, errors.NoRequest):
        redaction.redact(bob, asked, ME)


@pytest.mark.parametrize(
    ("numbers", "error"),
    [
        ((), errors.Invalid),
        (range(1, 1_002), errors.Invalid),
        ((9,), errors.UnknownMemory),
        ((1, 1), errors.Repeated),
    ],
)
def test_a_request_names_memories_there_are(past: Agent, numbers: Sequence[int], error: type[Exception]) -> None:
    with refused(past, error):
        requests.ask_redaction(past, numbers, OWNER, reason="asked")


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501, "\0"])
def test_a_request_gives_a_reason(past: Agent, reason: str) -> None:
    with refused(past, errors.Invalid):
        requests.ask_redaction(past, [1], OWNER, reason=reason)


def test_what_is_redacted_cannot_be_asked_for_again(past: Agent) -> None:
    later = ask(past, 1, 3)
    only = ask(past, 1)
    redaction.redact(past, ask(past, 1), ME)
    with refused(past, errors.Redacted):
        ask(past, 1)
    assert [request.number for request in requests.waiting(past)] == [later]  # nothing is left to settle of the other
    with refused(past, errors.NoRequest):
        redaction.redact(past, only, ME)
    assert redaction.redact(past, later, ME).memories == (3,)


def test_an_erasure_settles_every_other_one_asked(past: Agent) -> None:
    still = ask(past, 1)
    first, _ = (requests.ask_erasure(fresh(past), OWNER, reason="request 18").number for _ in range(2))
    erasure.erase(fresh(past), first, ME)
    assert [request.number for request in requests.waiting(fresh(past))] == [still]


def test_a_request_of_the_other_kind_is_called_that(past: Agent) -> None:
    asked = requests.ask_erasure(past, OWNER, reason="request 18").number
    with refused(past, errors.NoRequest) as told:
        redaction.redact(past, asked, ME)
    assert "erase_agent" in str(told.value)
