"""Where there is no page: one of the service's own look, that says the same whatever is, or is not, there."""

from __future__ import annotations

from typing import Any

from django.test import Client
from django.urls import reverse

from memory.models import Agent
from tests.admin.conftest import Enter
from tests.conftest import House


def is_of_the_house(answer: Any) -> bool:
    """By its style, and by what a browser is told of it."""
    policy, kept = answer.headers["Content-Security-Policy"], answer.headers["Cache-Control"]
    return "plain.css" in answer.content.decode() and "unsafe" not in policy and "no-store" in kept


def test_a_missing_page_says_nothing_of_what_there_is(house: House, client: Client) -> None:
    missing = Agent(pk=99_999_999)
    forms = [reverse("admin:memory_agent_change_settings", args=[agent.pk]) for agent in (house.bob, missing)]
    answers = [client.get(address) for address in (*forms, "/admin/nothing/", "/nothing", "/reading/globex/bob/1/")]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert all(map(is_of_the_house, answers))
    assert reverse("admin:index") in answers[0].content.decode(), "the way on"


def test_what_is_not_ones_own_to_do_looks_the_same_whatever_it_is(house: House, enter: Enter) -> None:
    client = enter("auditor")
    addresses = [reverse("admin:memory_agent_change_settings", args=[house.ada.pk]), "/admin/memory/agentkey/"]
    answers = [client.get(address) for address in (*addresses, "/admin/memory/tenant/")]
    assert {answer.status_code for answer in answers} == {403}
    assert len({answer.content for answer in answers}) == 1
    assert is_of_the_house(answers[0])


def test_a_request_that_cannot_be_read(house: House, client: Client) -> None:
    answers = [client.get("/admin/", HTTP_HOST="elsewhere.test"), client.get("/admin/memory/memory/?digest=0a1b2c")]
    assert {answer.status_code for answer in answers} == {400}
    assert len({answer.content for answer in answers}) == 1
    assert "0a1b2c" not in answers[1].content.decode()
    assert is_of_the_house(answers[1])


def test_what_is_to_be_told_on_the_next_page_is_told_there(house: House, client: Client) -> None:
    form = {"action": "pause", "_selected_action": [str(house.ada.pk)], "confirmed": "1"}
    assert client.post("/admin/memory/agent/", form).status_code == 302
    assert "acme/ada: paused." not in client.get("/admin/nothing/").content.decode()
    assert "acme/ada: paused." in client.get("/admin/memory/agent/").content.decode()
