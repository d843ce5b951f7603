"""Requests to remove content, and proposals: a person makes and withdraws them, and the agent's side decides."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.html import strip_tags

from audit.consent import REMOVALS
from audit.models import AccessRequest
from audit.trail import Actor
from config.templatetags.moments import moment
from memory.consent import approval, links, redaction, requests
from memory.errors import NotOpen
from memory.models import Agent, LetterKind, Memory
from memory.writing import operations
from tests import queueing
from tests.admin.actions import confirm, html, messages_of, post
from tests.admin.conftest import Enter, Staff
from tests.admin.reading import asked
from tests.api.calling import Caller
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, last_entry, problems, remember, signed_update

OWNER = Actor.person("owner@acme.test")
STEWARD = "sue@elsewhere.test"


@pytest.fixture
def kept(house: House) -> Agent:
    remember(house.ada, f"{MARKER} tea", f"{MARKER} tea", f"{MARKER} milk", tags=(MARKER,))
    operations.protect(fresh(house.ada), [3], OWNER)
    return fresh(house.ada)


def rows(agent: Agent, *numbers: int) -> list[Memory]:
    return list(Memory.objects.filter(agent=agent, number__in=numbers).order_by("number"))


def page(client: Client, agent: Agent) -> str:
    text = html(client.get(reverse("admin:memory_agent_change", args=[agent.pk])))
    assert MARKER not in text
    return text


def open_requests(agent: Agent) -> list[Any]:
    return requests.waiting(fresh(agent), *REMOVALS)


# --- requests to remove content


def test_an_owner_requests_a_redaction_and_the_runtime_carries_it_out(kept: Agent, client: Client) -> None:
    preview = html(post(client, "ask_redaction", *rows(kept, 1, 3)))
    for text in (
        "permanently deletes the content of 3 memories (3 of them active)",
        "this includes their lineage: 2.",
        "these memories are protected: 3",
        "Nothing is deleted now",
    ):
        assert text in preview, text
    assert MARKER not in preview
    assert open_requests(kept) == []
    response = confirm(client, "ask_redaction", *rows(kept, 1, 3))
    [request] = open_requests(kept)
    assert (request.asker, request.memories, request.reason) == (OWNER.label, (1, 3), "requested by the owner")
    assert "Next, the agent's runtime decides." in messages_of(response)
    assert all(row.sealed for row in rows(kept, 1, 3)), "nothing is deleted yet"
    asked = f"2 memories, requested by {OWNER.label} on {moment(request.asked_at)} (entry {request.number})."
    assert strip_tags(asked) in strip_tags(page(client, kept))
    redaction.redact(fresh(kept), request.number, ME, include_constitutional=True)
    decided = moment(requests.find(fresh(kept), request.number).decided_at)
    line = f"{OWNER.label} (entry {request.number}): carried out on {decided} by its runtime."
    assert strip_tags(line) in strip_tags(page(client, kept))
    assert problems(kept) == []


def test_a_request_needs_a_reason(kept: Agent, client: Client) -> None:
    for action, row in (("ask_redaction", rows(kept, 1)[0]), ("ask_erasure", kept)):
        assert "This field is required" in html(post(client, action, row, confirmed="1", reason="  "))
    assert open_requests(kept) == []


def test_the_steward_gets_a_link_by_mail(kept: Agent, client: Client, settings: Any) -> None:
    signed_update(Agent.objects.filter(pk=kept.pk), steward=STEWARD, is_steward_only=True)
    backend, settings.EMAIL_BACKEND = settings.EMAIL_BACKEND, "django.core.mail.backends.console.EmailBackend"
    assert "mail" in messages_of(confirm(client, "ask_redaction", *rows(kept, 1))).lower()
    assert open_requests(kept) == [], "refused, because the link would be printed on the console"
    settings.EMAIL_BACKEND = backend
    response = confirm(client, "ask_erasure", kept)
    [request] = open_requests(kept)
    assert "Next, the agent's steward (by the mailed link) decides." in messages_of(response)
    assert queueing.letters() == [(LetterKind.LINK, kept.pk, request.number)]


def test_memories_that_are_already_redacted_are_skipped(kept: Agent, client: Client) -> None:
    first = requests.ask_redaction(kept, [1], OWNER, reason="request 17", excluded=[2, 3]).number
    requests.ask_redaction(fresh(kept), [1], OWNER, reason="request 18")
    redaction.redact(fresh(kept), first, ME)
    text = strip_tags(page(client, kept))
    assert f"(entry {first}): carried out on 2" in text, "the second request has nothing left to delete"
    assert "Already redacted, therefore skipped: 1." in html(post(client, "ask_redaction", *rows(kept, 1, 2)))
    confirm(client, "ask_redaction", *rows(kept, 1, 2))
    assert [request.memories for request in open_requests(kept)][-1] == (2,)


def test_a_person_withdraws_their_own_requests_only(kept: Agent, client: Client) -> None:
    requests.ask_erasure(kept, OWNER, reason="request 17")
    theirs = requests.ask_erasure(fresh(kept), Actor.operator("erase_agent"), reason="request 18").number
    preview = html(post(client, "withdraw_removals", kept))
    assert "2 open removal requests. This withdraws only your requests" in preview
    for request in open_requests(kept):
        line = f"request {request.number}, erasure, requested by {request.asked_by} on {moment(request.asked_at)}."
        assert line in preview
    assert "1 request withdrawn" in messages_of(confirm(client, "withdraw_removals", kept))
    assert [request.number for request in open_requests(kept)] == [theirs]
    assert "none of the open requests is yours" in messages_of(confirm(client, "withdraw_removals", kept))


def test_the_page_lists_the_oldest_of_many_requests(kept: Agent, client: Client) -> None:
    operator = Actor.operator("redact")
    numbers = [requests.ask_redaction(fresh(kept), [1], operator, reason="x 17").number for _ in range(23)]
    text = page(client, kept)
    assert [f">entry {number}</a>)" in text for number in numbers] == [True] * 20 + [False] * 3
    assert "And 3 more." in text


@pytest.mark.parametrize(("actor", "state", "by"), [(ME, "denied", " by its runtime"), (OWNER, "withdrawn", "")])
def test_the_page_shows_how_the_last_request_ended(
    actor: Actor, state: str, by: str, kept: Agent, client: Client
) -> None:
    assert "requested by" not in page(client, kept)
    number = requests.ask_erasure(kept, OWNER, reason="request 17").number
    requests.deny(fresh(kept), number, actor)
    decided = moment(requests.find(fresh(kept), number).decided_at)
    line = f"erasure, requested by {OWNER.label} (entry {number}): {state} on {decided}{by}."
    assert strip_tags(line) in strip_tags(page(client, kept))


@pytest.mark.parametrize(
    ("steward", "alone", "link", "runtime"),
    [("", False, False, True), (STEWARD, False, True, True), (STEWARD, True, True, False)],
)
def test_the_pages_of_open_requests_show_who_decides(
    steward: str, alone: bool, link: bool, runtime: bool, kept: Agent, staff: Staff, client: Client
) -> None:
    signed_update(Agent.objects.filter(pk=kept.pk), steward=steward, is_steward_only=alone)
    row = AccessRequest.objects.get(number=asked(kept, staff["auditor"]))
    reading = html(client.get(reverse("admin:audit_accessrequest_change", args=[row.pk])))
    requests.ask_erasure(fresh(kept), OWNER, reason="request 17")
    removal = page(client, kept)
    requests.propose(fresh(kept), OWNER, model="openai/gpt")
    for text, decides, times in (
        (reading, " can decide.", 1),
        (removal, " decides.", 2),
        (page(client, kept), " can accept it.", 3),
    ):
        assert text.count("steward (by the mailed link)") == times * link, decides
        assert (f"agent&#x27;s runtime{decides}" in text) is runtime, decides


# --- proposals

BUTTON = 'name="action" value="withdraw_proposal"'


@pytest.fixture
def proposed(ada: Agent, staff: Staff) -> Agent:
    """An agent with a steward, and an open proposal of its admin."""
    signed_update(Agent.objects.filter(pk=ada.pk), steward=STEWARD)
    requests.propose(fresh(ada), Actor.person(staff["admin"].email), model="openai/gpt")
    return fresh(ada)


def number_of(agent: Agent) -> int:
    proposal = requests.open_proposal(fresh(agent))
    assert proposal is not None
    return proposal.number


def test_a_withdrawn_proposal_is_accepted_by_nobody(proposed: Agent, house: House, enter: Enter) -> None:
    client, number = enter("admin"), number_of(proposed)
    token = links.make(proposed, number)
    preview = html(post(client, "withdraw_proposal", proposed, from_row="1"))
    assert "Withdraws 1 proposal" in preview
    assert "acme/ada: its model: openai/gpt." in preview
    assert number_of(proposed) == number
    done = confirm(client, "withdraw_proposal", proposed, from_row="1")
    assert messages_of(done) == f"agent acme/ada: proposal {number} withdrawn."
    entry = last_entry(proposed)
    assert (entry.operation, entry.actor_kind, entry.actor_label) == ("change_declined", "person", "admin@acme.test")
    with pytest.raises(NotOpen):
        links.decide(token, approve=True)
    assert "The proposer withdrew this proposal" in html(client.get(reverse("consent", args=[token])))
    response = Caller(house.ada_key).post(f"proposals/{number}/accept")
    assert (response.status, response.codes) == (409, ["not_open"])
    assert fresh(proposed).model == "builtin/dedupe"
    assert problems(proposed) == []


def test_only_an_open_proposal_can_be_withdrawn(proposed: Agent, enter: Enter) -> None:
    client = enter("admin")
    assert BUTTON in page(client, proposed)
    approval.approve(proposed, number_of(proposed), ME)
    assert BUTTON not in page(client, proposed)
    seq = fresh(proposed).audit_seq
    assert "The agent has no open proposal" in messages_of(confirm(client, "withdraw_proposal", proposed, from_row="1"))
    assert (fresh(proposed).audit_seq, fresh(proposed).model) == (seq, "openai/gpt")
