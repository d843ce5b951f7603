"""The form that requests access to an agent's memories."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.dateformat import format as date_format

from audit.models import AccessRequest, AuditEntry
from memory.admin import ask_access
from memory.admin.base.texts import ask_access_url
from memory.consent import approval, requests
from memory.models import Agent, DueReason
from refinement import session as sessions
from refinement.models import Outcome
from tests import steps
from tests.admin.actions import html, text_of
from tests.admin.conftest import Enter, Staff
from tests.admin.reading import asked, at, read
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, signed_update

PURPOSE = "A customer got a wrong opening hour."
FORM = {"purpose": PURPOSE, "kind": "memories", "numbers": "1, 2-3", "seconds": "3600"}


@pytest.fixture
def address(ada: Agent) -> str:
    """The form's address. The agent has three memories."""
    steps.remember(ada, f"{MARKER} tea", f"{MARKER} boats", f"{MARKER} nets")
    return ask_access_url(ada.pk)


def test_everybody_who_sees_an_agent_may_request_access(address: str, staff: Staff, enter: Enter) -> None:
    entries = {"kind": "entries", "first": "2", "last": "3"}
    memories: dict[str, Any] = {"kind": "memories", "numbers": [1, 2, 3]}
    for role, fields, scope in (
        ("owner", {}, memories),
        ("admin", {"kind": "silo"}, {"kind": "silo"}),
        ("auditor", entries, {"kind": "entries", "first": 2, "last": 3}),
        ("superuser", {}, memories),
    ):
        client = enter(role)
        response, row = client.post(address, FORM | fields), AccessRequest.objects.latest("pk")
        assert response["Location"] == f"/admin/audit/accessrequest/{row.pk}/change/"
        assert (row.person, row.purpose, row.state, row.seconds) == (staff[role].email, PURPOSE, "requested", 3600)
        assert row.scope == scope
        page = html(client.get(response["Location"]))
        assert ("3 listed memories" in page, MARKER in page) == (not fields, False)
        assert "You already have an open request to this agent" in html(client.post(address, FORM))
    assert not AuditEntry.objects.filter(operation="content_read").exists()


BAD_FORMS: list[dict[str, str]] = [
    *({"purpose": each} for each in ("short", " " * 40, "x" * 1_001, f"{PURPOSE}\0")),
    *({"numbers": each} for each in ("", "x", "3-1", "0", "1-1000000000", "99", "\u0661")),
    *({"kind": each} for each in ("all", "session")),
    *({"kind": "session", "session": each} for each in ("7", "9" * 30)),
    *({"kind": "entries", "first": first, "last": last} for first, last in (("1", ""), ("3", "2"), ("1", "9999"))),
    *({"seconds": each} for each in ("60", "14460", "x")),
]


def test_a_bad_request_is_refused(address: str, client: Client) -> None:
    for fields in BAD_FORMS:
        response = client.post(address, FORM | fields)
        assert response.status_code == 200
        assert re.search("pal-field-error|pal-error", html(response)), fields
    assert not AccessRequest.objects.exists()


@pytest.mark.parametrize(
    ("agents_side", "text"),
    [
        ({}, "The agent has no steward. Its runtime decides, through the API."),
        ({"steward": "sue@else.test"}, "steward or its runtime decides."),
        ({"steward": "sue@else.test", "is_steward_only": True}, "steward decides, with a mailed link"),
    ],
)
def test_the_form_and_the_request_show_who_decides(
    agents_side: dict[str, Any], text: str, address: str, ada: Agent, client: Client, settings: Any
) -> None:
    settings.DEBUG = True  # mail goes to the console
    signed_update(Agent.objects.filter(pk=ada.pk), **agents_side)
    page = html(client.get(address))
    assert text in page
    assert f'<a href="/admin/memory/agent/{ada.pk}/change/">acme/ada</a>' in page
    crumbs = re.sub(r"<[^>]+>|chevron_right", " ", page.split("<h1", 2)[1].split("</h1>")[0])
    assert crumbs.split()[-5:] == ["Agents", "acme/ada", "Ask", "for", "access"]
    assert text in html(client.get(client.post(address, FORM)["Location"]))


