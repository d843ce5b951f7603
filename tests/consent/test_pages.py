"""The pages behind a steward's link: what they say, that opening one decides nothing, and that each decides once."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from audit.consent import Person, Scope
from audit.models import ConsentLink
from audit.trail import Actor
from memory import errors
from memory.agents import lifecycle
from memory.consent import granted_reads, grants, proposals
from memory.models import Agent
from tests import steps
from tests.consent.visiting import STEW, address_of, buttons, page, press, refused_over_an_altered_trail
from tests.steps import ME, fresh, problems

PAT = Person(1, "pat@else.test")
ADMIN = Actor.person("admin@else.test")
PURPOSE = "to see why it <script>forgot</script> the customer"


@pytest.fixture
def led(ada: Agent) -> Agent:
    steps.remember(ada, "tea", "milk")
    lifecycle.change(ada, ME, steward=STEW)
    return fresh(ada)


def asked(agent: Agent, person: Person = PAT, **more: Any) -> tuple[int, str]:
    """A request's number, and the address its link leads to."""
    given: dict[str, Any] = {"purpose": PURPOSE, "scope": Scope("silo")} | more
    number = grants.ask(fresh(agent), person, **given).number
    return number, address_of(agent, number)


def proposed(agent: Agent, actor: Actor = ADMIN, **settings: Any) -> tuple[int, str]:
    number = proposals.propose(fresh(agent), actor, **settings).number
    return number, address_of(agent, number)


# --- what is shown


def test_a_request_is_shown_whole(led: Agent, visitor: Client) -> None:
    number, address = asked(led, scope=Scope("memories", numbers=(1, 2)), seconds=900)
    shown = page(visitor, address)
    until = grants.find(led, number).asked_at + timedelta(hours=72)
    for told in (
        PAT.address,
        "acme/ada",
        "2 listed memories and their history",
        "Numbers 1, 2",
        "15 minutes",
        "<blockquote>\u201cto see why it &lt;script&gt;forgot&lt;/script&gt; the customer\u201d</blockquote>",
        f"{until:%H:%M} UTC",
    ):
        assert told in shown
    assert buttons(shown) == ["Approve", "Deny"]
    assert "mail domain" not in shown
    assert "tea" not in shown


def test_somebody_of_the_stewards_own_mail_domain_is_marked(led: Agent, visitor: Client) -> None:
    assert "has the same mail domain as yours" in page(visitor, asked(led, Person(2, "pat@ACME.test"))[1])


def test_a_proposal_is_shown_whole(led: Agent, visitor: Client) -> None:
    _, address = proposed(led, model="openai/gpt-4.1", steward="tom@acme.test", is_steward_only=True)
    shown = page(visitor, address)
    for told in (
        ADMIN.label,
        "from builtin/dedupe to openai/gpt-4.1",
        f"from {STEW} to tom@acme.test",
        "only its steward can consent",
    ):
        assert told in shown
    assert buttons(shown) == ["Approve", "Deny"]


def test_the_pages_are_plain_and_kept_by_nobody(led: Agent, visitor: Client) -> None:
    for address, status in ((asked(led)[1], 200), ("/consent/none", 404)):
        answer = visitor.get(address)
        assert answer.status_code == status
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["Cache-Control"] == "no-store, private"
        assert answer.headers["Referrer-Policy"] == "strict-origin"  # no address, and forms still say whence they come
        assert b"<script" not in answer.content
        assert b"style=" not in answer.content


def test_no_session_and_no_cookie_but_the_forms(led: Agent, visitor: Client) -> None:
    _, address = asked(led)
    visitor.get("/consent/none")
    assert not visitor.cookies
    visitor.get(address)
    assert set(visitor.cookies) == {"palimpsest_csrf"}
    press(visitor, address, "approve")
    visitor.get(address)
    assert set(visitor.cookies) == {"palimpsest_csrf"}
    assert not Session.objects.exists()


# --- deciding


@pytest.mark.parametrize(("decision", "state"), [("approve", "active"), ("deny", "denied")])
def test_a_decision_leads_back_to_the_page(led: Agent, visitor: Client, decision: str, state: str) -> None:
    number, address = asked(led)
    answer = press(visitor, address, decision)
    assert (answer.status_code, answer.headers["Location"]) == (303, address)
    decided = grants.find(fresh(led), number)
    assert (decided.state, decided.decided_by) == (state, "steward")
    shown = page(visitor, address)
    assert buttons(shown) == (["Revoke"] if state == "active" else [])
    assert ("The agent’s steward approved this" in shown) is (state == "active")
    assert problems(led) == []


