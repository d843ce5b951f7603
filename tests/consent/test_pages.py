"""The pages behind a steward's link: what they display, and that a visit decides nothing and each link decides once."""

import re
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from audit.consent import Person, Scope
from audit.models import AuditEntry, ConsentLink
from audit.trail import Actor
from config import at_once
from memory import errors
from memory.agents import lifecycle
from memory.consent import approval, granted_reads, requests
from memory.consent import redaction as redactions
from memory.models import Agent, Membership
from memory.writing import operations
from tests import steps
from tests.admin.conftest import enrolled
from tests.conftest import OPERATOR, drop_guards
from tests.consent.visiting import (
    ADMIN,
    PAT,
    PURPOSE,
    STEW,
    buttons,
    every_link,
    page,
    press,
    proposal,
    redaction,
    request,
    with_link,
)
from tests.members import join
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, problems, signed_update

OWN_SCRIPT = b'<script src="/static/palimpsest/local_time.js" defer>'


def test_the_page_of_a_request(agent: Agent, visitor: Client) -> None:
    number, address = request(agent, scope=Scope("memories", numbers=(1, 2)), seconds=900)
    text = page(visitor, address)
    until = requests.find(agent, number).asked_at + timedelta(hours=72)
    quoted = "<blockquote>\u201cto see why it &lt;script&gt;forgot&lt;/script&gt; the customer\u201d</blockquote>"
    words = (PAT.address, "acme/ada", "2 listed memories and their history", "Numbers 1, 2", "15 minutes", quoted)
    for word in (*words, f"{until:%H:%M} UTC"):
        assert word in text
    assert (buttons(text), "mail domain" in text) == (["Approve", "Deny"], False)
    assert "has the same mail domain as yours" in page(visitor, request(agent, Person(2, "pat@ACME.test"))[1])


def test_the_page_says_which_role_a_member_has(agent: Agent, visitor: Client) -> None:
    pat = enrolled("pat@acme.test")
    join(person=pat, tenant=agent.tenant, role="auditor")
    _, address = request(agent, Person(pat.pk, pat.email))
    assert "<dd>pat@acme.test, auditor of the organisation acme in this service<br>" in page(visitor, address)
    Membership.objects.update(role="owner")  # as SQL can do
    assert "organisation acme" not in page(visitor, address)


@pytest.mark.parametrize(
    ("scope", "title", "figures"),
    [
        (Scope("silo"), "everything that acme/ada remembers", "<br>4 memories\n"),
        (Scope("memories", numbers=(1, 2)), "2 memories of acme/ada", ""),
        (Scope("session", session=7), "what changed in one session of acme/ada", "2 memories, changed on "),
        (Scope("entries", first=1, last=3), "what 3 audit entries changed in acme/ada", ", changed on "),
    ],
)
def test_the_page_says_what_the_person_could_read_and_how_long_is_left(
    scope: Scope, title: str, figures: str, agent: Agent, visitor: Client
) -> None:
    operations.revise(fresh(agent), 1, ME, content=f"{MARKER} green tea", session=7)
    text = page(visitor, request(agent, scope=scope)[1])
    for words in (f"May {PAT.address} read {title}?", figures, "(2\xa0days, 23\xa0hours left)"):
        assert words in text


def test_one_address_loads_a_few_pages_at_once(agent: Agent, visitor: Client, settings: Any) -> None:
    settings.WEB_THREADS, address = 4, request(agent)[1]
    assert at_once.begin({("page", "127.0.0.1"): 1})
    assert visitor.get(address).status_code == 429
    at_once.end([("page", "127.0.0.1")])
    assert visitor.get(address).status_code == 200


def test_the_page_of_a_proposal(agent: Agent, visitor: Client) -> None:
    _, address = proposal(agent, steward="tom@acme.test", is_steward_only=True)
    text = page(visitor, address)
    changes = ("from builtin/dedupe to openai/gpt-4.1", f"from {STEW} to tom@acme.test", "only its steward can consent")
    for word in (ADMIN.label, *changes):
        assert word in text
    assert buttons(text) == ["Approve", "Deny"]


