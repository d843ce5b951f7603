"""The steward is told of every change the agent's side has to know of, by whoever was steward before it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.utils import timezone
from django_q.models import Schedule

from audit.models import ActorKind
from audit.trail import Actor
from memory import tasks
from memory.agents import lifecycle
from memory.errors import SealBroken
from memory.mail.letters import WAITS
from memory.models import Agent, AgentKey
from memory.silo.silo import Silo
from memory.time_machine import trail_view
from tests import steps
from tests.privacy import logbook
from tests.queueing import waiting, work
from tests.steps import ME, fresh, last_entry, problems

SUE, TOM = "sue@acme.test", "tom@acme.test"
BY_HAND = Actor.operator("cli")


@pytest.fixture
def stewarded(ada: Agent) -> Agent:
    Agent.objects.filter(pk=ada.pk).update(steward=SUE)
    return fresh(ada)


def letters() -> list[tuple[str, str]]:
    """Work off the queue; to whom was written, and about what."""
    work()
    sent = [(message.to[0], message.subject) for message in mail.outbox]
    mail.outbox.clear()
    return sent


def key_of(agent: Agent) -> AgentKey:
    return AgentKey.objects.select_related("agent__tenant").filter(agent=agent, revoked_at=None).latest("pk")


def test_a_first_key_is_told(db: None) -> None:
    lifecycle.create("acme", "eve", model="builtin/dedupe", actor=BY_HAND, steward=SUE)
    [(to, subject)] = letters()
    assert to == SUE
    assert subject.startswith("acme/eve: a key to its memory was created (")


def test_a_letter_says_what_when_and_by_whom(stewarded: Agent) -> None:
    lifecycle.change(stewarded, ME, model="openai/gpt-4.1")
    work()
    entry = last_entry(stewarded)
    [message] = mail.outbox
    assert message.from_email == settings.DEFAULT_FROM_EMAIL
    assert message.body == (
        "You receive this mail because you are the steward of the agent acme/ada. This has changed:\n\n"
        "- its model is now openai/gpt-4.1\n\n"
        f"The agent's own runtime made this change on {entry.at:%d %B %Y at %H:%M} UTC. "
        f"It is entry {entry.seq} of the agent's audit trail.\n"
    )


def test_every_kind_of_actor_is_named(stewarded: Agent) -> None:
    for number, kind in enumerate(ActorKind):
        lifecycle.change(fresh(stewarded), Actor(kind, "x"), model=f"openai/{number}")
    work()
    bodies = [message.body for message in mail.outbox]
    assert len({re.search("(.*) made this change on ", body)[1] for body in bodies}) == len(ActorKind)  # type: ignore[index]


def test_a_model_that_would_break_a_header_is_refused(stewarded: Agent) -> None:
    for model in ("openai/gpt\nX: y", "openai/gpt\x85", "openai/gpt "):
        with pytest.raises(lifecycle.Invalid, match="model: must have"):
            lifecycle.change(stewarded, ME, model=model)
    assert waiting() == []


def test_a_subject_is_one_line_whatever_was_set(stewarded: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an entry that was written when a model could still hold a line break."""
    monkeypatch.setattr(lifecycle, "_clean", lambda *_: None)
    lifecycle.change(stewarded, ME, model="openai/gpt\r\nX:\x0by")
    assert letters() == [(SUE, "acme/ada: its model is now openai/gpt X: y")]


def test_an_exchange_tells_of_the_new_key_and_of_those_that_end(stewarded: Agent) -> None:
    lifecycle.exchange_key(key_of(stewarded), ME)
    assert [subject.split(" (")[0] for _, subject in letters()] == [
        "acme/ada: a key to its memory was created",
        "acme/ada: a key to its memory was revoked",
        "acme/ada: its steward was changed",  # for who held the first key had named them
    ]


def test_a_secret_is_in_no_letter(stewarded: Agent) -> None:
    key = lifecycle.issue_key(stewarded, ME)
    prefix, secret = key_of(stewarded).prefix, key.split("_", 2)[2]
    work()
    [message] = mail.outbox
    assert prefix in message.subject
    assert secret not in message.body + message.subject


