"""Chooses the agent that a worker refines next, among those that wait (`refinement.backlog`).

It takes the tenant with the fewest sessions under way, and of those the one that was served longest ago. Of its agents
it takes one that a person asked for, or else the longest overdue. So a tenant with a thousand due agents delays another
tenant's single one by one session at most. Tenants and providers with as many sessions as they may have are passed
over, and so are providers that do not answer (`refinement.providers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db import OperationalError, transaction
from django.db.models import Min, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from audit.patience import alone
from memory.models import Agent, Tenant
from memory.writing import edits
from refinement import providers, schedule
from refinement import session as sessions
from refinement.errors import AgentBusy
from refinement.models import RefinementSession, Served, Waiting

LOCK_SECONDS = 5  # a worker waits this long for an agent's lock
NEVER = datetime.min.replace(tzinfo=UTC)
LOCK = 0x70616C69  # of PostgreSQL's advisory locks: one worker at a time chooses


def take() -> Waiting | None:
    """Take the next agent; None if nothing can be refined now.

    It is a transaction of its own, in which no other worker chooses. The caller gives the agent back, or ends its wait.
    """
    with transaction.atomic():
        alone(LOCK)
        while (row := _next()) is not None:
            row.taken_at = timezone.now()
            if Waiting.objects.filter(pk=row.pk, claim=row.claim, taken_at=None).update(taken_at=row.taken_at):
                Served.objects.update_or_create(tenant_id=row.tenant_id, defaults={"at": row.taken_at})
                return row  # else a sweep has just removed it
        return None


def _next() -> Waiting | None:
    under_way = Counter(_taken().values_list("tenant_id", flat=True))
    waiting = free()
    served = Served.objects.filter(tenant_id=OuterRef("tenant_id")).values("at")
    tenants: Iterable[Any] = waiting.values("tenant_id").annotate(
        served=Subquery(served), first=Coalesce(Min("due_at"), Min("since"))
    )
    if not tenants:
        return None
    chosen = min(tenants, key=lambda each: (under_way[each["tenant_id"]], each["served"] or NEVER, each["first"]))
    return waiting.filter(tenant_id=chosen["tenant_id"]).order_by("-asked", "due_at", "since", "pk").first()


class Closed(NamedTuple):
    """What cannot be refined now: tenants and providers with as many sessions as they may have, and what does not
    answer."""

    tenants: list[int]
    providers: set[str]
    shut: set[str]  # providers and models


def closed() -> Closed:
    taken = list(_taken().values_list("tenant_id", "provider"))
    by_provider = Counter(provider for _, provider in taken)
    most = settings.PROVIDER_SESSIONS
    full = {name for name, count in by_provider.items() if 0 < most.get(name, 0) <= count}
    shut = set(providers.shut())
    return Closed(_full_tenants(Counter(tenant for tenant, _ in taken)), full | shut, shut)


def free(now: Closed | None = None) -> QuerySet[Waiting]:
    """The agents that wait and can be refined now."""
    waiting, now = Waiting.objects.filter(taken_at=None), now or closed()
    if now.tenants:
        waiting = waiting.exclude(tenant_id__in=now.tenants)
    if now.providers:
        waiting = waiting.exclude(Q(provider__in=now.providers) | Q(model__in=now.shut))
    return waiting


def _taken() -> QuerySet[Waiting]:
    return Waiting.objects.filter(taken_at__isnull=False)


def _full_tenants(under_way: Counter[int]) -> list[int]:
    own = dict(Tenant.objects.filter(pk__in=under_way).values_list("pk", "sessions_at_once")) if under_way else {}
    most = {pk: settings.TENANT_SESSIONS if number is None else number for pk, number in own.items()}
    return [pk for pk, count in under_way.items() if 0 < most.get(pk, settings.TENANT_SESSIONS) <= count]


def give_back(turn: Waiting) -> None:
    """Let it wait again: its model does not answer, or its worker must end."""
    Waiting.objects.filter(pk=turn.pk, claim=turn.claim).update(taken_at=None)


def end(turn: Waiting) -> None:
    """End its wait: it is refined, or need not be."""
    Waiting.objects.filter(pk=turn.pk, claim=turn.claim, taken_at__isnull=False).delete()


def open_due(agent: Agent) -> RefinementSession | None:
    """Open the agent's session; None if it is not due, or is being refined. Raises AgentBusy.

    One lock covers the check and the opening, so that of two workers with the same agent one finds nothing to do.
    """
    try:
        with edits.locked(agent, seconds=LOCK_SECONDS) as row:
            if schedule.due().filter(pk=row.pk).exists():
                return sessions.open_session(row, trigger=row.due_reason)
    except OperationalError:
        raise AgentBusy("Another operation, perhaps an import, holds the agent.") from None
    return None