def test_the_page_of_a_memory_file_tells_about_encryption(
    agent: Agent, visitor: Client, tmp_path: Path, settings: Any
) -> None:
    settings.VAULT_ROOTS, file = [str(tmp_path)], tmp_path / "acme" / "ada.md"
    file.parent.mkdir()
    file.write_text("# Runs\n")
    with pytest.raises(errors.Invalid, match="exists already"):
        proposal(agent, memory_path="ada.md")
    number, address = proposal(agent, OPERATOR, memory_path="ada.md")
    text = page(visitor, address)
    assert [w for w in (str(file), "the file exists", "in clear text", "no longer encrypted") if w not in text] == []
    approval.approve(fresh(agent), number, ME)
    text = page(visitor, proposal(agent, model="openai/x", memory_path="")[1])
    assert [words for words in (str(file), "to its memory, encrypted") if words not in text] == []


def test_pages_have_strict_headers_and_only_the_cookie_of_the_form(agent: Agent, visitor: Client) -> None:
    address = request(agent)[1]
    for path, status, cookies in (("/consent/none", 404, set()), (address, 200, {"palimpsest_csrf"})):
        response = visitor.get(path)
        policy = response.headers["Content-Security-Policy"]
        assert (response.status_code, "default-src 'none'" in policy, "unsafe" in policy) == (status, True, False)
        assert response.headers["Cache-Control"] == "no-store, private"
        assert response.headers["Referrer-Policy"] == "strict-origin"  # without the address, but forms send an Origin
        assert re.findall(rb"<script.*?>", response.content) == [OWN_SCRIPT]
        assert b"style=" not in response.content
        assert set(visitor.cookies) == cookies
    press(visitor, address, "approve")
    visitor.get(address)
    assert set(visitor.cookies) == {"palimpsest_csrf"}
    assert not Session.objects.exists()


def test_a_visit_or_an_invalid_decision_decides_nothing(agent: Agent, visitor: Client) -> None:
    addresses = every_link(agent)
    before = steps.state(agent)
    methods = (visitor.get, visitor.head, visitor.options, visitor.put, visitor.delete)
    for method, address, query in product(methods, addresses, ("", "?decision=approve", "?decision=deny")):
        assert method(f"{address}{query}").status_code in (200, 405)
    for address, decision in product(addresses, ("", "yes", "APPROVE", "approve ", "revoke")):
        assert press(visitor, address, decision).status_code == 303
    assert steps.state(agent) == before


def test_a_form_from_another_site_is_refused(agent: Agent) -> None:
    _, address = request(agent)
    before = steps.state(agent)
    strict = Client(enforce_csrf_checks=True)
    assert press(strict, address, "approve").status_code == 403
    strict.get(address)
    assert strict.post(address, {"decision": "approve"}, headers={"Origin": "https://evil.test"}).status_code == 403
    assert steps.state(agent) == before


@pytest.mark.parametrize(("decision", "state"), [("approve", "active"), ("deny", "denied")])
def test_a_request_is_decided_once(agent: Agent, visitor: Client, decision: str, state: str) -> None:
    number, address = request(agent)
    response = press(visitor, address, decision)
    assert (response.status_code, response.headers["Location"]) == (303, address)
    decided = requests.find(fresh(agent), number)
    assert (decided.state, decided.decided_by) == (state, "steward")
    before = steps.state(agent)
    for again in ("approve", "deny", *(["revoke"] if state == "denied" else [])):
        assert press(visitor, address, again).status_code == 303
    assert steps.state(agent) == before
    text = page(visitor, address)
    assert buttons(text) == (["Revoke"] if state == "active" else [])
    assert f"The agent’s steward {'approved' if state == 'active' else 'denied'} this" in text
    assert problems(agent) == []


@pytest.mark.parametrize("by", ["steward", "runtime"])
def test_a_grant_is_revoked_with_the_same_link(agent: Agent, visitor: Client, by: str) -> None:
    number, address = request(agent)
    if by == "runtime":
        approval.approve(fresh(agent), number, ME)
    else:
        press(visitor, address, "approve")
    text = page(visitor, address)
    assert (f"The agent’s {by} approved this" in text, buttons(text)) == (True, ["Revoke"])
    granted_reads.memories(fresh(agent), number, PAT, [1])
    assert "has read content 1 time so far" in page(visitor, address)
    assert press(visitor, address, "revoke").status_code == 303
    with pytest.raises(errors.NotGranted):
        granted_reads.memories(fresh(agent), number, PAT, [1])
    text = page(visitor, address)
    assert ("was revoked on" in text, buttons(text)) == (True, [])


