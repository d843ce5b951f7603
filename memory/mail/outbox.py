"""The letters to stewards that wait to be sent.

A letter is stored in the transaction that causes it, and deleted when it is sent. So a kill loses no letter. A tenant
has one task in the queue, which sends a few of its letters, oldest first (`turns`).
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from smtplib import SMTPDataError, SMTPRecipientsRefused, SMTPSenderRefused

import structlog
from django.db import OperationalError
from django.db.models import QuerySet
from django.utils import timezone

from config.errors import DomainError
from config.queue import SEND_LETTERS
from memory.mail import turns
from memory.models import Agent, Letter, LetterKind

WAITS = tuple(timedelta(minutes=minutes) for minutes in (1, 10, 60, 360))  # the time before each retry
REFUSALS = (SMTPRecipientsRefused, SMTPSenderRefused, SMTPDataError)  # of one letter: the mail server works

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
    return Letter.objects.filter(turns.is_over(WAITS[-1]))


def _queue(tenant_id: int) -> None:
    turns.queue(f"letters/{tenant_id}", SEND_LETTERS, tenant_id)


def send(tenant_id: int, turn: int, posts: Posts) -> str:
    """Send a few of the tenant's letters that are due. `posts` has a function for each kind of letter. Returns a
    code."""

    def following() -> Letter | None:
        return _due().filter(tenant_id=tenant_id).order_by("tries", "pk").first()

    def step() -> str:
        letter = following()
        if letter is None:
            return "done"
        return "away" if _attempt(letter, posts) == "away" else "sent"

    code = turns.run(f"letters/{tenant_id}", turn, step)
    if following():
        _queue(tenant_id)
    return code


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
    except OperationalError:  # the agent is locked for long, so others have their turn
        return "put_off"
    except OSError as fault:  # includes errors of the mail server
        kind = type(fault).__name__  # without its text, which may have an address
        log.warning("letter not sent", agent=letter.agent_id, seq=letter.number, attempt=tried, error=kind)
        if tried <= len(WAITS):
            return "put_off" if isinstance(fault, REFUSALS) else "away"
        code = "given_up"
        log.error("letter given up", agent=letter.agent_id, seq=letter.number)
    letter.delete()
    return code
