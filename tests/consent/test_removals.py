"""The page behind a steward's link about a removal: what it says, that opening it removes nothing, and that it decides
once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit.models import AuditEntry, ConsentLink
from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import redaction, removal_requests
from memory.mail import link_letters
from memory.models import Agent, Memory
from memory.writing import operations
from tests import steps
from tests.conftest import drop_guards
from tests.consent.visiting import STEW, address_of, page, press, refused_over_an_altered_trail
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, problems

OWNER = Actor.person("owner@else.test")
REASON = "request <b>17</b>"


@pytest.fixture
def led(ada: Agent) -> Agent:
    steps.remember(ada, f"{MARKER} tea", f"{MARKER} tea", f"{MARKER} milk", tags=(MARKER,))
    operations.protect(fresh(ada), [3], OWNER)
    lifecycle.change(fresh(ada), ME, steward=STEW)
    return fresh(ada)


def redaction_of(agent: Agent, *numbers: int, actor: Actor = OWNER) -> tuple[int, str]:
    number = removal_requests.ask_redaction(fresh(agent), numbers, actor, reason=REASON).number
    return number, address_of(agent, number)


def erasure_of(agent: Agent) -> tuple[int, str]:
    number = removal_requests.ask_erasure(fresh(agent), OWNER, reason=REASON).number
    return number, address_of(agent, number)


def bodies(agent: Agent) -> list[bool]:
    return [bool(memory.sealed) for memory in Memory.objects.filter(agent=agent).order_by("number")[:3]]


def test_it_is_shown_whole_and_without_content(led: Agent, visitor: Client) -> None:
    number, address = redaction_of(led, 1, 3)
    shown = page(visitor, address)
    for told in (
        OWNER.label,
        "acme/ada",
        "the content of 2 memories, including their history",
        "Numbers 1, 3",
        "2 of the memories are active",
        "Protected from refinement: 3",
        "These memories may have the same content, but this request does not include them: 2",
        "request &lt;b&gt;17&lt;/b&gt;",
        ">Delete permanently</button>",
        ">Deny</button>",
    ):
        assert told in shown, told
    assert removal_requests.find(led, number).state == "open"
    assert bodies(led) == [True, True, True]


def test_every_constitutional_memory_is_named(led: Agent, visitor: Client) -> None:
    """However many: the yes covers each of them."""
    numbers = list(range(4, 34))
    steps.remember(led, *(f"rule {number}" for number in numbers))
    operations.protect(fresh(led), numbers, OWNER)
    _, address = redaction_of(led, *numbers)
    assert f"Protected from refinement: {', '.join(map(str, numbers))}<" in page(visitor, address)


def test_it_is_removed_once_and_the_page_says_so(led: Agent, visitor: Client) -> None:
    """Constitutional memories, too: the page names them, and a steward means it."""
    number, address = redaction_of(led, 1, 3)
    for decision in ("approve", "approve", "deny"):
        assert press(visitor, address, decision)["Location"] == address
    assert bodies(led) == [False, True, False]
    assert removal_requests.find(fresh(led), number).state == "carried_out"
    shown = page(visitor, address)
    assert "The agent’s steward approved this" in shown
    assert "<button" not in shown
    assert problems(led) == []


def test_it_is_denied_once(led: Agent, visitor: Client) -> None:
    _, address = redaction_of(led, 1)
    press(visitor, address, "deny")
    press(visitor, address, "approve")
    assert bodies(led) == [True, True, True]
    assert "The agent’s steward denied this" in page(visitor, address)


def test_an_erasure_is_agreed_to(led: Agent, visitor: Client) -> None:
    _, address = erasure_of(led)
    _, other = redaction_of(led, 1)
    assert "by destroying their key" in page(visitor, address)
    press(visitor, address, "approve")
    assert not fresh(led).wrapped_key
    assert "was permanently deleted" in page(visitor, address)
    press(visitor, other, "approve")
    assert "was permanently deleted" in page(visitor, other), "what nobody can open is removed all the same"
    assert bodies(led) == [False, True, True]
    assert problems(led) == []


@pytest.mark.parametrize("ask", [erasure_of, lambda agent: redaction_of(agent, 1)])
def test_what_another_request_left_nothing_of_says_so(led: Agent, visitor: Client, ask: Any) -> None:
    (_, first), (_, second) = ask(led), ask(led)
    press(visitor, first, "approve")
    assert "Other requests have already deleted all content" in page(visitor, second)
    press(visitor, second, "approve")
    assert problems(led) == []


def test_what_was_taken_back_says_so(led: Agent, visitor: Client) -> None:
    number, address = redaction_of(led, 1)
    removal_requests.decline(fresh(led), number, OWNER)
    assert "The requester withdrew this request" in page(visitor, address)
    press(visitor, address, "approve")
    assert bodies(led) == [True, True, True]


def test_what_the_runtime_agreed_to_says_so(led: Agent, visitor: Client) -> None:
    number, address = redaction_of(led, 1)
    redaction.redact(fresh(led), number, ME)
    assert "The agent’s runtime approved this" in page(visitor, address)


def test_a_steward_is_given_no_buttons_for_what_they_asked(led: Agent, visitor: Client) -> None:
    _, address = redaction_of(led, 1, actor=Actor.person(STEW.upper()))
    shown = page(visitor, address)
    assert "You cannot decide about your own request" in shown
    assert "<button" not in shown
    press(visitor, address, "approve")
    assert bodies(led) == [True, True, True]


def test_after_72_hours_the_link_removes_nothing_but_its_runtime_may(
    led: Agent, visitor: Client, time_machine: Any
) -> None:
    number, address = redaction_of(led, 1)
    time_machine.move_to(timezone.now() + timedelta(hours=73))
    shown = page(visitor, address)
    assert "has expired" in shown
    assert "<button" not in shown
    press(visitor, address, "approve")
    assert bodies(led) == [True, True, True]
    assert removal_requests.find(fresh(led), number).state == "open"


@pytest.mark.parametrize("asked_by", [f"Stew <{STEW.upper()}>", f"{STEW}, of Acme"])
def test_nor_for_what_an_operator_asked_in_their_name(led: Agent, visitor: Client, asked_by: str) -> None:
    asked = removal_requests.ask_redaction(led, [1], Actor.operator("redact"), reason=REASON, asked_by=asked_by)
    assert link_letters.send(led.pk, asked.number) == "nobody_to_ask"
    address = address_of(led, asked.number)
    assert "<button" not in page(visitor, address)
    press(visitor, address, "approve")
    assert bodies(led) == [True, True, True]


def test_whom_an_operator_asks_for_is_quoted(led: Agent, visitor: Client) -> None:
    """Free words, in which a link of their own could stand."""
    told = "jo@acme.test\u201d. Say yes here: https://evil.test\u202e"
    asked = removal_requests.ask_redaction(led, [1], Actor.operator("redact"), reason=REASON, asked_by=told)
    quoted = "an operator, for \u201cjo@acme.test&#x27;. Say yes here: https://evil.test\u201d"
    assert quoted in page(visitor, address_of(led, asked.number))


def test_an_old_link_decides_nothing_though_its_row_is_made_younger(
    led: Agent, visitor: Client, time_machine: Any
) -> None:
    _, address = redaction_of(led, 1)
    time_machine.move_to(timezone.now() + timedelta(hours=73))
    ConsentLink.objects.update(made_at=timezone.now())
    assert visitor.get(address).status_code == 404
    press(visitor, address, "approve")
    assert bodies(led) == [True, True, True]


def test_to_look_at_it_locks_nothing(led: Agent, visitor: Client) -> None:
    """What a removal would do is looked for in the whole trail, however long; meanwhile others write."""
    _, address = redaction_of(led, 1)
    with CaptureQueriesContext(connection) as captured:
        page(visitor, address)
    assert not [each["sql"] for each in captured if "SAVEPOINT" in each["sql"] or "FOR UPDATE" in each["sql"]]


def test_a_link_of_a_steward_who_was_replaced_removes_nothing(led: Agent, visitor: Client) -> None:
    _, address = redaction_of(led, 1)
    lifecycle.change(fresh(led), ME, steward="next@acme.test")
    assert press(visitor, address, "approve").status_code == 404
    assert visitor.get(address).status_code == 404
    assert bodies(led) == [True, True, True]


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_where_the_trail_was_altered_since_the_steward_is_told_why_nothing_is_removed(
    led: Agent, visitor: Client, decision: str
) -> None:
    number, _ = redaction_of(led, 1)
    refused_over_an_altered_trail(visitor, led, number, decision)
    assert bodies(led) == [True, True, True]


@pytest.mark.parametrize("forged", [{"asked_by": 5}, {"asked_by": {}}, {"reason": 7}])
def test_a_link_to_a_request_that_is_not_of_the_form_is_none(
    led: Agent, visitor: Client, forged: dict[str, Any]
) -> None:
    number, address = redaction_of(led, 1)
    drop_guards()
    detail = {"asked_by": OWNER.label, "reason": REASON, "memories": [1]} | forged
    AuditEntry.objects.filter(agent_id=led.pk, seq=number).update(detail=detail)
    assert visitor.get(address).status_code == 404
    assert press(visitor, address, "approve").status_code == 404
    assert bodies(led) == [True, True, True]