def test_an_expired_grant_is_displayed_as_expired(agent: Agent, visitor: Client, time_machine: Any) -> None:
    _, address = request(agent, seconds=900)
    press(visitor, address, "approve")
    time_machine.move_to(timezone.now() + timedelta(seconds=901))
    text = page(visitor, address)
    assert ("The access expired" in text, buttons(text)) == (True, [])


def test_after_72_hours_a_link_decides_nothing(agent: Agent, visitor: Client, time_machine: Any) -> None:
    """The row of a link does not change this, and a removal stays open for the runtime."""
    addresses, number = every_link(agent), fresh(agent).audit_seq
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    before = steps.state(agent)
    lapsed = ["Nobody decided in time, so the answer is no"] * 2 + ["has expired"] * 2
    for address, words in zip(addresses, lapsed, strict=True):
        text = page(visitor, address)
        assert (words in text, buttons(text)) == (True, [])
        assert press(visitor, address, "approve").status_code == 303
    ConsentLink.objects.update(made_at=timezone.now())
    for address in addresses[2:]:
        assert (visitor.get(address).status_code, press(visitor, address, "approve").status_code) == (404, 404)
    assert steps.state(agent) == before
    assert requests.find(fresh(agent), number).state == "open"


@pytest.mark.parametrize("address", [STEW, "STEW@Acme.Test", "stew+x@acme.test"])
def test_stewards_cannot_decide_about_their_own_requests(agent: Agent, visitor: Client, address: str) -> None:
    own = Actor.person(address)
    links = (request(agent, Person(2, address)), proposal(agent, own), redaction(agent, actor=own))
    for (_, where), what in zip(links, ("request", "proposal", "request"), strict=True):
        before = steps.state(agent)
        text = page(visitor, where)
        assert (f"You cannot decide about your own {what}" in text, buttons(text)) == (True, [])
        assert press(visitor, where, "approve").status_code == 303
        assert steps.state(agent) == before


def test_a_link_of_an_erased_silo_decides_nothing(agent: Agent, visitor: Client) -> None:
    links = [request(agent), proposal(agent)]
    signed_update(Agent.objects.all(), wrapped_key=b"")
    for _, address in links:
        text = page(visitor, address)
        assert ("was erased" in text, buttons(text)) == (True, [])
        assert press(visitor, address, "approve").status_code == 303
    assert requests.find(fresh(agent), links[0][0]).state == "requested"


def test_a_replaced_steward_still_sees_the_proposal_that_did_it(agent: Agent, visitor: Client) -> None:
    number, address = proposal(agent, steward="tom@acme.test")
    _, other = redaction(agent)
    assert press(visitor, address, "approve").status_code == 303
    assert fresh(agent).steward == "tom@acme.test"
    text = page(visitor, address)
    assert ("The agent’s steward approved this" in text, buttons(text)) == (True, [])
    assert press(visitor, address, "deny").status_code == 303
    assert requests.find(fresh(agent), number).state == "accepted"
    assert visitor.get(other).status_code == 404
    assert problems(agent) == []


def test_other_links_of_a_replaced_steward_are_404(agent: Agent, visitor: Client) -> None:
    addresses = every_link(agent)
    lifecycle.change(fresh(agent), ME, steward="new@acme.test")
    before = steps.state(agent)
    for address in addresses:
        for response in (visitor.get(address), *(press(visitor, address, word) for word in ("approve", "revoke"))):
            assert response.status_code == 404
    assert steps.state(agent) == before


