"""Mail to the steward about changes of the agent. The steward before a change receives it too."""

import re
from collections.abc import Sequence
from smtplib import SMTPDataError
from typing import Any

import pytest
from django.conf import settings
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.utils import timezone

from audit.models import ActorKind, AuditEntry
from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import claims
from memory.errors import SealBroken
from memory.mail import letters as mail_letters
from memory.mail import outbox
from memory.models import Agent, AgentKey, Letter
from memory.silo.silo import Silo
from memory.time_machine import trail_view
from tests import queueing
from tests.access_requests import PURPOSE, ask
from tests.conftest import drop_guards
from tests.privacy import logbook
from tests.queueing import waiting, work
from tests.steps import ME, fresh, last_entry, problems, remember, signed_update

SUE, TOM = "sue@acme.test", "tom@acme.test"
CHANGED = "acme/ada: its steward was changed"


@pytest.fixture
def stewarded(ada: Agent) -> Agent:
    lifecycle.change(ada, ME, steward=SUE)
    sent_mail()
    return fresh(ada)


def sent_mail() -> list[Any]:
    """Run the queued tasks and return the new messages."""
    work()
    messages, mail.outbox[:] = list(mail.outbox), []
    return messages


def letters() -> list[tuple[str, str]]:
    return [(message.to[0], message.subject) for message in sent_mail()]


def key_of(agent: Agent) -> AgentKey:
    return AgentKey.objects.select_related("agent__tenant").filter(agent=agent, revoked_at=None).latest("pk")


def test_a_letter_names_the_change_its_time_and_its_actor(stewarded: Agent) -> None:
    lifecycle.change(stewarded, ME, model="openai/gpt-4.1")
    entry = last_entry(stewarded)
    [message] = sent_mail()
    assert message.from_email == settings.DEFAULT_FROM_EMAIL
    assert message.body == (
        "You receive this mail because you are the steward of the agent acme/ada. This has changed:\n\n"
        "- it has another model: openai/gpt-4.1\n\n"
        f"The agent's own runtime made this change on {entry.at:%d %B %Y at %H:%M} UTC. "
        f"It is entry {entry.seq} of the agent's audit trail.\n"
    )
    for number, kind in enumerate(ActorKind):
        lifecycle.change(fresh(stewarded), Actor(kind, "x"), model=f"openai/{number}")
    actors = {re.findall("(.*) made this change on ", message.body)[0] for message in sent_mail()}
    assert len(actors) == len(ActorKind)


def test_a_letter_names_an_embedder_because_it_reads_the_memories(stewarded: Agent) -> None:
    lifecycle.change(stewarded, ME, embedder="openai/text-embedding-3-small")
    assert "- this embedder reads its memories now, to search by meaning: openai/text-embed" in sent_mail()[-1].body
    lifecycle.change(fresh(stewarded), ME, embedder="")
    assert "- it has no embedder of its own any more" in sent_mail()[-1].body