def test_opening_and_prefetching_decide_nothing(led: Agent, visitor: Client) -> None:
    addresses = asked(led)[1], proposed(led, model="openai/gpt-4.1")[1]
    before = steps.state(led)
    methods = (visitor.get, visitor.head, visitor.options, visitor.put, visitor.delete)
    for method, address, query in product(methods, addresses, ("", "?decision=approve", "?decision=deny")):
        assert method(f"{address}{query}").status_code in (200, 405)
    assert steps.state(led) == before


def test_what_is_no_decision_decides_nothing(led: Agent, visitor: Client) -> None:
    _, address = asked(led)
    before = steps.state(led)
    for decision in ("", "yes", "APPROVE", "approve ", "revoke"):
        assert press(visitor, address, decision).status_code == 303
    assert steps.state(led) == before


def test_a_post_from_elsewhere_is_refused(led: Agent) -> None:
    _, address = asked(led)
    before = steps.state(led)
    strict = Client(enforce_csrf_checks=True)
    assert press(strict, address, "approve").status_code == 403
    strict.get(address)
    assert strict.post(address, {"decision": "approve"}, headers={"Origin": "https://evil.test"}).status_code == 403
    assert steps.state(led) == before


def test_a_decision_is_not_repeated_nor_turned(led: Agent, visitor: Client) -> None:
    _, address = asked(led)
    press(visitor, address, "deny")
    before = steps.state(led)
    for decision in ("approve", "deny", "revoke"):
        assert press(visitor, address, decision).status_code == 303
    assert steps.state(led) == before
    assert "denied this" in page(visitor, address)


def test_a_grant_is_revoked_by_the_same_link(led: Agent, visitor: Client) -> None:
    number, address = asked(led)
    press(visitor, address, "approve")
    granted_reads.memories(fresh(led), number, PAT, [1])
    assert "has read 1 time so far" in page(visitor, address)
    assert press(visitor, address, "revoke").status_code == 303
    with pytest.raises(errors.NotGranted):
        granted_reads.memories(fresh(led), number, PAT, [1])
    shown = page(visitor, address)
    assert ("was revoked on" in shown, buttons(shown)) == (True, [])


def test_a_grant_that_ended_by_itself_is_told_as_such(led: Agent, visitor: Client, time_machine: Any) -> None:
    _, address = asked(led, seconds=900)
    press(visitor, address, "approve")
    time_machine.move_to(timezone.now() + timedelta(seconds=901))
    shown = page(visitor, address)
    assert ("The access expired" in shown, buttons(shown)) == (True, [])


def test_what_the_runtime_decided_the_steward_sees_and_revokes(led: Agent, visitor: Client) -> None:
    number, address = asked(led)
    grants.approve(fresh(led), number, ME)
    shown = page(visitor, address)
    assert ("The agent’s runtime approved this" in shown, buttons(shown)) == (True, ["Revoke"])
    press(visitor, address, "revoke")
    assert grants.find(fresh(led), number).state == "revoked"


def test_after_72_hours_a_link_decides_nothing_and_says_so(led: Agent, visitor: Client, time_machine: Any) -> None:
    links = [asked(led)[1], proposed(led, model="openai/gpt-4.1")[1]]
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    before = steps.state(led)
    for address in links:
        shown = page(visitor, address)
        assert ("Nobody decided in time, so the answer is no" in shown, buttons(shown)) == (True, [])
        assert press(visitor, address, "approve").status_code == 303
    assert steps.state(led) == before


@pytest.mark.parametrize("address", [STEW, "STEW@Acme.Test", "stew+x@acme.test"])
def test_a_steward_is_given_no_buttons_for_what_they_asked(led: Agent, visitor: Client, address: str) -> None:
    for where, told in (
        (asked(led, Person(2, address))[1], "You cannot decide about your own request"),
        (proposed(led, Actor.person(address), model="openai/gpt-4.1")[1], "You cannot decide about your own proposal"),
    ):
        before = steps.state(led)
        shown = page(visitor, where)
        assert (told in shown, buttons(shown)) == (True, [])
        assert press(visitor, where, "approve").status_code == 303
        assert steps.state(led) == before


def test_of_an_erased_silo_nothing_is_decided(led: Agent, visitor: Client) -> None:
    links = [asked(led)[1], proposed(led, model="openai/gpt-4.1")[1]]
    Agent.objects.update(wrapped_key=b"")
    for address in links:
        shown = page(visitor, address)
        assert ("was erased" in shown, buttons(shown)) == (True, [])
        assert press(visitor, address, "approve").status_code == 303
    assert grants.find(fresh(led), fresh(led).audit_seq - 1).state == "requested"


