"""The letters to stewards that wait to be sent.

A letter is stored in the transaction that causes it, and deleted when it is sent. So a kill loses no letter. A tenant
has one task in the queue. The task sends a few of the tenant's letters, oldest first, and then queues the next task. So
the letters, sessions and webhooks of other tenants wait for a few letters of each tenant at most.
"""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from smtplib import SMTPDataError, SMTPRecipientsRefused, SMTPSenderRefused

import structlog
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from config.errors import DomainError
from config.queue import SEND_LETTERS, is_ending, put
from memory.models import Agent, Letter, LetterKind, Outbox

WAITS = tuple(timedelta(minutes=minutes) for minutes in (1, 10, 60, 360))  # the time before each retry
TURN = timedelta(minutes=2)  # after this time without progress, the task is queued again
REFUSALS = (SMTPRecipientsRefused, SMTPSenderRefused, SMTPDataError)  # of one letter: the mail server works
AT_ONCE, TASK_SECONDS = 50, 10.0  # letters and seconds, after which other tasks of the queue get their turn

Posts = Mapping[LetterKind, Callable[[int, int], str]]
log = structlog.get_logger("palimpsest.mail")


def add(agent: Agent, kind: LetterKind, number: int) -> None:
    """Store a letter, and queue the tenant's task. Call this function in the transaction that causes the letter."""
    Letter.objects.create(tenant_id=agent.tenant_id, agent_id=agent.pk, kind=kind, number=number)
    _queue(agent.tenant_id)


def queue_late() -> None:
    """Queue the task of each tenant with letters that are due, unless it is queued or a worker sends them."""
    for tenant_id in set(_due().values_list("tenant_id", flat=True)):
        _queue(tenant_id)


def _due() -> QuerySet[Letter]:
    return Letter.objects.filter(_is_over(WAITS[-1]))


def _is_over(longest: timedelta) -> Q:
    """Whether a wait is over. A wait that ends too far in the future comes from a wrong clock."""
    now = timezone.now()
    return Q(wait_until__lte=now) | Q(wait_until__gt=now + longest)


def _queue(tenant_id: int) -> None:
    """Queue the tenant's task, unless it is queued, or another transaction queues it now."""
    with transaction.atomic():
        Outbox.objects.get_or_create(tenant_id=tenant_id)
        rows = Outbox.objects.filter(_is_over(TURN), pk=tenant_id)
        for outbox in rows.select_for_update(skip_locked=True, no_key=True):
            rows.update(wait_until=timezone.now() + TURN)
            put(SEND_LETTERS, tenant_id, outbox.turn)


def send(tenant_id: int, turn: int, posts: Posts) -> str:
    """Send a few of the tenant's letters that are due. `posts` has a function for each kind of letter. Returns a code.
    If the queue delivers the task twice, the second delivery does nothing."""
    if not Outbox.objects.filter(pk=tenant_id, turn=turn).update(turn=turn + 1):
        return "taken"
    mine, until = Outbox.objects.filter(pk=tenant_id, turn=turn + 1), time.monotonic() + TASK_SECONDS
    for _ in range(AT_ONCE):
        if not mine.update(wait_until=timezone.now() + TURN):
            return "taken"
        letter = _due().filter(tenant_id=tenant_id).order_by("tries", "pk").first()
        if letter is None or is_ending() or time.monotonic() > until:
            break
        if _attempt(letter, posts) == "away":
            mine.update(wait_until=timezone.now() + WAITS[0])
            return "away"
    mine.update(wait_until=timezone.now())
    if _due().filter(tenant_id=tenant_id).exists():
        _queue(tenant_id)
    return "sent"


def _attempt(letter: Letter, posts: Posts) -> str:
    """Try to send a letter. Returns a code. The next attempt is set before this one. So a letter that fails or ends the
    worker does not hold up others, and is not tried for ever. If the mail server is away, the code is "away"."""
    row, tried = Letter.objects.filter(pk=letter.pk, tries=letter.tries), letter.tries + 1
    if not row.update(tries=tried, wait_until=timezone.now() + WAITS[min(tried, len(WAITS)) - 1]):
        return "taken"
    post = posts.get(LetterKind(letter.kind)) if letter.kind in LetterKind.values else None
    if post is None:  # SQL made the row
        letter.delete()
        return "unknown"
    try:
        code = post(letter.agent_id, letter.number)
    except DomainError as failure:
        code = failure.code
        log.error("letter not sent", agent=letter.agent_id, seq=letter.number, code=code)
    except OSError as fault:  # includes errors of the mail server
        kind = type(fault).__name__  # without its text, which may have an address
        log.warning("letter not sent", agent=letter.agent_id, seq=letter.number, attempt=tried, error=kind)
        if tried <= len(WAITS):
            return "put_off" if isinstance(fault, REFUSALS) else "away"
        code = "given_up"
        log.error("letter given up", agent=letter.agent_id, seq=letter.number)
    letter.delete()
    return code
