"""A mail to each person who chose it, about the agents that need attention. It has names, numbers and reasons only."""

import time
from datetime import datetime, timedelta
from itertools import groupby
from smtplib import SMTPDataError, SMTPRecipientsRefused

import structlog
from django.conf import settings
from django.core.mail import get_connection, send_mail
from django.db.models import Q, QuerySet
from django.utils import timezone

from config.queue import SEND_DIGESTS, is_ending, put
from config.wording import several
from memory.access.roles import Action, tenant_ids
from memory.mail import letters
from memory.models import Digest, Person
from refinement.notices import attention

PERIODS = {Digest.DAILY: timedelta(days=1), Digest.WEEKLY: timedelta(days=7)}
RETRY = timedelta(hours=1)  # after the mail server failed
MOST = 50  # agents in a mail
TASK_SECONDS = 20.0  # then other tasks of the queue get their turn

log = structlog.get_logger("palimpsest.mail")


def queue_due() -> None:
    """Queue the task that mails digests, if one is due."""
    if not letters.are_printed() and _due(timezone.now()).exists():
        put(SEND_DIGESTS)


def send_due() -> str:
    """Mail the digests that are due, for TASK_SECONDS at most. Returns a code.

    The date of the digest is stored before its mail is sent. So a person gets one mail in a period, also if the worker
    is killed or the task runs twice.
    """
    if letters.are_printed():
        return "printed"
    until = time.monotonic() + TASK_SECONDS
    for person in _due(timezone.now()):
        if is_ending() or time.monotonic() > until:
            break
        now = timezone.now()
        row = Person.objects.filter(pk=person.pk, digest=person.digest, generation=person.generation)
        if not row.filter(digest_at=person.digest_at).update(digest_at=now):
            continue
        try:
            _send(person)
        except (SMTPRecipientsRefused, SMTPDataError):  # the mail server may accept the mails to others
            log.warning("digest refused", number=person.pk)
        except OSError:  # includes errors of the mail server
            log.warning("digest not sent", number=person.pk)
            row.filter(digest_at=now).update(digest_at=now - PERIODS[Digest(person.digest)] + RETRY)
            return "put_off"
    return "sent"


def _due(now: datetime) -> QuerySet[Person]:
    late = Q()
    for digest, period in PERIODS.items():
        is_late = Q(digest_at=None) | Q(digest_at__lte=now - period)
        late |= Q(digest=digest) & (is_late | Q(digest_at__gt=now + RETRY))  # the clock was ahead
    return Person.objects.filter(late, is_active=True).order_by("digest_at", "pk")


def _send(person: Person) -> None:
    """Mail a person what needs attention, if there is something, and if they may still see it."""
    tenants = tenant_ids(person)[Action.SEE]
    found = [(item.agent.label, _text(item), item.path) for item in attention.items(tenants, MOST)]
    asked = attention.requests(tenants, MOST)
    found += [(each.label, f"{each.text} {each.word} {_utc(each.time)}. See", each.path) for each in asked]
    found.sort()
    if not found:
        return
    parts = [f"You get this {person.digest} mail because you chose it at {settings.PUBLIC_URL}/admin/account/.\n"]
    for tenant, items in groupby(found, lambda item: item[0].partition("/")[0]):
        lines = "\n".join(f"- {agent}: {text}:\n  {settings.PUBLIC_URL}{path}" for agent, text, path in items)
        parts.append(f"{tenant}\n\n{lines}\n")
    if len(found) >= MOST:
        parts.append(f"This mail lists at most {MOST} agents.\n")
    agents = several(len({agent for agent, _, _ in found}), "agent needs", "agents need")
    with get_connection() as server:  # it may take long, and so may the search
        now = Person.objects.filter(pk=person.pk, email=person.email, generation=person.generation).first()
        if now and {*tenants} <= {*tenant_ids(now)[Action.SEE]}:
            send_mail(f"Palimpsest: {agents} attention", "\n".join(parts), None, [person.email], connection=server)


def _text(item: attention.Item) -> str:
    since = f" (since {_utc(item.since)})" if item.since else ""
    return f"{item.why}{since} {item.advice}"


def _utc(time: datetime) -> str:
    return f"{time:%d %B %Y at %H:%M} UTC"
