"""The letter with a link: to the present steward alone, with what there is to decide, and the only token there is."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as configured
from django.core import mail
from django.utils import timezone
from django_q.models import Schedule

from audit.consent import Person, Scope
from audit.models import AccessRequest, ConsentLink
from audit.trail import Actor
from config.queue import ASK_STEWARD
from memory import tasks
from memory.agents import lifecycle
from memory.consent import grants, proposals, removal_requests
from memory.consent import links as steward_links
from memory.errors import Erased, MailNotSent
from memory.mail import wording
from memory.mail.letters import WAITS
from memory.models import Agent
from tests import steps
from tests.privacy import logbook
from tests.privacy.marker import MARKER, unique
from tests.privacy.watch import kept
from tests.queueing import waiting, work
from tests.steps import ME, fresh, problems, refused

PAT = Person(1, "pat@acme.test")
ADMIN = Actor.person("admin@acme.test")
SUE, TOM = "sue@elsewhere.test", "tom@elsewhere.test"
PURPOSE = "to see why it forgot the customer"
CONSOLE = "django.core.mail.backends.console.EmailBackend"


@pytest.fixture
def stewarded(ada: Agent) -> Agent:
    steps.remember(ada, f"{MARKER} tea", f"{MARKER} milk", tags=("jam",))
    Agent.objects.filter(pk=ada.pk).update(steward=SUE)
    return fresh(ada)


def ask(agent: Agent, person: Person = PAT, **more: Any) -> int:
    asked: dict[str, Any] = {"purpose": PURPOSE, "scope": Scope("silo")} | more
    return grants.ask(fresh(agent), person, **asked).number


def letters() -> list[Any]:
    work()
    sent, mail.outbox[:] = list(mail.outbox), []
    return sent


def token_of(message: Any) -> str:
    [token] = re.findall(r"/consent/(\S+)", message.body)
    return str(token)


# --- what it says


def test_a_request_is_mailed_with_a_link_that_decides(stewarded: Agent) -> None:
    number = ask(stewarded, scope=Scope("memories", numbers=(1, 2)), seconds=5_400)
    assert waiting() == [(ASK_STEWARD, (stewarded.pk, number))]
    [message] = letters()
    asked_at = grants.find(fresh(stewarded), number).asked_at
    assert (message.to, message.from_email) == ([SUE], configured.DEFAULT_FROM_EMAIL)
    assert message.subject == "acme/ada: pat@acme.test asks to read its memories"
    assert message.body == (
        "You receive this mail because you are the steward of the agent acme/ada.\n\n"
        "pat@acme.test asks to read 2 listed memories and their history (1, 2), for 1 hour and 30 minutes after your "
        "approval.\n\n"
        "Open this link to approve or deny:\n\n"
        f"    {configured.PUBLIC_URL}/consent/{token_of(message)}\n\n"
        f"The link is valid until {asked_at + timedelta(hours=72):%d %B %Y at %H:%M} UTC. Opening it decides nothing. "
        "If you do nothing, the answer is no. Do not share the link: anybody who has it can decide in your name.\n\n"
        "The reason, in the requester's own words. The service has not checked this text:\n\n"
        f"    \u201c{PURPOSE}\u201d\n"
    )
    steward_links.decide(token_of(message), approve=True)
    assert grants.find(fresh(stewarded), number).state == "active"


def test_a_proposal_is_mailed_likewise(stewarded: Agent) -> None:
    number = proposals.propose(stewarded, ADMIN, model="openai/gpt-4.1", steward=TOM).number
    assert waiting() == [(ASK_STEWARD, (stewarded.pk, number))]
    [message] = letters()
    assert message.to == [SUE]
    assert "admin@acme.test proposes this:" in message.body
    assert "- its model changes from builtin/dedupe to openai/gpt-4.1" in message.body
    assert f"- its steward changes from {SUE} to {TOM}" in message.body
    steward_links.decide(token_of(message), approve=False)
    assert proposals.find(fresh(stewarded), number).state == "declined"


def test_a_removal_is_mailed_likewise(stewarded: Agent) -> None:
    asked = removal_requests.ask_redaction(stewarded, [1, 2], ADMIN, reason="request 2026-114")
    assert waiting() == [(ASK_STEWARD, (stewarded.pk, asked.number))]
    [message] = letters()
    assert (message.to, message.subject) == ([SUE], "acme/ada: somebody asks to delete memories permanently")
    assert (
        "admin@acme.test asks to permanently delete the content of 2 memories, including their history (numbers 1, 2)."
        in (message.body)
    )
    assert message.body.endswith("\n\n    \u201crequest 2026-114\u201d\n")
    assert MARKER not in message.body
    steward_links.decide(token_of(message), approve=True)
    assert removal_requests.find(fresh(stewarded), asked.number).state == "carried_out"


def test_an_erasure_is_mailed_likewise_and_settles_what_else_was_asked(stewarded: Agent) -> None:
    first = removal_requests.ask_erasure(stewarded, ADMIN, reason="the contract ended")
    removal_requests.ask_erasure(
        fresh(stewarded), Actor.operator("erase_agent"), reason="once more", asked_by="jo@acme.test"
    )
    one, other = letters()
    assert "all its memories, present and past, by destroying their key" in one.body
    assert "an operator, for \u201cjo@acme.test\u201d asks to permanently delete" in other.body
    steward_links.decide(token_of(one), approve=True)
    assert not fresh(stewarded).wrapped_key
    assert removal_requests.find(fresh(stewarded), first.number).decided_by == "steward"
    assert [steward_links.look(token_of(each)).state for each in (one, other)] == ["carried_out", "settled"]
    with pytest.raises(Erased):
        steward_links.decide(token_of(other), approve=True)


def test_a_new_steward_is_mailed_the_removals_that_wait(stewarded: Agent) -> None:
    asked = removal_requests.ask_redaction(stewarded, [1], ADMIN, reason="request 2026-114").number
    letters()
    lifecycle.change(fresh(stewarded), ME, steward=TOM)
    links = [each for each in letters() if "/consent/" in each.body]
    assert [each.to for each in links] == [[TOM]]
    steward_links.decide(token_of(links[0]), approve=False)
    assert removal_requests.find(fresh(stewarded), asked).state == "declined"


def test_a_purpose_is_one_line_and_cannot_end_its_quotation(stewarded: Agent) -> None:
    ask(stewarded, purpose="to help you\r\n\r\nBcc: x\u2028\u201d\n\nSay yes here: https://evil.test/\u201d now")
    [message] = letters()
    assert message.body.endswith("\n\n    \u201cto help you Bcc: x ' Say yes here: https://evil.test/' now\u201d\n")
    assert message.body.index("/consent/") < message.body.index("evil.test")
    assert "\n" not in message.subject


def test_a_purpose_sets_no_direction_of_what_stands_around_it(stewarded: Agent) -> None:
    ask(stewarded, purpose="to help\u202e you, \u2066and you\u200f alone \u05e9\u05dc\u05d5\u05dd")
    [message] = letters()
    assert message.body.endswith("    \u201cto help you, and you alone \u05e9\u05dc\u05d5\u05dd\u201d\n")


def test_it_says_nothing_of_what_is_remembered(stewarded: Agent) -> None:
    ask(stewarded)
    proposals.propose(fresh(stewarded), ADMIN, model="openai/gpt-4.1")
    said = "".join(message.message().as_string() for message in letters())
    assert MARKER not in said
    assert "jam" not in said


# --- who gets one, and when none is sent


def test_an_agent_without_a_steward_is_asked_by_its_runtime_alone(ada: Agent) -> None:
    ask(ada)
    proposals.propose(fresh(ada), ADMIN, model="openai/gpt-4.1")
    assert waiting() == []


@pytest.mark.parametrize("address", [SUE, "SUE@Elsewhere.test", "sue+x@elsewhere.test"])
def test_who_asks_is_sent_no_link_to_their_own_request(stewarded: Agent, address: str) -> None:
    ask(stewarded, Person(3, address))
    proposals.propose(fresh(stewarded), Actor.person(address), model="openai/gpt-4.1")
    assert work() == [("ask_steward", "nobody_to_ask")] * 2
    assert not ConsentLink.objects.exists()


def test_what_is_over_when_its_turn_comes_is_not_sent(stewarded: Agent, time_machine: Any) -> None:
    decided, other = ask(stewarded), ask(stewarded, Person(2, "eve@acme.test"))
    proposed = proposals.propose(fresh(stewarded), ADMIN, model="openai/gpt-4.1").number
    grants.deny(fresh(stewarded), decided, ME)
    proposals.decline(fresh(stewarded), proposed, ME)
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    assert work() == [("ask_steward", "over")] * 3
    assert (mail.outbox, ConsentLink.objects.count()) == ([], 0)
    assert grants.find(fresh(stewarded), other).state == "requested"  # a letter that is not sent writes nothing


def test_an_erased_agent_or_an_unknown_request_sends_nothing(stewarded: Agent) -> None:
    ask(stewarded)
    Agent.objects.update(wrapped_key=b"")
    assert work() == [("ask_steward", "over")]
    for number in (1, 99, 10**18):
        assert tasks.ask_steward(stewarded.pk, number) == "unknown"
    assert mail.outbox == []


def test_a_new_steward_gets_links_of_their_own(stewarded: Agent) -> None:
    requested, decided = ask(stewarded), ask(stewarded, Person(2, "eve@acme.test"))
    proposed = proposals.propose(fresh(stewarded), ADMIN, model="openai/gpt-4.1").number
    grants.deny(fresh(stewarded), decided, ME)
    before = {token_of(message) for message in letters()}
    lifecycle.change(fresh(stewarded), ME, steward=TOM)
    sent = [message for message in letters() if "/consent/" in message.body]
    assert [message.to for message in sent] == [[TOM], [TOM]]
    about = [steward_links.look(token_of(message)).request.number for message in sent]
    assert about == [requested, proposed]
    for token in before:
        with pytest.raises(steward_links.errors.InvalidLink):
            steward_links.look(token)


# --- where the operator would read it


def test_with_mail_on_the_console_nothing_is_asked_of_a_steward(stewarded: Agent, bob: Agent, settings: Any) -> None:
    settings.EMAIL_BACKEND = CONSOLE
    with refused(stewarded, MailNotSent) as caught:
        ask(stewarded)
    assert "EMAIL_URL" in str(caught.value)
    with refused(stewarded, MailNotSent):
        proposals.propose(stewarded, ADMIN, model="openai/gpt-4.1")
    assert not AccessRequest.objects.exists()
    ask(bob)  # whose runtime decides
    settings.DEBUG = True
    ask(stewarded)


def test_nor_sent_where_it_was_set_so_meanwhile(stewarded: Agent, settings: Any) -> None:
    ask(stewarded)
    settings.EMAIL_BACKEND = CONSOLE
    assert work() == [("ask_steward", "mail_not_sent")]
    assert not ConsentLink.objects.exists()


# --- the token


def test_a_token_is_in_the_letter_and_nowhere_else(stewarded: Agent) -> None:
    with logbook.kept() as log:
        ask(stewarded)
        proposals.propose(fresh(stewarded), ADMIN, model="openai/gpt-4.1")
        secrets = [token_of(message).split("_", 1)[1] for message in letters()]
    assert len(secrets) == 2
    for secret in secrets:
        assert len(secret) == 64  # 256 bits
        assert secret not in log.text
        assert [where for where, said in kept() if secret.encode() in said] == []


def test_a_letter_that_fails_is_tried_again_a_few_times(stewarded: Agent, settings: Any) -> None:
    settings.EMAIL_BACKEND = "tests.unit.test_letters.Refuses"
    marker = unique().replace("ZEBRA", "OKAPI")  # a purpose is kept in the trail, and no memory
    number = ask(stewarded, purpose=f"{marker} {PURPOSE}")
    with logbook.kept() as log:
        done = [tasks.ask_steward(stewarded.pk, number, tried) for tried in range(len(WAITS) + 1)]
    assert done == ["put_off"] * 4 + ["given_up"]
    assert set(Schedule.objects.values_list("func", flat=True)) == {ASK_STEWARD}
    assert "letter given up" in log.text
    assert "/consent/" not in log.text
    assert SUE not in log.text
    assert marker not in log.text
    assert problems(stewarded) == []


def test_scopes_numbers_and_times_in_words() -> None:
    assert wording.scope(Scope("memories", numbers=(3,))) == "one memory and its history"
    assert wording.scope(Scope("session", session=7)) == "what session 7 changed, before and after the change"
    assert wording.scope(Scope("entries", first=1, last=2_000)).startswith("what audit entries 1 to 2,000 changed,")
    assert wording.numbered(range(1, 24)).endswith("19, 20 and 3 more")
    assert [wording.duration(seconds) for seconds in (900, 3_660)] == ["15 minutes", "1 hour and 1 minute"]
