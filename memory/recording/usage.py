"""Count how often a search returned each memory. The counts are stored with the memories' numbers and with dates, but
without content."""

from collections.abc import Sequence
from datetime import datetime

import structlog
from django.db import DatabaseError
from django.db.models import F

from audit.bulk import ROWS_AT_ONCE
from audit.waiting import with_timeout
from memory.models import Agent, Recall

log = structlog.get_logger("palimpsest.memory")

PATIENCE = 1  # seconds to wait for a lock


def note(agent: Agent, numbers: Sequence[int], now: datetime) -> dict[int, int]:
    """Add 1 to the count of each of these memories. Call this function after a search returned them. Return the new
    counts. Rows are locked in the order of their numbers, so that two calls cannot deadlock.

    If the database is busy or reports an error, nothing is counted, a warning is logged, and the result is empty. A
    problem with the counts must not make the search fail.
    """
    new = [Recall(agent_id=agent.pk, number=number, times=0, first_at=now, last_at=now) for number in sorted(numbers)]
    used = Recall.objects.filter(agent_id=agent.pk, number__among=list(numbers))
    try:
        with with_timeout(PATIENCE):
            Recall.objects.bulk_create(new, batch_size=ROWS_AT_ONCE, ignore_conflicts=True)
            before = dict(used.order_by("number").select_for_update().values_list("number", "times"))
            used.update(times=F("times") + 1, last_at=now)
    except DatabaseError as failure:
        log.warning("use of memories not noted", agent=agent.pk, error=type(failure).__name__)
        return {}
    return {number: times + 1 for number, times in before.items()}


def times(agent: Agent, numbers: Sequence[int] | None = None) -> dict[int, int]:
    """Return how often a search returned each of these memories (default: all). Memories with the count 0 are left out.
    Runs one query."""
    rows = Recall.objects.filter(agent_id=agent.pk)
    rows = rows if numbers is None else rows.filter(number__among=list(numbers))
    return dict(rows.values_list("number", "times"))