def test_a_subject_is_one_line(stewarded: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    for model in ("openai/gpt\nX: y", "openai/gpt\x85", "openai/gpt "):
        with pytest.raises(lifecycle.Invalid, match="model: must have"):
            lifecycle.change(stewarded, ME, model=model)
    assert waiting() == []
    monkeypatch.setattr(lifecycle, "_clean", lambda *_: None)  # an old entry may hold a line break
    lifecycle.change(stewarded, ME, model="openai/gpt\r\nX:\x0by")
    assert letters() == [(SUE, "acme/ada: it has another model")]


@pytest.mark.parametrize("keep", [(), claims.CLEARED])
def test_letters_name_new_and_revoked_keys_and_hold_no_secret(stewarded: Agent, keep: tuple[str, ...]) -> None:
    lifecycle.create("acme", "eve", model="builtin/dedupe", actor=Actor.operator("cli"), steward=SUE)
    [(to, subject)] = letters()
    assert (to, subject.split(" (")[0]) == (SUE, "acme/eve: a key to its memory was created")
    secret = claims.exchange(key_of(stewarded), ME, keep=keep).key.split("_", 2)[2]
    messages = sent_mail()
    assert key_of(stewarded).prefix in messages[0].subject
    assert [message for message in messages if secret in message.body + message.subject] == []
    assert [message.subject.split(" (")[0] for message in messages] == [
        "acme/ada: a key to its memory was created",
        "acme/ada: a key to its memory was revoked",
        "acme/ada: its silo was claimed",
    ]


def test_other_changes_send_no_letter(stewarded: Agent) -> None:
    lifecycle.change(stewarded, ME, system_prompt="x", retention="0.80", paused=True, language="german")
    remember(stewarded, "tea")
    assert waiting() == []


def test_only_a_new_steward_reads_what_the_role_means(stewarded: Agent) -> None:
    lifecycle.change(stewarded, ME, steward=TOM)
    bodies = {message.to[0]: message.body for message in sent_mail()}
    role = "You are now its steward. You receive a link by mail when somebody asks to read"
    assert {to: role in body for to, body in bodies.items()} == {SUE: False, TOM: True}
    assert "If you do not want this role, tell the organisation that runs the agent." in bodies[TOM]


def test_a_late_letter_to_a_former_steward_does_not_explain_the_role(stewarded: Agent) -> None:
    for steward in (TOM, "eve@evil.test"):
        lifecycle.change(stewarded, ME, steward=steward)
    receivers = [message.to[0] for message in sent_mail() if "You are now its steward" in message.body]
    assert receivers == ["eve@evil.test"]


def test_a_first_and_a_last_steward_receive_a_letter(ada: Agent) -> None:
    for steward in (SUE, ""):
        lifecycle.change(ada, ME, steward=steward)
        assert letters() == [(SUE, CHANGED)]
    lifecycle.issue_key(ada, ME)
    assert waiting() == []


def test_a_late_letter_goes_to_the_steward_at_the_time_of_the_change(stewarded: Agent) -> None:
    """Otherwise the thief of a key could redirect the letter about it."""
    for steward in (TOM, "eve@evil.test"):
        lifecycle.issue_key(stewarded, ME)
        lifecycle.change(stewarded, ME, steward=steward)
    assert [to for to, _ in letters()] == [SUE, SUE, TOM, TOM, TOM, "eve@evil.test"]


def test_a_former_steward_whose_replacement_sql_hides_gets_no_later_letter(stewarded: Agent) -> None:
    replaced = lifecycle.change(stewarded, ME, steward=TOM).audit_seq
    lifecycle.change(fresh(stewarded), ME, model="builtin/archive")
    later = lifecycle.change(fresh(stewarded), ME, budget_tokens=9_000).audit_seq
    assert [to for to, _ in letters()][-1] == TOM
    drop_guards()
    entries = AuditEntry.objects.filter(agent_id=stewarded.pk)
    entries.filter(seq=replaced).update(operation="revised", detail={})
    entries.filter(seq=later).update(operation="agent_changed", detail={"changed": {"steward": "x"}})
    assert mail_letters.send(stewarded.pk, replaced + 1, mail_letters.BEFORE) == "altered"


def test_the_address_of_a_replaced_steward_is_sealed_in_the_trail(stewarded: Agent, bob: Agent) -> None:
    lifecycle.change(stewarded, ME, steward=TOM)
    entry = last_entry(stewarded)
    assert mail_letters.steward_before(fresh(stewarded), entry.seq) == SUE
    assert trail_view.note(fresh(stewarded), entry) == ""
    assert SUE not in f"{entry.detail}"
    assert problems(stewarded) == []
    assert entry.sealed is not None
    with pytest.raises(SealBroken):
        Silo.for_agent(bob).open_text("authority", entry.seq, bytes(entry.sealed))
    signed_update(Agent.objects.all(), wrapped_key=b"")
    assert work() == [("before", "erased"), ("after", "sent")]


def test_a_letter_that_sql_inserts_does_not_choose_a_former_steward(stewarded: Agent) -> None:
    lifecycle.change(stewarded, ME, steward=TOM)
    lifecycle.change(fresh(stewarded), ME, model="openai/secret")
    Letter.objects.filter(pk=Letter.objects.latest("pk").pk).update(kind=7)
    assert ([code for _, code in work()], len(mail.outbox)) == (["sent", "sent", "unknown"], 2)


class Refuses(EmailBackend):
    """A mail server that refuses each message and quotes it in the error."""

    def send_messages(self, messages: Sequence[Any]) -> int:
        raise SMTPDataError(550, f"{messages[0].to} {messages[0].body}".encode())


def _tries() -> list[tuple[str, int]]:
    """The result of each attempt to send the only letter, and the minutes until the next one."""
    found = []
    while Letter.objects.update(wait_until=timezone.now()):
        outbox.queue_late()
        [(_, code)] = work()
        waits = [(row.wait_until - timezone.now()).total_seconds() for row in Letter.objects.all()]
        found.append((code, round(sum(waits) / 60)))
    return found


def test_a_failed_letter_is_retried_a_few_times(stewarded: Agent, settings: Any) -> None:
    settings.EMAIL_BACKEND = "tests.unit.test_steward_mail.Refuses"
    lifecycle.issue_key(stewarded, ME)
    [(_, _, seq)] = queueing.letters()
    with logbook.kept() as log:
        tries = _tries()
    assert tries == [*(("put_off", minutes) for minutes in (1, 10, 60, 360)), ("given_up", 0)]
    assert log.text.count("letter not sent") == 5
    assert f'"seq": {seq}' in log.text
    assert "letter given up" in log.text
    assert SUE not in log.text
    assert "a key to its memory" not in log.text
    ask(stewarded)
    with logbook.kept() as log:
        assert _tries() == tries
    assert "letter given up" in log.text
    assert [text for text in ("/consent/", SUE, PURPOSE) if text in log.text] == []