@pytest.mark.parametrize(
    ("make", "end", "words"),
    [
        (proposal, lambda agent, number: requests.deny(agent, number, ADMIN), "proposer withdrew this proposal"),
        (proposal, lambda agent, number: requests.deny(agent, number, ME), "runtime denied this proposal"),
        (proposal, lambda agent, number: approval.approve(agent, number, ME), "runtime approved this change"),
        (proposal, lambda agent, _: requests.propose(agent, ADMIN, model="openai/x"), "A newer proposal replaced"),
        (redaction, lambda agent, number: requests.deny(agent, number, ADMIN), "requester withdrew this"),
        (redaction, lambda agent, number: redactions.redact(agent, number, ME), "runtime approved this"),
    ],
)
def test_the_page_tells_how_others_decided(agent: Agent, visitor: Client, make: Any, end: Any, words: str) -> None:
    number, address = make(agent)
    end(fresh(agent), number)
    before = steps.state(agent)
    text = page(visitor, address)
    assert (words in text, buttons(text)) == (True, [])
    assert press(visitor, address, "approve").status_code == 303
    assert steps.state(agent) == before


@pytest.mark.parametrize(
    ("make", "decision"), [(request, "approve"), (proposal, "approve"), (redaction, "approve"), (redaction, "deny")]
)
def test_a_decision_is_refused_after_sql_altered_the_request(
    agent: Agent, visitor: Client, make: Any, decision: str
) -> None:
    number, address = make(agent)
    drop_guards()
    AuditEntry.objects.filter(agent_id=agent.pk, seq=number).update(actor_label="other@else.test")
    before = steps.state(agent)
    for response in (visitor.get(address), press(visitor, address, decision)):
        refusal = response.content.decode()
        assert (response.status_code, MARKER in refusal, steps.state(agent)) == (409, False, before)
        assert "audit trail was altered after this" in refusal
        assert buttons(refusal) == []


def test_a_change_that_is_no_longer_possible_is_refused(agent: Agent, visitor: Client, monkeypatch: Any) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise errors.Invalid("model", "is not available")

    _, address = proposal(agent)
    monkeypatch.setattr(lifecycle, "change", refuse)
    response = press(visitor, address, "approve")
    assert (response.status_code, "is not available" in response.content.decode()) == (409, True)


def test_every_invalid_link_gets_the_same_404(agent: Agent, visitor: Client) -> None:
    _, address = request(agent)
    prefix, _, secret = address.removeprefix("/consent/").partition("_")
    changed = secret[:-1] + ("0" if secret[-1] != "0" else "1")
    before = steps.state(agent)
    bodies = set()
    tokens = ["", "x", "/", "a/b", "\n", "\0", "é_é", "%", "\U0001f600" * 50, "x" * 4_000, prefix, f"{prefix}_"]
    tokens += [f"_{secret}", f"{prefix}_{secret[:-1]}", f"{prefix}_{changed}", f"{prefix}_{secret}0"]
    tokens += [f"{prefix}_{secret}/", f"{prefix.upper()}_{secret}", f"{'a' * 12}_{secret}"]
    for path in (f"/consent/{quote(token)}" for token in tokens):
        for response in (visitor.get(path), press(visitor, path, "approve")):
            assert response.status_code == 404, path
            bodies.add(response.content)
    [body] = bodies
    assert b"This link is not valid" in body
    assert steps.state(agent) == before


def test_a_link_inserted_or_changed_by_sql_is_404(agent: Agent, bob: Agent, visitor: Client) -> None:
    _, address = request(agent)
    secret = address.partition("_")[2]
    row = ConsentLink.objects.get()
    row.pk, row.prefix = None, "a" * 12
    row.save()
    assert visitor.get(f"/consent/{'a' * 12}_{secret}").status_code == 404
    lifecycle.change(fresh(agent), ME, steward="new@else.test")
    with_link(agent, row.number)
    theirs = ConsentLink.objects.latest("pk").steward_mac
    ConsentLink.objects.filter(prefix=address.removeprefix("/consent/").partition("_")[0]).update(steward_mac=theirs)
    assert (visitor.get(address).status_code, press(visitor, address, "approve").status_code) == (404, 404)
    lifecycle.change(bob, ME, steward=STEW)
    other = requests.ask_to_read(fresh(bob), PAT, purpose=PURPOSE, scope=Scope("silo")).number
    ConsentLink.objects.exclude(prefix="a" * 12).update(agent_id=bob.pk, number=other)
    assert (visitor.get(address).status_code, press(visitor, address, "approve").status_code) == (404, 404)
    assert requests.find(fresh(bob), other).state == "requested"
