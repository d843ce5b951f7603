"""A tenant's monthly allowance of model tokens: past it nothing but what a person asked for is begun (30-refinement).

Counted when a session ends, of those that the service drives: a runtime's model is its own. Sessions under way may so
take a tenant beyond it, by what each of them may use at most.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from memory.models import Tenant
from refinement.models import Driver, RefinementSession, Share


def month_of(moment: datetime) -> date:
    """The first day of a moment's month, in UTC."""
    return moment.astimezone(UTC).date().replace(day=1)


def next_month(moment: datetime) -> date:
    first = month_of(moment)
    return date(first.year + first.month // 12, first.month % 12 + 1, 1)


def of(tenant: Tenant) -> int | None:
    """Its allowance in tokens; None where there is none."""
    return settings.MONTH_TOKENS if tenant.month_tokens is None else tenant.month_tokens


def spent(tenant_id: int, now: datetime | None = None) -> int:
    """Its model tokens of this month, in sessions that have ended."""
    rows = Share.objects.filter(tenant_id=tenant_id, month=month_of(now or timezone.now()))
    return rows.values_list("model_tokens", flat=True).first() or 0


def left(tenant: Tenant, now: datetime | None = None) -> int | None:
    """What may still be used this month; None where there is no allowance."""
    most = of(tenant)
    return None if most is None else max(0, most - spent(tenant.pk, now))


def is_used_up(tenant: Tenant, now: datetime | None = None) -> bool:
    return left(tenant, now) == 0


def used_up(now: datetime) -> Q:
    """Of a query over agents: those whose tenant's is."""
    most = (
        OuterRef("tenant__month_tokens")
        if settings.MONTH_TOKENS is None
        else Coalesce(OuterRef("tenant__month_tokens"), Value(settings.MONTH_TOKENS))
    )
    share = Share.objects.filter(tenant_id=OuterRef("tenant_id"), month=month_of(now))
    return Q(Exists(share.filter(model_tokens__gte=most))) | Q(tenant__month_tokens=0)


def count(session: RefinementSession) -> None:
    """Add what a session that ends has used, in the transaction that ends it."""
    tokens = session.prompt_tokens + session.completion_tokens
    if session.driver == Driver.SERVER and tokens and session.closed_at is not None:
        add(session.agent.tenant_id, tokens, session.closed_at)


def add(tenant_id: int, tokens: int, at: datetime) -> None:
    """Count tokens that a tenant's models have used."""
    month = month_of(at)
    Share.objects.get_or_create(tenant_id=tenant_id)
    of_tenant = Share.objects.filter(tenant_id=tenant_id)
    of_tenant.filter(Q(month=None) | Q(month__lt=month)).update(month=month, model_tokens=0)
    of_tenant.filter(month=month).update(model_tokens=F("model_tokens") + tokens)  # one of last month is late, and over
