"""The page behind a steward's link about a removal: what it displays, and that it removes once."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from audit.models import AuditEntry
from audit.trail import Actor
from memory.consent import requests
from memory.mail import link_letters
from memory.models import Agent, Memory
from memory.writing import operations
from tests import steps
from tests.conftest import drop_guards
from tests.consent.visiting import ADMIN, REASON, STEW, buttons, erasure, listed, page, press, redaction
from tests.steps import fresh, problems

OPERATOR = Actor.operator("redact")
CONSTITUTIONAL = range(4, 34)


def has_bodies(agent: Agent) -> list[bool]:
    return [bool(memory.sealed) for memory in Memory.objects.filter(agent=agent).order_by("number")[:3]]


def test_the_page_names_everything_that_is_removed_without_content(agent: Agent, visitor: Client) -> None:
    number, address = redaction(agent, 1, 3)
    text = page(visitor, address)
    for words in (
        ADMIN.label,
        "acme/ada",
        "the content of 2 memories, including their history",
        "Numbers 1, 3",
        'that have the same text: <span class="faint">numbers 2</span>',
        "Permanently delete 3 memories of acme/ada?",
        "Recorded on",
        "All 3 are in use now. ",
        "Protected from refinement: 3",
        "request &lt;b&gt;17&lt;/b&gt;",
    ):
        assert words in text, words
    assert buttons(text) == ["Delete permanently", "Deny"]
    assert (requests.find(agent, number).state, has_bodies(agent)) == ("open", [True, True, True])
    steps.remember(agent, *(f"rule {each}" for each in CONSTITUTIONAL))
    operations.protect(fresh(agent), CONSTITUTIONAL, ADMIN)
    text = page(visitor, redaction(agent, *CONSTITUTIONAL)[1])
    assert f"Protected from refinement: {', '.join(map(str, CONSTITUTIONAL))}<" in text, "however many there are"


def test_a_redaction_is_carried_out_once(agent: Agent, visitor: Client) -> None:
    """Constitutional memories too, because the page names them."""
    number, address = redaction(agent, 1, 3)
    for decision in ("approve", "approve", "deny"):
        assert press(visitor, address, decision)["Location"] == address
    assert has_bodies(agent) == [False, False, False]
    assert requests.find(fresh(agent), number).state == "carried_out"
    text = page(visitor, address)
    assert ("The agent’s steward approved this" in text, buttons(text)) == (True, [])
    assert problems(agent) == []


def test_what_joins_a_removal_after_the_page_was_opened_is_not_removed(agent: Agent, visitor: Client) -> None:
    """A key gives other memories the words of the removal, or the service protects them, while the page is open."""
    _, address = redaction(agent)
    for change in (
        lambda: steps.remember(agent, steps.says(agent, 1).content),
        lambda: operations.protect(fresh(agent), [1], ADMIN),
    ):
        shown = listed(visitor, address)
        change()
        refused = press(visitor, address, "approve", shown)
        assert (refused.status_code, has_bodies(agent)) == (409, [True, True, True])
        assert "The list of these memories has changed." in refused.content.decode()
    press(visitor, address, "approve")
    assert (has_bodies(agent), problems(agent)) == ([False, False, True], [])


def test_a_denied_removal_removes_nothing(agent: Agent, visitor: Client) -> None:
    _, address = redaction(agent)
    press(visitor, address, "deny")
    press(visitor, address, "approve")
    assert has_bodies(agent) == [True, True, True]
    assert "The agent’s steward denied this" in page(visitor, address)


def test_an_erasure_and_then_a_redaction_are_carried_out(agent: Agent, visitor: Client) -> None:
    (_, address), (_, other) = erasure(agent), redaction(agent)
    assert "by destroying their key" in page(visitor, address)
    for each in (address, other):
        press(visitor, each, "approve")
        assert not fresh(agent).wrapped_key
        assert "was permanently deleted" in page(visitor, each)
    assert has_bodies(agent) == [False, False, True], "the redaction removes a body that has no key any more"
    assert problems(agent) == []


@pytest.mark.parametrize("ask", [erasure, redaction])
def test_the_page_tells_that_another_request_removed_everything(agent: Agent, visitor: Client, ask: Any) -> None:
    (_, first), (_, second) = ask(agent), ask(agent)
    press(visitor, first, "approve")
    assert "Other requests have already deleted all content" in page(visitor, second)
    press(visitor, second, "approve")
    assert problems(agent) == []


@pytest.mark.parametrize("asked_by", [f"Stew <{STEW.upper()}>", f"{STEW}, of Acme"])
def test_stewards_cannot_decide_what_an_operator_requested_for_them(
    agent: Agent, visitor: Client, asked_by: str
) -> None:
    number, address = redaction(agent, actor=OPERATOR, asked_by=asked_by)
    assert link_letters.send(agent.pk, number) == "nobody_to_ask"
    assert buttons(page(visitor, address)) == []
    press(visitor, address, "approve")
    assert has_bodies(agent) == [True, True, True]


def test_the_name_an_operator_enters_is_quoted(agent: Agent, visitor: Client) -> None:
    """It is free text, and could contain a link."""
    name = "jo@acme.test\u201d. Say yes here: https://evil.test\u202e"
    _, address = redaction(agent, actor=OPERATOR, asked_by=name)
    quoted = "an operator, for \u201cjo@acme.test&#x27;. Say yes here: https://evil.test\u201d"
    assert quoted in page(visitor, address)


def test_the_preview_locks_nothing(agent: Agent, visitor: Client) -> None:
    """It reads the whole trail. A lock would block writers for that time."""
    _, address = redaction(agent)
    with CaptureQueriesContext(connection) as captured:
        page(visitor, address)
    assert not [each["sql"] for each in captured if "SAVEPOINT" in each["sql"] or "FOR UPDATE" in each["sql"]]


@pytest.mark.parametrize("forged", [{"asked_by": 5}, {"asked_by": {}}, {"reason": 7}])
def test_a_link_to_a_malformed_request_is_404(agent: Agent, visitor: Client, forged: dict[str, Any]) -> None:
    number, address = redaction(agent)
    drop_guards()
    detail = {"asked_by": ADMIN.label, "reason": REASON, "memories": [1]} | forged
    AuditEntry.objects.filter(agent_id=agent.pk, seq=number).update(detail=detail)
    assert visitor.get(address).status_code == 404
    assert press(visitor, address, "approve").status_code == 404
    assert has_bodies(agent) == [True, True, True]
