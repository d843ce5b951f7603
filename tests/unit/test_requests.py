"""Requests to remove content: asked for with a reason, settled once, by the agent's side alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from audit.models import AuditEntry
from audit.trail import Actor
from memory import errors
from memory.consent import erasure, redaction, removal_requests
from memory.models import Agent
from tests import tampering
from tests.conftest import drop_guards
from tests.queueing import waiting
from tests.steps import ME, fresh, refused, remember

OWNER = Actor.person("owner@acme.test")
SUE = "sue@elsewhere.test"


def ask(agent: Agent, *numbers: int) -> int:
    return removal_requests.ask_redaction(agent, numbers, OWNER, reason="request 17").number


@pytest.fixture
def past(ada: Agent) -> Agent:
    remember(ada, "tea", "milk", "sugar")
    return ada


@pytest.mark.parametrize("actor", [OWNER, Actor.operator("redact"), Actor.system("redact")])
def test_the_agents_side_alone_agrees(past: Agent, actor: Actor) -> None:
    asked = ask(past, 1)
    with refused(past, errors.ConsentRequired):
        redaction.redact(past, asked, actor)
    other = Actor(actor.kind, f"another {actor.label}")
    with refused(past, errors.ConsentRequired):
        removal_requests.decline(past, asked, other)


def test_its_steward_agrees_or_declines(past: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(steward=SUE, is_steward_only=True)
    first, second = ask(past, 1), ask(past, 2)
    with refused(past, errors.ConsentRequired):
        redaction.redact(past, first, Actor.steward("tom@elsewhere.test"))
    redaction.redact(fresh(past), first, Actor.steward(SUE))
    removal_requests.decline(fresh(past), second, Actor.steward(SUE))
    settled = [removal_requests.find(fresh(past), number) for number in (first, second)]
    assert [(each.state, each.decided_by) for each in settled] == [("carried_out", "steward"), ("declined", "steward")]


@pytest.mark.parametrize(
    ("actor", "asked_by"),
    [
        (Actor.person(SUE.upper()), ""),
        (Actor.operator("redact"), f" {SUE} "),
        (Actor.operator("redact"), f"Sue <{SUE}>"),
        (Actor.operator("redact"), f"{SUE.upper()} (Acme), for legal"),
        (Actor.operator("redact"), f"Sue;mailto:{SUE}"),
        (Actor.operator("redact"), f"'{SUE}'/legal."),
    ],
)
def test_a_steward_does_not_agree_to_what_they_asked(past: Agent, actor: Actor, asked_by: str) -> None:
    Agent.objects.filter(pk=past.pk).update(steward=SUE)
    number = removal_requests.ask_redaction(fresh(past), [1], actor, reason="request 17", asked_by=asked_by).number
    with refused(past, errors.ConsentRequired):
        redaction.redact(fresh(past), number, Actor.steward(SUE))
    redaction.redact(fresh(past), number, ME)


def test_nobody_asks_what_nobody_could_agree_to(past: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(steward=SUE, is_steward_only=True)
    with refused(past, errors.ConsentRequired):
        removal_requests.ask_redaction(fresh(past), [1], Actor.person(SUE), reason="request 17")
    with refused(past, errors.ConsentRequired):
        removal_requests.ask_erasure(fresh(past), Actor.person(SUE), reason="request 17")


def test_where_its_steward_alone_agrees_mail_has_to_be_sent(past: Agent, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    settings.DEBUG = False
    Agent.objects.filter(pk=past.pk).update(steward=SUE)
    assert ask(fresh(past), 1), "its runtime can agree"
    assert waiting() == []
    Agent.objects.filter(pk=past.pk).update(is_steward_only=True)
    with refused(past, errors.MailNotSent):
        ask(fresh(past), 1)


def test_who_asked_takes_it_back_and_nobody_else_of_their_side(past: Agent) -> None:
    asked = ask(past, 1)
    with refused(past, errors.ConsentRequired):
        removal_requests.decline(past, asked, Actor.person("other@acme.test"))
    assert removal_requests.decline(past, asked, OWNER).decided_by == "person"
    with refused(past, errors.RequestNotFound):
        redaction.redact(past, asked, ME)


def test_a_request_altered_or_put_in_by_sql_is_not_agreed_to(past: Agent) -> None:
    """Who can write to the database cannot have the agent's side remove what nobody asked to be removed."""
    asked = ask(past, 1)
    with tampering.undone():
        drop_guards()
        detail = json.dumps({"reason": "request 17", "asked_by": OWNER.label, "memories": [1, 2, 3]})
        tampering.sql(f"UPDATE audit_auditentry SET detail = '{detail}' WHERE agent_id = {past.pk} AND seq = {asked}")
        with pytest.raises(errors.RequestNotFound):
            redaction.redact(fresh(past), asked, ME)
    redaction.redact(fresh(past), asked, ME)


