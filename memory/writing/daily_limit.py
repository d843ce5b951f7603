"""How much of its core memory an agent may discard or rewrite in a day outside its sessions (40-api): half.

A session has its circuit breaker; a runtime with a bad idea, or a thief with its key, has this. It is worked out from
the trail, under the lock of the edit, so that no two requests share what is left. What the day itself brought counts
neither as something lost nor as something left: room cannot be bought by adding, nor by restoring what was discarded
long ago.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from audit.models import OWN_EDITS, AuditEntry, Change, Operation
from memory.errors import DiscardShare, Invalid
from memory.models import Agent, Kind, Memory

DAY = timedelta(hours=24)
ALWAYS_ALLOWED = 20  # memories a day, whatever the silo's size
_LOSING = (Operation.REVISED, Operation.DISCARDED, Operation.CONSOLIDATED)


def require(agent: Agent, memories: Iterable[Memory], now: datetime) -> None:
    """Raise DiscardShare if editing these, too, goes beyond the share. The caller holds the agent's row locked."""
    lifted = agent.discard_share_lifted_until
    if lifted is not None and now < lifted:
        return
    since = now - DAY
    old = {memory.number for memory in memories if memory.kind == Kind.CORE and memory.created_at < since}
    if not old:
        return
    edited = old | set(
        _core(agent, since).filter(number__in=_touched(agent, since, *_LOSING)).values_list("number", flat=True)
    )
    if len(edited) <= ALWAYS_ALLOWED:
        return
    allowed = max(ALWAYS_ALLOWED, _there_at(agent, since) // 2)
    if len(edited) > allowed:
        raise DiscardShare(allowed)


def checked_lift(until: datetime | None) -> datetime | None:
    """Until when the share is lifted: a day at most, so that nobody forgets it. Raises Invalid."""
    if until is not None and until > timezone.now() + DAY:
        raise Invalid("discard_share_lifted_until", "is at most 24 hours from now")
    return until


def _core(agent: Agent, since: datetime) -> QuerySet[Memory]:
    """Core memories that are older than the day."""
    return Memory.objects.of(agent).core().filter(created_at__lt=since)


def _touched(agent: Agent, since: datetime, *operations: str) -> QuerySet[Change, Any]:
    """The numbers of memories that the agent itself edited so, outside sessions."""
    entries = AuditEntry.objects.filter(OWN_EDITS, agent_id=agent.pk, at__gte=since, operation__in=operations)
    return Change.objects.filter(agent_id=agent.pk, seq__in=entries.values("seq")).values("number")


def _there_at(agent: Agent, since: datetime) -> int:
    """How many there were when the day began; those restored since are left out, for some of them were not."""
    active = Q(discarded_at__isnull=True) | Q(discarded_at__gte=since)
    restored = _touched(agent, since, Operation.RESTORED)
    return _core(agent, since).filter(active).exclude(number__in=restored).count()
