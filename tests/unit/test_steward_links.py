"""Mail with a link to decide: only the present steward receives it, and only the mail holds the token."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as configured
from django.core import mail
from django.utils import timezone

from audit.consent import Person, Scope
from audit.models import AccessRequest, ConsentLink
from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import links as steward_links
from memory.consent import requests
from memory.errors import Erased, MailNotSent
from memory.mail import link_letters, wording
from memory.models import Agent, LetterKind
from memory.writing import edits
from tests import queueing
from tests.access_requests import EVE, PAT, PURPOSE
from tests.access_requests import ask as ask_to_read
from tests.privacy import logbook
from tests.privacy.marker import MARKER
from tests.privacy.watch import kept
from tests.queueing import waiting, work
from tests.steps import ME, fresh, refused, remember, signed_update
from tests.unit.test_steward_mail import sent_mail

ADMIN = Actor.person("admin@acme.test")
SUE, TOM = "sue@elsewhere.test", "tom@elsewhere.test"
CONSOLE = "django.core.mail.backends.console.EmailBackend"


@pytest.fixture
def stewarded(ada: Agent) -> Agent:
    remember(ada, f"{MARKER} tea", f"{MARKER} milk", tags=("jam",))
    signed_update(Agent.objects.filter(pk=ada.pk), steward=SUE)
    return fresh(ada)


def ask(agent: Agent, person: Person = PAT, **fields: Any) -> int:
    return ask_to_read(agent, person, **fields).number


def propose(agent: Agent, **fields: Any) -> int:
    return requests.propose(fresh(agent), ADMIN, **{"model": "openai/gpt-4.1"} | fields).number


def ask_redaction(agent: Agent, *numbers: int) -> int:
    return requests.ask_redaction(agent, numbers, ADMIN, reason="request 2026-114").number


def links_sent() -> list[Any]:
    return [message for message in sent_mail() if "/consent/" in message.body]


def token_of(message: Any) -> str:
    [token] = re.findall(r"/consent/(\S+)", message.body)
    return str(token)


def decide(message: Any, *, approve: bool) -> None:
    steward_links.decide(token_of(message), approve=approve)


def test_a_request_is_mailed_with_a_link_that_decides(stewarded: Agent) -> None:
    number = ask(stewarded, scope=Scope("memories", numbers=(1, 2)), seconds=5_400)
    assert queueing.letters() == [(LetterKind.LINK, stewarded.pk, number)]
    [message] = sent_mail()
    asked_at = requests.find(fresh(stewarded), number).asked_at
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
    decide(message, approve=True)
    assert requests.find(fresh(stewarded), number).state == "active"


def test_one_memory_and_many_numbers_in_words() -> None:
    assert wording.scope(Scope("memories", numbers=(3,))) == "one memory and its history"
    assert wording.numbered(range(1, 24)).endswith(" 19, 20 and 3 more")


def test_a_proposal_and_a_redaction_are_mailed_with_links(stewarded: Agent) -> None:
    proposal, removal = propose(stewarded, steward=TOM), ask_redaction(fresh(stewarded), 1, 2)
    assert queueing.letters() == [(LetterKind.LINK, stewarded.pk, number) for number in (proposal, removal)]
    messages = sent_mail()
    assert [message.to for message in messages] == [[SUE], [SUE]]
    assert messages[1].subject == "acme/ada: somebody asks to delete memories permanently"
    expected = [
        "admin@acme.test proposes this:",
        "- its model changes from builtin/dedupe to openai/gpt-4.1",
        f"- its steward changes from {SUE} to {TOM}",
    ]
    assert [text for text in expected if text not in messages[0].body] == []
    request = "asks to permanently delete the content of 2 memories, including their history (numbers 1, 2)."
    assert f"admin@acme.test {request}" in messages[1].body
    assert messages[1].body.endswith("\n\n    \u201crequest 2026-114\u201d\n")
    assert MARKER not in messages[1].body
    decide(messages[0], approve=False)
    decide(messages[1], approve=True)
    assert requests.find(fresh(stewarded), proposal).state == "declined"
    assert requests.find(fresh(stewarded), removal).state == "carried_out"


def test_an_erasure_is_mailed_with_a_link_and_settles_the_other_requests(stewarded: Agent) -> None:
    first = requests.ask_erasure(stewarded, ADMIN, reason="the contract ended")
    operator = Actor.operator("erase_agent")
    requests.ask_erasure(fresh(stewarded), operator, reason="once more", asked_by="jo@acme.test")
    one, other = sent_mail()
    assert "all its memories, present and past, by destroying their key" in one.body
    assert "an operator, for \u201cjo@acme.test\u201d asks to permanently delete" in other.body
    decide(one, approve=True)
    assert not fresh(stewarded).wrapped_key
    assert requests.find(fresh(stewarded), first.number).decided_by == "steward"
    assert [steward_links.look(token_of(each)).request.state for each in (one, other)] == ["carried_out", "settled"]
    with pytest.raises(Erased):
        decide(other, approve=True)


@pytest.mark.parametrize(
    ("purpose", "quoted"),
    [
        (
            "to help you\r\n\r\nBcc: x\u2028\u201d\n\nSay yes here: https://evil.test/\u201d now",
            "to help you Bcc: x ' Say yes here: https://evil.test/' now",
        ),
        (
            "to help\u202e you, \u2066and you\u200f alone \u05e9\u05dc\u05d5\u05dd",
            "to help you, and you alone \u05e9\u05dc\u05d5\u05dd",
        ),
    ],
)
def test_a_purpose_is_one_quoted_line_at_the_end(stewarded: Agent, purpose: str, quoted: str) -> None:
    """It cannot end its quotation, and it cannot change the direction of the text around it."""
    ask(stewarded, purpose=purpose)
    [message] = sent_mail()
    assert message.body.endswith(f"\n\n    \u201c{quoted}\u201d\n")
    assert message.body.index("/consent/") < message.body.index(quoted)
    assert "\n" not in message.subject


def test_only_an_agent_with_a_steward_causes_mail(ada: Agent) -> None:
    ask(ada)
    propose(ada)
    assert waiting() == []


@pytest.mark.parametrize("address", [SUE, "SUE@Elsewhere.test", "sue+x@elsewhere.test"])
def test_a_steward_receives_no_link_to_their_own_request(stewarded: Agent, address: str) -> None:
    ask(stewarded, Person(3, address))
    requests.propose(fresh(stewarded), Actor.person(address), model="openai/gpt-4.1")
    assert work() == [("link", "nobody_to_ask")] * 2
    assert not ConsentLink.objects.exists()


def test_a_settled_lapsed_erased_or_unknown_request_is_not_mailed(stewarded: Agent, time_machine: Any) -> None:
    denied, lapsed = ask(stewarded), ask(stewarded, EVE)
    requests.deny(fresh(stewarded), denied, ME)
    requests.deny(fresh(stewarded), propose(stewarded), ME)
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    assert (work(), mail.outbox, ConsentLink.objects.count()) == ([("link", "over")] * 3, [], 0)
    assert requests.find(fresh(stewarded), lapsed).state == "requested"  # the task writes nothing
    for number in (1, 99, 10**18):
        assert link_letters.send(stewarded.pk, number) == "unknown"
    signed_update(Agent.objects.all(), wrapped_key=b"")
    assert link_letters.send(stewarded.pk, lapsed) == "over"
    assert mail.outbox == []


def test_a_new_steward_receives_new_links_to_the_open_requests(stewarded: Agent) -> None:
    requested, denied = ask(stewarded), ask(stewarded, EVE)
    open_requests = [requested, propose(stewarded), ask_redaction(fresh(stewarded), 1)]
    requests.deny(fresh(stewarded), denied, ME)
    old_tokens = {token_of(message) for message in sent_mail()}
    lifecycle.change(fresh(stewarded), ME, steward=TOM)
    messages = links_sent()
    assert [message.to for message in messages] == [[TOM]] * 3
    assert [steward_links.look(token_of(message)).request.number for message in messages] == open_requests
    for token in old_tokens:
        with pytest.raises(steward_links.errors.InvalidLink):
            steward_links.look(token)
    decide(messages[2], approve=False)
    assert requests.find(fresh(stewarded), open_requests[2]).state == "declined"


def test_a_link_is_mailed_to_the_steward_for_whom_it_is_made(stewarded: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steward changes while the task waits for the lock of the agent's row."""
    number, real = ask(stewarded), edits._locking

    def waited(agent_id: int) -> list[Agent]:
        monkeypatch.setattr(edits, "_locking", real)
        signed_update(Agent.objects.filter(pk=agent_id), steward=TOM)
        return real(agent_id)

    monkeypatch.setattr(edits, "_locking", waited)
    assert link_letters.send(stewarded.pk, number) == "sent"
    assert [message.to for message in mail.outbox] == [[TOM]]
    decide(mail.outbox[0], approve=False)


