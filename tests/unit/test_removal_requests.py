"""Requests to remove content. They need a reason, and only the agent's side decides them, once."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from audit.consent import REMOVALS
from audit.models import AuditEntry
from audit.trail import Actor
from memory import errors
from memory.consent import erasure, redaction, requests
from memory.models import Agent
from tests import tampering
from tests.conftest import drop_guards
from tests.queueing import waiting
from tests.steps import ME, fresh, refused, remember, signed_update

OWNER = Actor.person("owner@acme.test")
SUE = "sue@elsewhere.test"


def ask(agent: Agent, *numbers: int) -> int:
    return requests.ask_redaction(agent, numbers, OWNER, reason="request 17").number


def ask_erasure(agent: Agent) -> int:
    return requests.ask_erasure(fresh(agent), OWNER, reason="request 18").number


def set_steward(agent: Agent, *, only: bool = False) -> None:
    signed_update(Agent.objects.filter(pk=agent.pk), steward=SUE, is_steward_only=only)


@pytest.fixture
def past(ada: Agent) -> Agent:
    remember(ada, "tea", "milk", "sugar")
    return ada


@pytest.mark.parametrize("actor", [OWNER, Actor.operator("redact"), Actor.system("redact")])
def test_only_the_agents_side_agrees(past: Agent, actor: Actor) -> None:
    request = ask(past, 1)
    with refused(past, errors.ConsentRequired):
        redaction.redact(past, request, actor)
    with refused(past, errors.ConsentRequired):
        requests.deny(past, request, Actor(actor.kind, f"another {actor.label}"))


def test_the_steward_agrees_or_declines(past: Agent) -> None:
    set_steward(past, only=True)
    first, second = ask(past, 1), ask(past, 2)
    with refused(past, errors.ConsentRequired):
        redaction.redact(past, first, Actor.steward("tom@elsewhere.test"))
    redaction.redact(fresh(past), first, Actor.steward(SUE))
    requests.deny(fresh(past), second, Actor.steward(SUE))
    decided = [requests.find(fresh(past), number) for number in (first, second)]
    assert [(each.state, each.decided_by) for each in decided] == [("carried_out", "steward"), ("declined", "steward")]


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
def test_a_steward_cannot_agree_to_their_own_request(past: Agent, actor: Actor, asked_by: str) -> None:
    set_steward(past)
    number = requests.ask_redaction(fresh(past), [1], actor, reason="request 17", asked_by=asked_by).number
    with refused(past, errors.ConsentRequired):
        redaction.redact(fresh(past), number, Actor.steward(SUE))
    redaction.redact(fresh(past), number, ME)


def test_a_request_that_nobody_could_agree_to_is_refused(past: Agent) -> None:
    set_steward(past, only=True)
    with refused(past, errors.ConsentRequired):
        requests.ask_redaction(fresh(past), [1], Actor.person(SUE), reason="request 17")
    with refused(past, errors.ConsentRequired):
        requests.ask_erasure(fresh(past), Actor.person(SUE), reason="request 17")


def test_if_only_the_steward_agrees_a_request_needs_working_mail(past: Agent, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    settings.DEBUG = False
    set_steward(past)
    assert ask(fresh(past), 1), "the runtime can agree"
    assert waiting() == []
    set_steward(past, only=True)
    with refused(past, errors.MailNotSent):
        ask(fresh(past), 1)


def test_only_the_person_who_requested_may_withdraw_it(past: Agent) -> None:
    request = ask(past, 1)
    with refused(past, errors.ConsentRequired):
        requests.deny(past, request, Actor.person("other@acme.test"))
    assert requests.deny(past, request, OWNER).decided_by == "person"
    with refused(past, errors.RequestNotFound):
        redaction.redact(past, request, ME)


def test_a_request_altered_by_sql_cannot_be_agreed_to(past: Agent) -> None:
    """Otherwise an attacker could make the agent's side remove other memories."""
    request = ask(past, 1)
    with tampering.undone():
        drop_guards()
        detail = json.dumps({"reason": "request 17", "asked_by": OWNER.label, "memories": [1, 2, 3]})
        tampering.sql(f"UPDATE audit_auditentry SET detail = '{detail}' WHERE agent_id = {past.pk} AND seq = {request}")
        with pytest.raises(errors.RequestNotFound):
            redaction.redact(fresh(past), request, ME)
    redaction.redact(fresh(past), request, ME)


BAD_FORMS = [{"asked_by": 5}, {"asked_by": {}}, {"reason": 7}, {"reason": None}]
BAD_FORMS += [{"memories": memories} for memories in (["1"], [True], [1.5], "1")]


@pytest.mark.parametrize("values", BAD_FORMS, ids=str)
def test_a_request_of_a_wrong_form_is_not_listed(past: Agent, values: dict[str, Any]) -> None:
    request, other = ask(past, 1), ask(past, 2)
    drop_guards()
    detail = {"reason": "request 17", "asked_by": OWNER.label, "memories": [1]} | values
    AuditEntry.objects.filter(agent_id=past.pk, seq=request).update(detail=detail)
    assert [each.number for each in requests.waiting(past, *REMOVALS)] == [other]
    with pytest.raises(errors.NotFound):
        requests.find(past, request)


def test_a_request_needs_existing_memories_and_a_reason(past: Agent) -> None:
    rows: list[tuple[Sequence[int], str, type[Exception]]] = [
        ((), "asked", errors.Invalid),
        (range(1, 1_002), "asked", errors.Invalid),
        ((9,), "asked", errors.UnknownMemory),
        ((1, 1), "asked", errors.DuplicateNumbers),
    ]
    bad_reasons = ("", "  ", "x" * 501, "\0", "\u202e", "\u200b\u200d", "\u3164", "?!")
    for numbers, reason, error in [*rows, *(((1,), reason, errors.Invalid) for reason in bad_reasons)]:
        with refused(past, error):
            requests.ask_redaction(past, numbers, OWNER, reason=reason)


def test_a_redacted_memory_cannot_be_requested_again(past: Agent) -> None:
    later, same = ask(past, 1, 3), ask(past, 1)
    redaction.redact(past, ask(past, 1), ME)
    with refused(past, errors.Redacted):
        ask(past, 1)
    assert [request.number for request in requests.waiting(past, *REMOVALS)] == [later]  # `same` has nothing left
    with refused(past, errors.RequestNotFound):
        redaction.redact(past, same, ME)
    assert redaction.redact(past, later, ME).memories == (3,)


def test_an_erasure_closes_every_other_erasure_request(past: Agent) -> None:
    still = ask(past, 1)
    first, _ = ask_erasure(past), ask_erasure(past)
    erasure.erase(fresh(past), first, ME)
    assert [request.number for request in requests.waiting(fresh(past), *REMOVALS)] == [still]


def test_a_missing_request_or_one_of_the_other_kind_is_refused(past: Agent) -> None:
    with refused(past, errors.RequestNotFound):
        redaction.redact(past, 1, ME)
    to_erase, to_redact = ask_erasure(past), ask(past, 1)
    with refused(past, errors.RequestNotFound) as caught:
        redaction.redact(past, to_erase, ME)
    assert "erase_agent" in str(caught.value)
    with refused(past, errors.RequestNotFound):
        erasure.erase(past, to_redact, ME)
