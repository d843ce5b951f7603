"""Sessions of talk that nobody ended, and in which nothing is said any more: they are over after half an hour, and have
their memory then, though no other begins in their project (seed 004, "Session Memory").

Automatic work: what is switched off is skipped without a word.
"""

from __future__ import annotations

from functools import partial

from django.db.models import QuerySet
from django.utils import timezone

from audit.trail import Actor
from memory.models import Agent, RecordedSession
from memory.recording import sessions
from memory.recording.automatic import attempt
from memory.writing import edits

SYSTEM = Actor.system("recording")
AT_ONCE = 200  # sessions
# In rules as they are kept. If an agent has a key of its own by this name, the next session ends the one before it.
_UNBOUNDED = '"session_boundary_detection": false'


def end_quiet() -> int:
    """End the sessions that are over, and return how many. For a task that runs every five minutes. One query finds
    them; those that fell silent last come first, so that one that cannot be ended keeps none waiting."""
    found = list(_due()[:AT_ONCE])
    return sum(attempt(each.agent_id, partial(_ended, each), "end of a quiet session") for each in found)


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
