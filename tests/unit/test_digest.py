"""The digest by mail: who gets it, what it lists, and that it comes once in a period."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from smtplib import SMTPRecipientsRefused
from typing import Any

import pytest
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.urls import reverse
from django.utils import timezone

from audit.consent import LAPSES
from audit.models import AccessRequest
from config.queue import SEND_DIGESTS, SEND_WEBHOOKS, Stopped
from memory.accounts import memberships, people
from memory.agents import lifecycle
from memory.models import Agent, Digest, Person
from refinement import tasks
from refinement.models import RefinementSession
from refinement.notices import attention, digest, webhooks
from refinement.notices.models import OverBudget
from tests import queueing, refining, steps
from tests.access_requests import ask
from tests.admin.conftest import enrolled
from tests.hooks import fail
from tests.members import join
from tests.privacy.marker import MARKER
from tests.steps import PERSON, fresh

pytestmark = pytest.mark.database
DAY = timedelta(days=1)


@pytest.fixture
def pat(ada: Agent) -> Person:
    """An auditor of acme, who has chosen a daily digest."""
    person = Person.objects.create_user("pat@acme.test", None)
    join(person=person, tenant=ada.tenant, role="auditor")
    Person.objects.filter(pk=person.pk).update(digest=Digest.DAILY)
    return person


def send() -> list[Any]:
    """Queue the task as the service does every minute, run it, and return the new messages."""
    digest.queue_due()
    queueing.work()
    messages, mail.outbox[:] = list(mail.outbox), []
    return messages


def later(time: timedelta) -> None:
    """Let time pass since the last digest."""
    for person in Person.objects.exclude(digest_at=None):
        Person.objects.filter(pk=person.pk).update(digest_at=person.digest_at - time)


def url(name: str, *ids: int) -> str:
    return f"http://127.0.0.1:8000{reverse(f'admin:{name}', args=ids)}"


def test_a_digest_lists_what_needs_attention_in_the_persons_tenants(pat: Person, ada: Agent, bob: Agent) -> None:
    steps.remember(ada, f"{MARKER} likes tea")
    fail(bob)
    fail(ada)
    refining.fill(ada, 2, 100)
    refining.change(ada, budget_tokens=100, target_tokens=100)
    attention.watch()
    since = timezone.now() - DAY
    OverBudget.objects.update(since=since)
    ask(fresh(ada))
    lifecycle.suspend_keys(fresh(ada), PERSON)
    [message] = send()
    assert (message.to, message.subject) == (["pat@acme.test"], "Palimpsest: 1 agent needs attention")
    page = url("memory_agent_change", ada.pk)
    requests = f"{url('audit_accessrequest_changelist')}?agent=acme%2Fada&state__exact=requested"
    last = RefinementSession.objects.get(agent=ada)
    session = url("refinement_refinementsession_change", last.pk)
    until = AccessRequest.objects.get().asked_at + LAPSES
    assert message.body == (
        "You get this daily mail because you chose it at http://127.0.0.1:8000/admin/account/.\n\nacme\n\n"
        f"- acme/ada: 1 access request waits until {until:%d %B %Y at %H:%M} UTC. See:\n  {requests}\n"
        "- acme/ada: Its keys are suspended, so its runtime cannot store or read. Lift the suspension:\n"
        f"  {page}\n"
        f"- acme/ada: Its last session failed: model unavailable. (since {last.closed_at:%d %B %Y at %H:%M} UTC) "
        f"See the session:\n  {session}\n"
    )
    refining.change(ada, failures_in_a_row=0)
    later(DAY)
    [message] = send()
    assert f"- acme/ada: Over its budget: {fresh(ada).core_tokens} of 100 tokens" in message.body
    assert f"(since {since:%d %B %Y at %H:%M} UTC)" in message.body


def test_a_digest_comes_once_in_a_period(pat: Person, ada: Agent) -> None:
    fail(ada)
    assert [len(send()) for _ in range(2)] == [1, 0]
    later(DAY - timedelta(minutes=1))
    assert send() == []
    later(timedelta(minutes=1))
    assert len(send()) == 1
    Person.objects.update(digest=Digest.WEEKLY)
    for days in (6, 1):
        later(DAY * days)
        assert len(send()) == (days == 1)


def test_no_mail_is_sent_without_a_choice_without_news_or_while_mail_is_printed(
    pat: Person, ada: Agent, bob: Agent, settings: Any
) -> None:
    fail(bob)
    assert send() == [], "there is nothing to say"
    fail(ada)
    later(DAY)
    settings.EMAIL_BACKEND, real = "django.core.mail.backends.console.EmailBackend", settings.EMAIL_BACKEND
    digest.queue_due()
    assert (queueing.waiting(), digest.send_due()) == ([], "printed")
    settings.EMAIL_BACKEND = real
    Person.objects.update(digest=Digest.OFF)
    assert send() == []
    Person.objects.update(digest=Digest.DAILY, is_active=False)
    assert send() == []
    Person.objects.update(is_active=True)
    assert len(send()) == 1


def test_the_task_of_every_minute_queues_digests_and_deliveries(pat: Person, ada: Agent) -> None:
    webhooks.configure(ada.tenant, "https://hooks.test/")
    fail(ada)
    refining.fill(ada, 1, 100)
    refining.change(ada, budget_tokens=99, target_tokens=99)
    assert tasks.close_stale() == "closed"
    assert {SEND_DIGESTS, SEND_WEBHOOKS} <= {name for name, _ in queueing.waiting()}
    assert OverBudget.objects.get().pk == ada.pk


class Kills(EmailBackend):
    """The worker is stopped after the mail server got the message."""

    def send_messages(self, messages: Sequence[Any]) -> int:
        super().send_messages(messages)
        assert digest.send_due() == "sent", "another worker at the same time finds nothing to send"
        raise Stopped(1)


class Refuses(EmailBackend):
    """A mail server that refuses one address."""

    def send_messages(self, messages: Sequence[Any]) -> int:
        if "bad@acme.test" in messages[0].to:
            raise SMTPRecipientsRefused({})
        return super().send_messages(messages)


class Fails(EmailBackend):
    def send_messages(self, messages: Sequence[Any]) -> int:
        raise OSError("no connection")


def test_a_worker_that_is_killed_while_it_sends_causes_no_second_mail(pat: Person, ada: Agent, settings: Any) -> None:
    fail(ada)
    settings.EMAIL_BACKEND, real = f"{__name__}.Kills", settings.EMAIL_BACKEND
    with pytest.raises(Stopped):
        digest.send_due()
    settings.EMAIL_BACKEND = real
    assert len(mail.outbox) == 1
    assert len(send()) == 1, "the mail of the killed worker, and no other"


def test_who_is_deactivated_while_earlier_mails_are_sent_gets_none(
    pat: Person, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(ada)
    root = enrolled("root@acme.test", is_superuser=True)
    due = digest._due

    def late(now: datetime) -> list[Person]:
        found = list(due(now))
        people.set_active(pat, root, is_active=False)
        return found

    monkeypatch.setattr(digest, "_due", late)
    assert digest.send_due() == "sent"
    assert mail.outbox == []


@pytest.mark.parametrize("end", ["removed", "deactivated"])
def test_who_loses_the_right_while_their_digest_is_made_gets_none(
    pat: Person, ada: Agent, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    fail(ada)
    root = enrolled("root@acme.test", is_superuser=True)
    requests = attention.requests

    def late(*call: Any) -> Any:
        if end == "removed":
            memberships.set_role(ada.tenant_id, pat.pk, None)
        else:
            people.set_active(pat, root, is_active=False)
        return requests(*call)

    monkeypatch.setattr(attention, "requests", late)
    assert digest.send_due() == "sent"
    assert mail.outbox == []


def test_a_refused_address_does_not_delay_the_digests_of_others(pat: Person, ada: Agent, settings: Any) -> None:
    """61 such addresses of one tenant, tried again every hour, kept all others waiting."""
    bad = Person.objects.create_user("bad@acme.test", None)
    join(person=bad, tenant=ada.tenant, role="auditor")
    Person.objects.filter(pk=bad.pk).update(digest=Digest.WEEKLY, digest_at=timezone.now() - 8 * DAY)
    Person.objects.filter(pk=pat.pk).update(digest_at=timezone.now() - 2 * DAY)
    fail(ada)
    settings.EMAIL_BACKEND = f"{__name__}.Refuses"
    assert [mail.to for mail in send()] == [["pat@acme.test"]]
    later(digest.RETRY)
    assert send() == []


def test_a_mail_that_the_server_refuses_is_sent_an_hour_later(pat: Person, ada: Agent, settings: Any) -> None:
    fail(ada)
    settings.EMAIL_BACKEND, real = f"{__name__}.Fails", settings.EMAIL_BACKEND
    assert digest.send_due() == "put_off"
    settings.EMAIL_BACKEND = real
    assert send() == []
    later(digest.RETRY)
    assert [len(send()) for _ in range(2)] == [1, 0]
