"""A tenant's monthly allowance of model tokens. When it is used up, only sessions that a person requests are opened.

The allowance counts the tokens of `gc` and of the sessions that the service drives. It does not count other sessions,
because a runtime pays for its own model. The tokens of a session count when the session ends. So open sessions can
exceed the allowance. Each session can exceed it by its own limit at most.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from memory.models import Tenant
from refinement.models import Driver, RefinementSession, Share


def month_of(moment: datetime) -> date:
    """Return the first day of the month that contains this moment (in UTC)."""
    return moment.astimezone(UTC).date().replace(day=1)


def next_month(moment: datetime) -> date:
    first = month_of(moment)
    return date(first.year + first.month // 12, first.month % 12 + 1, 1)


def of(tenant: Tenant) -> int | None:
    """Return the allowance in tokens, or None if there is no limit."""
    return settings.MONTH_TOKENS if tenant.month_tokens is None else tenant.month_tokens


def spent(tenant_id: int, now: datetime | None = None) -> int:
    """Return the number of model tokens that count for the tenant in this month."""
    rows = Share.objects.filter(tenant_id=tenant_id, month=month_of(now or timezone.now()))
    return rows.values_list("model_tokens", flat=True).first() or 0


def left(tenant: Tenant, now: datetime | None = None) -> int | None:
    """Return the number of tokens that are left this month, or None if there is no limit."""
    most = of(tenant)
    return None if most is None else max(0, most - spent(tenant.pk, now))


def is_used_up(tenant: Tenant, now: datetime | None = None) -> bool:
    return left(tenant, now) == 0


def used_up(now: datetime) -> Q:
    """Return a filter for agents whose tenant has used up its allowance."""
    most: Any = OuterRef("tenant__month_tokens")
    if settings.MONTH_TOKENS is not None:
        most = Coalesce(most, Value(settings.MONTH_TOKENS))
    share = Share.objects.filter(tenant_id=OuterRef("tenant_id"), month=month_of(now))
    return Q(Exists(share.filter(model_tokens__gte=most))) | Q(tenant__month_tokens=0)


def count(session: RefinementSession) -> None:
    """Count the tokens of a session. Call this in the transaction that closes the session."""
    tokens = session.prompt_tokens + session.completion_tokens
    if session.driver == Driver.SERVER and tokens and session.closed_at is not None:
        add(session.agent.tenant_id, tokens, session.closed_at)


def add(tenant_id: int, tokens: int, at: datetime) -> None:
    """Add tokens to the tenant's total of the month."""
    month = month_of(at)
    Share.objects.get_or_create(tenant_id=tenant_id)
    of_tenant = Share.objects.filter(tenant_id=tenant_id)
    of_tenant.filter(Q(month=None) | Q(month__lt=month)).update(month=month, model_tokens=0)
    of_tenant.filter(month=month).update(model_tokens=F("model_tokens") + tokens)  # not if `at` is in an earlier month
