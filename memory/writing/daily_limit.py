"""The daily limit: outside sessions, an agent may discard or rewrite at most half of its core memories in 24 hours.

The limit protects against a faulty runtime or a stolen key. (In a session, the circuit breaker protects against both.)
The limit is computed from the trail while the agent's row is locked. Memories that were added or restored within these
24 hours do not count, so an agent cannot raise its limit by adding memories.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Q, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from audit.models import OWN_EDITS, AuditEntry, Change, Operation
from memory.errors import DiscardShare, Invalid
from memory.models import Agent, Layer, Memory
from memory.models.memories import MemoryQuerySet

DAY = timedelta(hours=24)
ALWAYS_ALLOWED = 20  # every agent may discard or rewrite this many memories in 24 hours
MOST = 50_000  # changes in 24 hours, also of other memories: all are read while the agent's row is locked
_LOSING = (Operation.REVISED, Operation.DISCARDED, Operation.CONSOLIDATED)


def require(agent: Agent, memories: Iterable[Memory], now: datetime) -> None:
    """Raise DiscardShare if an edit of these memories exceeds the limit. The agent's row must be locked already."""
    lifted = agent.discard_share_lifted_until
    if lifted is not None and now < lifted:
        return
    since = now - DAY
    old = {memory.number for memory in memories if memory.layer == Layer.CORE and memory.created_at < since}
    if not old:
        return
    touched = _touched(agent, since, *_LOSING)
    others = _core(agent, since).filter(number__among=touched) if touched else Memory.objects.none()
    edited = old | set(others.values_list("number", flat=True))
    if len(edited) <= ALWAYS_ALLOWED:
        return
    allowed = max(ALWAYS_ALLOWED, _count_at(agent, since, 2 * len(edited)) // 2)
    if len(edited) > allowed:
        raise DiscardShare(allowed)


def checked_lift(until: datetime | None) -> datetime | None:
    """Check and return the time at which the limit applies again. Raises Invalid if it is more than a day away."""
    if until is not None and until > timezone.now() + DAY:
        raise Invalid("discard_share_lifted_until", "must be at most 24 hours from now")
    return until


def _core(agent: Agent, since: datetime) -> MemoryQuerySet:
    """Return the core memories that were created before `since`."""
    return Memory.objects.of(agent).core().filter(created_at__lt=since)


def _touched(agent: Agent, since: datetime, *operations: str) -> list[int]:
    """Return the numbers of the memories that the agent itself edited after `since`, outside sessions. Only edits with
    these operations count. Raises DiscardShare if there are more than MOST changes."""
    entries = AuditEntry.objects.filter(OWN_EDITS, agent_id=agent.pk, at__gte=since, operation__in=operations)
    changes = Change.objects.filter(agent_id=agent.pk, seq__in=entries.values("seq"))
    numbers = list(changes.values_list("number", flat=True)[: MOST + 1])
    if len(numbers) > MOST:
        raise DiscardShare(MOST)
    return list(set(numbers))


def _count_at(agent: Agent, since: datetime, most: int) -> int:
    """Count the core memories that were active at `since`, until there are `most`. Memories that were restored after
    `since` do not count.

    The active memories have an index. The others are found by their versions: there can be hundreds of thousands that
    were discarded or beneath before.
    """
    old = _core(agent, since).exclude(number__among=_touched(agent, since, Operation.RESTORED))
    active: int = old.active()[:most].count()
    if active >= most:
        return active
    was_kept = Q(discarded_at__isnull=True) | Q(discarded_at__gte=since)
    was_core = Q(beneath_at__isnull=True) | Q(beneath_at__gte=since)
    before = AuditEntry.objects.filter(agent_id=agent.pk, at__lt=since).order_by("-seq").values("seq")[:1]
    left = old.not_active().filter(was_kept, was_core, version__gt=Coalesce(Subquery(before), 0))
    return active + int(left[: most - active].count())
