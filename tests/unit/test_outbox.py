"""Tenants send their letters to stewards in turn. A failure or a kill delays letters, and loses and doubles none."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from smtplib import SMTPRecipientsRefused
from types import SimpleNamespace
from typing import Any

import pytest
import time_machine
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.db import connection, transaction
from django.utils import timezone

from config.queue import SEND_LETTERS, Stopped, push
from memory.agents import lifecycle
from memory.mail import outbox, turns
from memory.models import Agent, Letter, LetterKind, Turn
from tests import queueing
from tests.conftest import House
from tests.steps import ME, fresh

SUE, TOM, EVE, AWAY = "sue@acme.test", "tom@acme.test", "eve@acme.test", "away@acme.test"
pytestmark = [pytest.mark.database, pytest.mark.django_db]


class Fails(EmailBackend):
    """A mail server that refuses mail to SUE, kills the worker that writes to EVE, and is away for mail to AWAY."""

    def send_messages(self, messages: Sequence[Any]) -> int:
        if fault := {SUE: SMTPRecipientsRefused({}), EVE: Stopped(), AWAY: OSError()}.get(messages[0].to[0]):
            raise fault
        return super().send_messages(messages)


def add(agent: Agent, steward: str, letters: int = 1) -> None:
    """Name a steward, who gets so many letters about it. The former steward gets one, too."""
    lifecycle.change(agent, ME, steward=steward)
    for _ in range(letters - 1):
        outbox.add(agent, LetterKind.AFTER, fresh(agent).audit_seq)


def sent_to() -> list[str]:
    return [message.to[0] for message in mail.outbox]


def test_others_wait_for_one_task_of_a_tenant_with_many_letters(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    add(house.ada, SUE, 200)
    add(house.bob, TOM)
    outbox.queue_late()
    assert [name for name, _ in queueing.waiting()] == [SEND_LETTERS] * 2
    queueing.work()
    assert sent_to() == [*[SUE] * 50, TOM, *[SUE] * 150]
    clock = count(0, 6)  # a letter takes six seconds
    monkeypatch.setattr(turns, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    add(house.ada, EVE, 2)
    add(house.bob, EVE)
    queueing.work()
    assert sent_to()[201:] == [SUE, TOM, EVE, EVE, EVE]


def test_a_letter_that_fails_does_not_hold_up_others(house: House, settings: Any) -> None:
    settings.EMAIL_BACKEND = "tests.unit.test_outbox.Fails"
    add(house.ada, SUE)
    add(house.ada, TOM)
    assert [code for _, code in queueing.work()] == ["put_off", "put_off", "sent"]
    outbox.queue_late()
    assert (queueing.waiting(), sent_to()) == ([], [TOM])


def test_letters_that_are_not_sent_wait_for_no_other_task(house: House) -> None:
    for number in range(3):
        Letter.objects.create(tenant=house.ada.tenant, agent_id=house.ada.pk, kind=9, number=number)
    add(house.ada, TOM)
    queueing.work()
    assert (sent_to(), Turn.objects.get().turn) == ([TOM], 1), "one task"


def test_while_the_mail_server_is_away_a_tenant_tries_one_letter_a_minute(house: House, settings: Any) -> None:
    settings.EMAIL_BACKEND = "tests.unit.test_outbox.Fails"
    add(house.ada, AWAY)
    add(house.ada, TOM)
    assert [code for _, code in queueing.work()] == ["away"]
    outbox.queue_late()
    assert (queueing.waiting(), sent_to()) == ([], [])
    for minute in (1, 2):
        with time_machine.travel(timezone.now() + minute * outbox.WAITS[0]):
            outbox.queue_late()
            queueing.work()
    assert sent_to() == [TOM]


def test_a_killed_worker_loses_and_doubles_no_letter(house: House, settings: Any) -> None:
    backend, settings.EMAIL_BACKEND = settings.EMAIL_BACKEND, "tests.unit.test_outbox.Fails"
    add(house.ada, TOM, 2)
    add(house.ada, EVE)
    [(name, numbers)] = queueing.waiting()
    with pytest.raises(Stopped):
        queueing.work()
    push(name, *numbers)  # the queue delivers the task of the dead worker again
    outbox.queue_late()
    assert (queueing.work(), sent_to(), Letter.objects.count()) == ([], [TOM] * 3, 1)
    settings.EMAIL_BACKEND = backend
    with time_machine.travel(timezone.now() + turns.LONGEST):
        outbox.queue_late()
        queueing.work()
    assert (sent_to(), Letter.objects.count()) == ([*[TOM] * 3, EVE], 0)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_two_changes_at_once_queue_one_task_and_do_not_wait_for_each_other(house: House) -> None:
    def change() -> None:
        with closing(connection):
            outbox.add(house.ada, LetterKind.LINK, 2)

    add(house.ada, SUE)
    queueing.work()
    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        outbox.add(house.ada, LetterKind.LINK, 1)
        pool.submit(change).result(20)
    assert len(queueing.waiting()) == 1
