"""An owner asks that content is removed for good; it waits for the agent's side."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.formats import localize

from audit.consent import Person as Asking
from audit.consent import Scope
from audit.models import AccessRequest
from audit.trail import Actor
from memory.consent import grants, proposals, redaction, removal_requests
from memory.models import Agent, Memory, Person
from memory.writing import operations
from tests.admin.acting import confirm, post, said
from tests.admin.conftest import Enter
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.queueing import waiting
from tests.steps import ME, fresh, problems, remember

OWNER = "owner@acme.test"


@pytest.fixture
def kept(house: House) -> Agent:
    remember(house.ada, f"{MARKER} tea", f"{MARKER} tea", f"{MARKER} milk", tags=(MARKER,))
    operations.protect(fresh(house.ada), [3], Actor.person(OWNER))
    return fresh(house.ada)


def rows(agent: Agent, *numbers: int) -> list[Memory]:
    return list(Memory.objects.filter(agent=agent, number__in=numbers).order_by("number"))


def page(client: Any, agent: Agent) -> str:
    shown: str = client.get(reverse("admin:memory_agent_change", args=[agent.pk])).content.decode()
    assert MARKER not in shown
    return shown


def test_it_is_asked_with_what_goes_and_what_is_left(kept: Agent, client: Client) -> None:
    shown = post(client, "ask_redaction", *rows(kept, 1, 3)).content.decode()
    for told in (
        "permanently deletes the content of 2 memories (2 in use now)",
        "protected memories among them: 3",
        "these memories may say the same, but the request does not include them: 2",
        "Nothing is deleted now",
    ):
        assert told in shown, told
    assert MARKER not in shown
    assert removal_requests.waiting(kept) == []
    answer = confirm(client, "ask_redaction", *rows(kept, 1, 3))
    [asked] = removal_requests.waiting(fresh(kept))
    assert (asked.asker, asked.memories, asked.reason) == (OWNER, (1, 3), "asked for by the owner")
    assert f"POST /api/v1/removal-requests/{asked.number}/agree" in said(answer)
    assert all(row.sealed for row in rows(kept, 1, 3)), "nothing is removed yet"
    assert f"2 memories, requested by {OWNER} (entry {asked.number})" in page(client, kept)
    redaction.redact(fresh(kept), asked.number, ME, include_constitutional=True)
    done = removal_requests.find(fresh(kept), asked.number)
    told = f"2 memories, requested by {OWNER} (entry {asked.number}): carried out on {localize(done.decided_at)}"
    assert f"{told} by its runtime." in page(client, kept)
    assert problems(kept) == []


def test_it_needs_a_reason(kept: Agent, client: Client) -> None:
    for deed, row in (("ask_redaction", rows(kept, 1)[0]), ("ask_erasure", kept)):
        answer = post(client, deed, row, confirmed="1", reason="  ")
        assert "This field is required" in answer.content.decode()
    assert removal_requests.waiting(kept) == []


def test_where_there_is_a_steward_the_link_is_mailed(kept: Agent, enter: Enter) -> None:
    Agent.objects.filter(pk=kept.pk).update(steward="sue@elsewhere.test", is_steward_only=True)
    answer = confirm(enter("owner"), "ask_erasure", kept)
    [asked] = removal_requests.waiting(fresh(kept))
    assert "It waits for the agent's steward (by the mailed link)." in said(answer)
    assert [numbers for _, numbers in waiting()] == [(kept.pk, asked.number)]


def test_what_was_redacted_before_is_told_and_left_out(kept: Agent, client: Client) -> None:
    number = removal_requests.ask_redaction(kept, [1], Actor.person(OWNER), reason="request 17").number
    redaction.redact(fresh(kept), number, ME)
    assert (
        "Already redacted, therefore skipped: 1." in post(client, "ask_redaction", *rows(kept, 1, 2)).content.decode()
    )
    confirm(client, "ask_redaction", *rows(kept, 1, 2))
    [asked] = removal_requests.waiting(fresh(kept))
    assert asked.memories == (2,)


def test_ones_own_requests_are_taken_back_and_no_others(kept: Agent, client: Client) -> None:
    removal_requests.ask_erasure(kept, Actor.person(OWNER), reason="request 17")
    theirs = removal_requests.ask_erasure(fresh(kept), Actor.operator("erase_agent"), reason="request 18").number
    shown = post(client, "withdraw_removals", kept).content.decode()
    assert "withdraws your own requests among 2 open removal requests" in shown
    for number, (who, when) in {
        each.number: (each.asked_by, each.asked_at) for each in removal_requests.waiting(kept)
    }.items():
        assert f"request {number}, erasure, requested by {who}, on {localize(when)}." in shown
    assert "1 request withdrawn" in said(confirm(client, "withdraw_removals", kept))
    assert [each.number for each in removal_requests.waiting(fresh(kept))] == [theirs]
    assert "none of the open requests is yours" in said(confirm(client, "withdraw_removals", kept))


def test_the_console_prints_no_link_and_nobody_is_asked_who_could_not_answer(
    kept: Agent, enter: Enter, settings: Any
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    Agent.objects.filter(pk=kept.pk).update(steward="sue@elsewhere.test", is_steward_only=True)
    answer = confirm(enter("owner"), "ask_redaction", *rows(kept, 1))
    assert removal_requests.waiting(fresh(kept)) == []
    assert "mail" in said(answer).lower()


def test_of_many_requests_the_oldest_are_listed(kept: Agent, enter: Enter) -> None:
    asked = [
        removal_requests.ask_redaction(fresh(kept), [1], Actor.operator("redact"), reason="request 17").number
        for _ in range(23)
    ]
    shown = page(enter("owner"), kept)
    assert [f"(entry {number})" in shown for number in asked] == [True] * 20 + [False] * 3
    assert "And 3 more." in shown


@pytest.mark.parametrize(
    ("steward", "alone", "link", "runtime"),
    [("", False, False, True), ("sue@elsewhere.test", False, True, True), ("sue@elsewhere.test", True, True, False)],
)
def test_who_decides_is_told_as_it_is_for_this_agent(
    steward: str, alone: bool, link: bool, runtime: bool, kept: Agent, staff: dict[str, Person], client: Client
) -> None:
    """Of a request to read, of one to remove, and of a proposal."""
    Agent.objects.filter(pk=kept.pk).update(steward=steward, is_steward_only=alone)
    pat = Asking(staff["auditor"].pk, staff["auditor"].email)
    number = grants.ask(fresh(kept), pat, purpose="to see why it forgot her", scope=Scope("silo")).number
    row = AccessRequest.objects.get(number=number)
    reading = client.get(reverse("admin:audit_accessrequest_change", args=[row.pk])).content.decode()
    removal_requests.ask_erasure(fresh(kept), Actor.person(OWNER), reason="request 17")
    removal = page(client, kept)
    proposals.propose(fresh(kept), Actor.person(OWNER), model="openai/gpt")
    both = page(client, kept)
    for shown, where, times in (
        (reading, "access-requests", 1),
        (removal, "removal-requests", 1),
        (both, "proposals", 2),
    ):
        assert shown.count("steward (by the mailed link)") == times * link, where
        assert (f"/api/v1/{where}/" in shown) is runtime, where


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda agent, number: removal_requests.decline(agent, number, ME), ("denied", " by its runtime")),
        (lambda agent, number: removal_requests.decline(agent, number, Actor.person(OWNER)), ("withdrawn", "")),
    ],
)
def test_what_became_of_the_last_request_is_told(end: Any, told: tuple[str, str], kept: Agent, client: Client) -> None:
    assert "requested by" not in page(client, kept)
    number = removal_requests.ask_erasure(kept, Actor.person(OWNER), reason="request 17").number
    end(fresh(kept), number)
    done = removal_requests.find(fresh(kept), number)
    became, by = told
    line = f"erasure, requested by {OWNER} (entry {number}): {became} on {localize(done.decided_at)}{by}."
    assert line in page(client, kept)


def test_of_a_request_that_another_left_nothing_of_the_other_is_told(kept: Agent, enter: Enter) -> None:
    first = removal_requests.ask_redaction(kept, [1], Actor.person(OWNER), reason="request 17").number
    removal_requests.ask_redaction(fresh(kept), [1], Actor.person(OWNER), reason="request 18")
    redaction.redact(fresh(kept), first, ME)
    assert f"(entry {first}): carried out on 2" in page(enter("owner"), kept)