def test_the_form_lists_the_latest_sessions_and_the_one_of_the_address(
    address: str, ada: Agent, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask_access, "LATEST", 2)
    assert "This agent has had no session" in html(client.get(address))
    for _ in range(3):
        session = sessions.open_session(fresh(ada), trigger=DueReason.WEEKLY)
        sessions.close(session, Outcome.COMPLETED)
    day = date_format(session.opened_at, "j M Y H:i")
    sizes = f"{session.tokens_before} \N{RIGHTWARDS ARROW} {session.tokens_after} tokens"
    page = html(client.get(address))
    assert f"Session 3, {day} UTC, {sizes}" in page
    assert re.findall(r"Session (\d),", page) == ["3", "2"]
    older = f"{address}?kind=session&session=1"
    assert re.findall(r"Session (\d),", html(client.get(older))) == ["3", "2", "1"]
    assert client.post(older, FORM | {"kind": "session", "session": "1"}).status_code == 302
    assert AccessRequest.objects.get().scope == {"kind": "session", "session": 1, "last": 9}


def test_the_page_of_a_request_shows_its_state_and_steps(
    address: str, ada: Agent, staff: Staff, enter: Enter, client: Client
) -> None:
    own, number = enter("auditor"), asked(ada, staff["auditor"])
    row = reverse("admin:audit_accessrequest_change", args=[AccessRequest.objects.get().pk])
    assert "Waits for a decision until" in html(own.get(row))
    requested = reverse("admin:audit_accessrequest_changelist")
    assert re.search(r"decide by\s+20", text_of(own, requested))
    approval.approve(fresh(ada), number, ME)
    page, link = html(own.get(row)), f'href="{at(ada, number)}">Open the memories</a>'
    for text in ("Active: 59\xa0minutes left", "by the agent’s runtime", "for 1 hour", "<dd>nothing</dd>", link):
        assert text in page
    for numbers in ((1, 2), (2,)):
        assert read(own, ada, number, *numbers).status_code == 200
    [reads] = re.findall(r'href="([^"]+)">2 memories, in 2 reads</a>', html(own.get(row)))
    assert html(own.get(unescape(reads))).count("content read") >= 2
    assert link not in html(client.get(row)), "another person"
    requests.revoke(fresh(ada), number, ME)
    page = html(own.get(row))
    assert ("Revoked" in page, "Ended" in page, link in page) == (True, True, False)
    assert re.search(rf"ended\s+{AccessRequest.objects.get().ended_at:%Y-%m-%d %H:%M} UTC", text_of(own, requested))


def test_a_steward_does_not_request_access_for_themselves(
    address: str, ada: Agent, client: Client, settings: Any
) -> None:
    settings.DEBUG = True  # mail goes to the console
    signed_update(Agent.objects.filter(pk=ada.pk), steward="Owner+x@acme.test", is_steward_only=True)
    assert "You cannot decide about your own request" in html(client.get(address))
    assert "So nobody can decide" in html(client.post(address, FORM))
    assert not AccessRequest.objects.exists()


def test_a_person_at_their_limit_learns_when_to_try_again(
    address: str, ada: Agent, client: Client, settings: Any
) -> None:
    settings.ASKS_PER_PERSON = 1
    assert client.post(address, FORM).status_code == 302
    requests.deny(fresh(ada), AccessRequest.objects.get().number, ME)
    response = client.post(address, FORM)
    assert response.status_code == 200
    assert "You reached the limit of 1 requests" in html(response)
    assert "Try again after" in html(response)
    assert AccessRequest.objects.count() == 1


def test_forms_warn_when_a_steward_cannot_receive_mail(address: str, ada: Agent, client: Client, settings: Any) -> None:
    propose, add = reverse("admin:memory_agent_propose", args=[ada.pk]), reverse("admin:memory_agent_add_agent")
    refusal, general = "This request will be refused.", "the service refuses requests to stewards"

    def warnings(text: str, *pages: str) -> set[bool]:
        return {text in html(client.get(page)) for page in pages}

    assert warnings("EMAIL_URL", address, propose, add) == {False}
    smtp, settings.EMAIL_BACKEND = (f"django.core.mail.backends.{name}.EmailBackend" for name in ("smtp", "console"))
    assert warnings(general, propose, add) == {True}
    assert warnings(refusal, address) == {False}, "an agent without a steward needs no mail"
    signed_update(Agent.objects.filter(pk=ada.pk), steward="stew@else.test")
    assert warnings(refusal, address, propose) == warnings("EMAIL_URL, such as smtp+tls://", address) == {True}
    for page, form in ((address, FORM), (propose, {"model": "openai/gpt"})):
        assert "set EMAIL_URL, such as smtp+tls://" in html(client.post(page, form))
    assert not AccessRequest.objects.exists()
    assert not AuditEntry.objects.filter(operation="change_proposed").exists()
    settings.EMAIL_BACKEND = smtp
    assert warnings(refusal, address, propose) == {False}
