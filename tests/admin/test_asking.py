"""Asking for access: by whom, for what; whatever is wrong is told at its field; nothing is read by it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from audit.models import AccessRequest, AuditEntry
from memory.admin.base.page import ask_access_url
from memory.consent import grants
from memory.models import Agent, Person
from tests import steps
from tests.admin.conftest import Enter
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh

WHY = "A customer was told an opening hour that is wrong."
ASKED = {"purpose": WHY, "kind": "memories", "numbers": "1, 2-3", "seconds": "3600"}


@pytest.fixture
def lived(house: House) -> House:
    for agent in (house.ada, house.bob):
        steps.remember(agent, f"{MARKER} tea", f"{MARKER} boats", f"{MARKER} nets")
    return house


def test_whoever_sees_it_may_ask(lived: House, staff: dict[str, Person], enter: Enter) -> None:
    scopes: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
        "owner": ({}, {"kind": "memories", "numbers": [1, 2, 3]}),
        "admin": ({"kind": "silo"}, {"kind": "silo"}),
        "auditor": ({"kind": "entries", "first": "2", "last": "3"}, {"kind": "entries", "first": 2, "last": 3}),
        "superuser": ({}, {"kind": "memories", "numbers": [1, 2, 3]}),
    }
    for role, (asked, told) in scopes.items():
        client = enter(role)
        answer = client.post(ask_access_url(lived.ada.pk), ASKED | asked)
        row = AccessRequest.objects.latest("pk")
        assert answer["Location"] == f"/admin/audit/accessrequest/{row.pk}/change/"
        assert (row.person, row.purpose, row.state, row.seconds) == (staff[role].email, WHY, "requested", 3600)
        assert row.scope == told
        page = client.get(answer["Location"]).content.decode()
        assert ("3 listed memories" in page, MARKER in page) == (not asked, False)
        again = client.post(ask_access_url(lived.ada.pk), ASKED)
        assert "You already have an open request to this agent" in again.content.decode()
    assert not AuditEntry.objects.filter(operation="content_read").exists(), "asking reads nothing"


WRONG: list[dict[str, str]] = [
    *({"purpose": each} for each in ("short", " " * 40, "x" * 1_001, f"{WHY}\0")),
    *({"numbers": each} for each in ("", "x", "3-1", "0", "1-1000000000", "99", "\u0661")),
    {"kind": "all"},
    {"kind": "session"},
    {"kind": "session", "session": "7"},
    {"kind": "session", "session": "9" * 30},
    {"kind": "entries", "first": "1"},
    {"kind": "entries", "first": "3", "last": "2"},
    {"kind": "entries", "first": "1", "last": "9999"},
    *({"seconds": each} for each in ("60", "14460", "x")),
]


def test_what_is_wrong_is_told(lived: House, client: Client) -> None:
    for wrong in WRONG:
        answer = client.post(ask_access_url(lived.ada.pk), ASKED | wrong)
        assert answer.status_code == 200
        assert re.search("pal-field-error|pal-error", answer.content.decode()), wrong
    assert not AccessRequest.objects.exists()


@pytest.mark.parametrize(
    ("side", "told"),
    [
        ({}, "The agent has no steward. Its runtime decides, over the API."),
        ({"steward": "sue@else.test"}, "Its steward decides, with a mailed link"),
        ({"steward": "sue@else.test", "is_steward_only": True}, "Only its steward decides, with a mailed link"),
    ],
)
def test_who_decides_is_told_before_and_after_asking(
    side: dict[str, Any], told: str, lived: House, client: Client, settings: Any
) -> None:
    settings.DEBUG = True  # mail to the console is for trying it out
    Agent.objects.filter(pk=lived.ada.pk).update(**side)
    page = client.get(ask_access_url(lived.ada.pk)).content.decode()
    assert told in page
    assert f'<a href="/admin/memory/agent/{lived.ada.pk}/change/">acme/ada</a>' in page
    assert told in client.get(client.post(ask_access_url(lived.ada.pk), ASKED)["Location"]).content.decode()


def test_another_tenants_agent_is_as_one_that_is_not_there(lived: House, client: Client) -> None:
    for pk in (lived.bob.pk, 99_999_999):
        place = ask_access_url(pk)
        assert [client.get(place).status_code, client.post(place, ASKED).status_code] == [404, 404]
    assert not AccessRequest.objects.exists()


def test_a_steward_is_told_that_nobody_decides_for_themselves(lived: House, client: Client, settings: Any) -> None:
    settings.DEBUG = True  # mail to the console is for trying it out
    Agent.objects.filter(pk=lived.ada.pk).update(steward="Owner+x@acme.test", is_steward_only=True)
    assert "You cannot decide about your own request" in client.get(ask_access_url(lived.ada.pk)).content.decode()
    assert "Nobody decides about their own request" in client.post(ask_access_url(lived.ada.pk), ASKED).content.decode()
    assert not AccessRequest.objects.exists()


def test_who_asked_too_often_is_told_when_to_ask_again(lived: House, enter: Enter, settings: Any) -> None:
    settings.ASKS_PER_PERSON = 1
    client = enter("auditor")
    assert client.post(ask_access_url(lived.ada.pk), ASKED).status_code == 302
    grants.deny(fresh(lived.ada), AccessRequest.objects.get().number, ME)
    answer = client.post(ask_access_url(lived.ada.pk), ASKED)
    assert answer.status_code == 200
    assert "You reached the limit of 1 requests" in answer.content.decode()
    assert "Try again after" in answer.content.decode()
    assert AccessRequest.objects.count() == 1


def test_that_it_would_be_refused_is_told_before_it_is_filled_in(lived: House, enter: Enter, settings: Any) -> None:
    """A steward's link would be printed where the operator reads it."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    client, place = enter("owner"), ask_access_url(lived.ada.pk)
    told = "This request will be refused."
    assert told not in client.get(place).content.decode(), "without a steward nobody is mailed"
    Agent.objects.filter(pk=lived.ada.pk).update(steward="stew@else.test")
    page = client.get(place).content.decode()
    assert told in page
    assert "EMAIL_URL, such as smtp+tls://" in page
    assert "EMAIL_URL" in client.post(place, ASKED).content.decode()
    assert not AccessRequest.objects.exists()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    assert told not in client.get(place).content.decode()