def test_other_settings_are_not_told(stewarded: Agent) -> None:
    lifecycle.change(stewarded, ME, system_prompt="x", retention="0.80", paused=True, language="german")
    steps.remember(stewarded, "tea")
    assert waiting() == []


def test_the_new_steward_alone_is_told_what_that_means(stewarded: Agent) -> None:
    lifecycle.change(stewarded, ME, steward=TOM)
    work()
    said = {
        message.to[0]: "You are now its steward. You receive a link by mail when somebody asks to read" in message.body
        for message in mail.outbox
    }
    assert said == {SUE: False, TOM: True}
    [body] = [message.body for message in mail.outbox if message.to == [TOM]]
    assert "If you do not want this role, tell the organisation that runs the agent." in body


def test_a_first_steward_and_a_last_one_are_told(ada: Agent) -> None:
    lifecycle.change(ada, ME, steward=SUE)
    assert letters() == [(SUE, "acme/ada: its steward was changed")]
    lifecycle.change(ada, ME, steward="")
    assert letters() == [(SUE, "acme/ada: its steward was changed")]
    lifecycle.issue_key(ada, ME)
    assert waiting() == []


def test_who_was_steward_is_told_however_late_the_letter_is_sent(stewarded: Agent) -> None:
    """A thief of a key could otherwise have the letter about it sent to an address of their own."""
    lifecycle.issue_key(stewarded, ME)
    lifecycle.change(stewarded, ME, steward=TOM)
    lifecycle.issue_key(stewarded, ME)
    lifecycle.change(stewarded, ME, steward="eve@evil.test")
    assert [to for to, _ in letters()] == [SUE, SUE, TOM, TOM, TOM, "eve@evil.test"]


def test_whom_a_steward_replaced_is_sealed_in_the_trail(stewarded: Agent) -> None:
    lifecycle.change(stewarded, ME, steward=TOM)
    entry = last_entry(stewarded)
    assert trail_view.note(fresh(stewarded), entry) == SUE
    assert SUE not in f"{entry.detail}"
    assert problems(stewarded) == []


def test_the_steward_of_an_erased_agent_is_not_known_any_more(stewarded: Agent) -> None:
    lifecycle.change(stewarded, ME, steward=TOM)
    Agent.objects.update(wrapped_key=b"")
    assert work() == [("tell_steward", "erased"), ("tell_steward", "sent")]


class Refuses(EmailBackend):
    """A mail server that takes nothing, and says why with all it was given."""

    def send_messages(self, messages: Sequence[Any]) -> int:
        raise OSError(f"550 {messages[0].to} {messages[0].body}")


def test_a_letter_that_fails_is_tried_again_a_few_times(stewarded: Agent, settings: Any) -> None:
    settings.EMAIL_BACKEND = "tests.unit.test_letters.Refuses"
    lifecycle.issue_key(stewarded, ME)
    [(_, numbers)] = waiting()
    done = []
    with logbook.kept() as log:
        for tried in range(len(WAITS) + 1):
            done.append(tasks.tell_steward(*numbers, tried))
            expected = WAITS[tried] if tried < len(WAITS) else None
            assert _next_in() == expected
    assert done == ["put_off"] * 4 + ["given_up"]
    assert log.text.count("letter not sent") == 5
    assert f'"seq": {numbers[1]}' in log.text
    assert "letter given up" in log.text
    assert SUE not in log.text
    assert "issued" not in log.text


def _next_in() -> timedelta | None:
    """How long the next attempt waits, to the minute; it is taken away."""
    row = Schedule.objects.first()
    if row is None:
        return None
    row.delete()
    return timedelta(minutes=round((row.next_run - timezone.now()).total_seconds() / 60))


def test_the_note_needs_the_agents_own_key(stewarded: Agent, bob: Agent) -> None:
    lifecycle.change(stewarded, ME, steward=TOM)
    sealed = last_entry(stewarded).sealed
    assert sealed is not None
    with pytest.raises(SealBroken):
        Silo.for_agent(bob).open_text("note", last_entry(stewarded).seq, bytes(sealed))