def test_a_proposal_is_approved_and_the_one_who_is_replaced_sees_that(led: Agent, visitor: Client) -> None:
    number, address = proposed(led, steward="tom@acme.test")
    assert press(visitor, address, "approve").status_code == 303
    assert fresh(led).steward == "tom@acme.test"
    shown = page(visitor, address)
    assert ("The agent’s steward approved this" in shown, buttons(shown)) == (True, [])
    assert press(visitor, address, "deny").status_code == 303
    assert proposals.find(fresh(led), number).state == "accepted"
    assert problems(led) == []


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda agent, number: proposals.decline(agent, number, ADMIN), "The proposer withdrew this proposal"),
        (lambda agent, number: proposals.decline(agent, number, ME), "The agent’s runtime denied this proposal"),
        (lambda agent, number: proposals.accept(agent, number, ME), "The agent’s runtime approved this change"),
        (lambda agent, _: proposals.propose(agent, ADMIN, model="openai/x"), "A newer proposal replaced this one"),
    ],
)
def test_a_proposal_that_is_settled_says_how(led: Agent, visitor: Client, end: Any, told: str) -> None:
    number, address = proposed(led, model="openai/gpt-4.1")
    end(fresh(led), number)
    shown = page(visitor, address)
    assert (told in shown, buttons(shown)) == (True, [])


# --- what is refused though it is open


@pytest.mark.parametrize("ask", [asked, lambda agent: proposed(agent, model="openai/gpt-4.1")])
def test_where_the_trail_was_altered_since_the_steward_is_told_why_nothing_is_decided(
    led: Agent, visitor: Client, ask: Any
) -> None:
    number, _ = ask(led)
    assert buttons(refused_over_an_altered_trail(visitor, led, number, "approve")) == ["Approve", "Deny"]


def test_what_cannot_be_changed_any_more_is_told_too(led: Agent, visitor: Client, monkeypatch: Any) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise errors.Invalid("model", "is not available")

    _, address = proposed(led, model="openai/gpt-4.1")
    monkeypatch.setattr(lifecycle, "change", refuse)
    answer = press(visitor, address, "approve")
    assert (answer.status_code, "is not available" in answer.content.decode()) == (409, True)


# --- what is no link


def test_a_link_that_is_none_says_so_and_does_nothing(led: Agent, visitor: Client) -> None:
    _, address = asked(led)
    prefix, _, secret = address.removeprefix("/consent/").partition("_")
    turned = "0" if secret[-1] != "0" else "1"
    before = steps.state(led)
    said = set()
    for token in (
        "",
        "x",
        "/",
        "a/b",
        "\n",
        "\0",
        "é_é",
        "%",
        "\U0001f600" * 50,
        "x" * 4_000,
        prefix,
        f"{prefix}_",
        f"_{secret}",
        f"{prefix}_{secret[:-1]}",
        f"{prefix}_{secret[:-1]}{turned}",
        f"{prefix}_{secret}0",
        f"{prefix}_{secret}/",
        f"{prefix.upper()}_{secret}",
        f"{'a' * 12}_{secret}",
    ):
        for answer in (visitor.get(f"/consent/{quote(token)}"), press(visitor, f"/consent/{quote(token)}", "approve")):
            assert answer.status_code == 404, token
            said.add(answer.content)
    [told] = said
    assert b"This link is not valid" in told
    assert steps.state(led) == before


def test_a_link_of_a_steward_who_was_replaced_does_nothing(led: Agent, visitor: Client) -> None:
    links = [asked(led)[1], proposed(led, model="openai/gpt-4.1")[1]]
    lifecycle.change(led, ME, steward="new@acme.test")
    before = steps.state(led)
    for address in links:
        for answer in (visitor.get(address), press(visitor, address, "approve"), press(visitor, address, "revoke")):
            assert answer.status_code == 404
    assert steps.state(led) == before


def test_a_link_put_in_by_sql_is_worth_nothing(led: Agent, visitor: Client) -> None:
    _, address = asked(led)
    secret = address.partition("_")[2]
    row = ConsentLink.objects.get()
    row.pk, row.prefix = None, "a" * 12
    row.save()
    assert visitor.get(f"/consent/{'a' * 12}_{secret}").status_code == 404


def test_a_link_pointed_at_another_request_is_worth_nothing(led: Agent, bob: Agent, visitor: Client) -> None:
    _, address = asked(led)
    lifecycle.change(bob, ME, steward=STEW)
    other = grants.ask(fresh(bob), PAT, purpose=PURPOSE, scope=Scope("silo")).number
    ConsentLink.objects.update(agent_id=bob.pk, number=other)
    assert visitor.get(address).status_code == 404
    assert press(visitor, address, "approve").status_code == 404
    assert grants.find(fresh(bob), other).state == "requested"