@pytest.mark.parametrize(
    "forged",
    [
        {"asked_by": 5},
        {"asked_by": {}},
        {"reason": 7},
        {"reason": None},
        {"memories": ["1"]},
        {"memories": [True]},
        {"memories": [1.5]},
        {"memories": "1"},
    ],
)
def test_a_request_that_is_not_of_the_form_is_none(past: Agent, forged: dict[str, Any]) -> None:
    asked, other = ask(past, 1), ask(past, 2)
    drop_guards()
    detail = {"reason": "request 17", "asked_by": OWNER.label, "memories": [1]} | forged
    AuditEntry.objects.filter(agent_id=past.pk, seq=asked).update(detail=detail)
    assert [each.number for each in removal_requests.waiting(past)] == [other]
    with pytest.raises(errors.NotFound):
        removal_requests.find(past, asked)


def test_without_a_request_nothing_is_redacted(past: Agent) -> None:
    with refused(past, errors.RequestNotFound):
        redaction.redact(past, 1, ME)


def test_a_request_names_memories_there_are_and_gives_a_reason(past: Agent) -> None:
    rows: list[tuple[Sequence[int], str, type[Exception]]] = [
        ((), "asked", errors.Invalid),
        (range(1, 1_002), "asked", errors.Invalid),
        ((9,), "asked", errors.UnknownMemory),
        ((1, 1), "asked", errors.DuplicateNumbers),
    ]
    none = ("", "  ", "x" * 501, "\0", "\u202e", "\u200b\u200d", "\u3164", "?!")
    for numbers, reason, error in [*rows, *(((1,), reason, errors.Invalid) for reason in none)]:
        with refused(past, error):
            removal_requests.ask_redaction(past, numbers, OWNER, reason=reason)


def test_what_is_redacted_cannot_be_asked_for_again(past: Agent) -> None:
    later = ask(past, 1, 3)
    only = ask(past, 1)
    redaction.redact(past, ask(past, 1), ME)
    with refused(past, errors.Redacted):
        ask(past, 1)
    assert [request.number for request in removal_requests.waiting(past)] == [
        later
    ]  # nothing is left to settle of the other
    with refused(past, errors.RequestNotFound):
        redaction.redact(past, only, ME)
    assert redaction.redact(past, later, ME).memories == (3,)


def test_an_erasure_settles_every_other_one_asked(past: Agent) -> None:
    still = ask(past, 1)
    first, _ = (removal_requests.ask_erasure(fresh(past), OWNER, reason="request 18").number for _ in range(2))
    erasure.erase(fresh(past), first, ME)
    assert [request.number for request in removal_requests.waiting(fresh(past))] == [still]


def test_a_request_of_the_other_kind_is_called_that(past: Agent) -> None:
    asked = removal_requests.ask_erasure(past, OWNER, reason="request 18").number
    with refused(past, errors.RequestNotFound) as told:
        redaction.redact(past, asked, ME)
    assert "erase_agent" in str(told.value)
    other = ask(past, 1)
    with refused(past, errors.RequestNotFound):
        erasure.erase(past, other, ME)
