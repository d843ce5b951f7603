"""Sessions of talk that nobody ended, and in which nothing is said any more: they are over after half an hour, and have
their memory then, though no other begins in their project (seed 004, "Session Memory").

Automatic work: what is switched off is skipped without a word.
"""

from __future__ import annotations

import structlog
from django.db import OperationalError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from audit.patience import wait_at_most
from audit.trail import Actor
from config.errors import DomainError
from memory.models import Agent, RecordedSession
from memory.recording import sessions
from memory.writing import edits

log = structlog.get_logger("palimpsest.recording")

SYSTEM = Actor.system("recording")
AT_ONCE = 200  # sessions
PATIENCE = 1  # seconds for an agent that somebody else holds
# In rules as they are kept. Whoever has a key of their own by this name has their sessions ended by the next one alone.
_UNBOUNDED = '"session_boundary_detection": false'


def end_quiet() -> int:
    """End the sessions that are over; how many were. For a task that comes every five minutes: who is due is one query,
    and those that fell silent last are the first, so that one that cannot be ended keeps none waiting."""
    ended = 0
    for session in list(_due()[:AT_ONCE]):
        try:
            with transaction.atomic():
                wait_at_most(PATIENCE)
                ended += _ended(session)
        except (DomainError, OperationalError) as failure:  # its key is missing, an import holds it, …
            log.warning("quiet session not ended", agent=session.agent_id, error=type(failure).__name__)
    return ended


def _due() -> QuerySet[RecordedSession]:
    open_ones = RecordedSession.objects.filter(ended_at=None, last_at__lte=timezone.now() - sessions.QUIET)
    able = open_ones.filter(agent__memory_enabled=True).exclude(agent__wrapped_key=b"")
    return able.exclude(agent__rules__contains=_UNBOUNDED).select_related("agent__tenant").order_by("-last_at", "-pk")


def _ended(found: RecordedSession) -> bool:
    """Once its agent is locked: somebody may have gone on with it, or have switched memory off."""
    with edits.locked(found.agent) as row:
        session = RecordedSession.objects.filter(pk=found.pk, agent_id=row.pk, ended_at=None).first()
        if session is None or not _may_be_ended(row, session):
            return False
        sessions.end(row, session, SYSTEM)
        return True


def _may_be_ended(row: Agent, session: RecordedSession) -> bool:
    return row.memory_enabled and bool(row.wrapped_key) and sessions.is_quiet(row, session, timezone.now())
