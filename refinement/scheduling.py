"""Chooses the agent that a worker refines next, from the backlog (`refinement.backlog`).

First, the tenant with the fewest running sessions is chosen. If there are several such tenants, the one whose last
session began longest ago is chosen. Then an agent of this tenant is chosen. Agents come first if a person requested
their refinement. Otherwise, the agent with the earliest due date is chosen. So a tenant with a thousand due agents
delays another tenant by at most one session. Tenants and providers that have reached their session limit are skipped.
Providers and models that do not respond (`refinement.providers`) are skipped too.
"""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db import OperationalError, transaction
from django.db.models import Min, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from audit.waiting import advisory_lock
from config.queue import LOCK_SECONDS
from memory.models import Agent, Tenant
from memory.writing import duplicates, edits
from refinement import providers, schedule
from refinement import session as sessions
from refinement.errors import AgentBusy, AllowanceSpent
from refinement.models import RefinementSession, Served, Waiting

NEVER = datetime.min.replace(tzinfo=UTC)
LOCK = 0x70616C69  # number of the advisory lock: one worker chooses at a time


def take() -> Waiting | None:
    """Take the next agent from the backlog. The result is None if no agent can be refined now.

    This runs in its own transaction. Other workers cannot choose an agent at the same time. The caller calls
    `give_back` or `end` later.
    """
    with transaction.atomic():
        advisory_lock(LOCK)
        while (row := _next()) is not None:
            row.taken_at = timezone.now()
            if Waiting.objects.filter(pk=row.pk, claim=row.claim, taken_at=None).update(taken_at=row.taken_at):
                Served.objects.update_or_create(tenant_id=row.tenant_id, defaults={"at": row.taken_at})
                return row  # otherwise a sweep has just removed it
        return None


def _next() -> Waiting | None:
    running = Counter(_taken().values_list("tenant_id", flat=True))
    waiting = free()
    served = Served.objects.filter(tenant_id=OuterRef("tenant_id")).values("at")
    first = Coalesce(Min("due_at"), Min("since"))
    tenants: Iterable[Any] = waiting.values("tenant_id").annotate(served=Subquery(served), first=first)
    if not tenants:
        return None
    chosen = min(tenants, key=lambda each: (running[each["tenant_id"]], each["served"] or NEVER, each["first"]))
    return waiting.filter(tenant_id=chosen["tenant_id"]).order_by("-asked", "due_at", "since", "pk").first()


class Closed(NamedTuple):
    """The tenants, providers and models whose agents cannot be refined now. `tenants` have reached their session limit.
    `providers` have reached their session limit, or are in `providers.closed`."""

    tenants: list[int]
    providers: set[str]


def closed() -> Closed:
    taken = list(_taken().values_list("tenant_id", "provider"))
    by_provider = Counter(provider for _, provider in taken)
    full = {name for name, count in by_provider.items() if 0 < settings.PROVIDER_SESSIONS.get(name, 0) <= count}
    return Closed(_full_tenants(Counter(tenant for tenant, _ in taken)), full | set(providers.closed()))


def free(now: Closed | None = None) -> QuerySet[Waiting]:
    """The agents of the backlog that can be refined now."""
    waiting, now = Waiting.objects.filter(taken_at=None), now or closed()
    if now.tenants:
        waiting = waiting.exclude(tenant_id__in=now.tenants)
    if now.providers:
        waiting = waiting.exclude(Q(provider__in=now.providers) | providers.using(now.providers))
    return waiting


def _taken() -> QuerySet[Waiting]:
    return Waiting.objects.filter(taken_at__isnull=False)


def _full_tenants(running: Counter[int]) -> list[int]:
    own = dict(Tenant.objects.filter(pk__in=running).values_list("pk", "sessions_at_once")) if running else {}
    most = {pk: settings.TENANT_SESSIONS if number is None else number for pk, number in own.items()}
    return [pk for pk, count in running.items() if 0 < most.get(pk, settings.TENANT_SESSIONS) <= count]


def give_back(waiting: Waiting) -> None:
    """Put the agent back into the backlog, because its model does not respond or its worker must end."""
    Waiting.objects.filter(pk=waiting.pk, claim=waiting.claim).update(taken_at=None)


def end(waiting: Waiting) -> None:
    """Remove the agent from the backlog, because its session has ended or it is not due."""
    Waiting.objects.filter(pk=waiting.pk, claim=waiting.claim, taken_at__isnull=False).delete()


def open_due(agent: Agent) -> RefinementSession | None:
    """Open a session of the agent. The result is None if the agent is not due or already has an open session, or if its
    tenant has no model tokens left. Raises AgentBusy, or OperationalError if the connection is lost.

    The agent stays locked until its session is open, so that two workers cannot refine the same agent.
    """
    due = schedule.due().filter(pk=agent.pk)
    if not due.exists():
        return None
    found = duplicates.find(agent)
    try:
        with suppress(AllowanceSpent), edits.locked(agent, seconds=LOCK_SECONDS) as row:
            if due.all().exists():
                return sessions.open_session(row, trigger=row.due_reason, found=found)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "55P03") != "55P03":  # on PostgreSQL: a lock was not available
            raise
        raise AgentBusy("Another operation, perhaps an import, has locked the agent. Try again later.") from None
    return None