def test_with_console_mail_a_request_to_a_steward_is_refused(stewarded: Agent, bob: Agent, settings: Any) -> None:
    """An operator could read the link on the console."""
    settings.EMAIL_BACKEND = CONSOLE
    with refused(stewarded, MailNotSent) as caught:
        ask(stewarded)
    assert "EMAIL_URL" in str(caught.value)
    with refused(stewarded, MailNotSent):
        propose(stewarded)
    assert not AccessRequest.objects.exists()
    ask(bob)  # without a steward the runtime decides
    settings.DEBUG = True
    ask(stewarded)
    settings.DEBUG = False
    assert work() == [("link", "mail_not_sent")]
    assert not ConsentLink.objects.exists()


def test_a_token_is_only_in_the_mail_and_the_mail_holds_no_memory(stewarded: Agent) -> None:
    with logbook.kept() as log:
        ask(stewarded)
        propose(stewarded)
        messages = sent_mail()
    secrets = [token_of(message).split("_", 1)[1] for message in messages]
    assert [len(secret) for secret in secrets] == [64, 64]  # 256 bits
    for secret in secrets:
        assert secret not in log.text
        assert [place for place, data in kept() if secret.encode() in data] == []
    text = "".join(message.message().as_string() for message in messages)
    assert MARKER not in text
    assert "jam" not in text


def test_each_decision_of_a_steward_is_confirmed(ada: Agent) -> None:
    remember(ada, f"{MARKER} tea")
    lifecycle.change(ada, ME, steward=SUE)
    work()
    mail.outbox.clear()
    ask(ada)
    ask(ada, EVE)
    ask_redaction(ada, 1)
    propose(ada, steward=TOM)
    assert work() == [("link", "sent")] * 4
    for message, approve in zip(links_sent(), (False, True, True, True), strict=True):
        decide(message, approve=approve)
    requests.ask_erasure(fresh(ada), ADMIN, reason="the contract ended")
    assert work().count(("decision", "sent")) == 4
    sent = sent_mail()
    decide(next(message for message in sent if "delete memories" in message.subject), approve=True)
    assert work() == [("decision", "sent")]
    letters = [message for message in [*sent, *sent_mail()] if ": you " in message.subject]
    assert [message.to for message in letters] == [[SUE]] * 4 + [[TOM]], "the steward who decided"
    for letter, (decision, *words) in zip(letters, CONFIRMED, strict=True):
        assert letter.subject == f"acme/ada: you {decision} a request"
        assert [text for text in words if text not in letter.body] == []
        assert not [text for text in (MARKER, PURPOSE, "/consent/", "contract") if text in letter.body]
    assert link_letters.confirm(ada.pk, 1) == "unknown"


CONFIRMED = [
    ("denied", f"{PAT.address} asked to read all its memories, present and past.", "gives nobody access"),
    ("approved", f"{EVE.address} asked", "The access holds until", " UTC. To revoke it earlier, open the link"),
    ("approved", "to permanently delete the content of one memory, including its history.", "Nobody can restore it."),
    ("approved", f"for this change: its model: openai/gpt-4.1; its steward: {TOM}", "The change is made."),
    ("approved", "to permanently delete all its memories", "Nobody can restore it."),
]
