"""A tenant's monthly allowance of model tokens. When it is used up, only sessions that a person requests are opened.

Only `gc` and sessions that the service drives count, because a runtime pays for its own model. When a session opens, it
reserves its limit. So sessions that run at the same time cannot together exceed the allowance. When the session ends,
its tokens count, and the rest of its reservation is given back. A cached prompt token counts one tenth. The weight of
its model multiplies both.
"""

import secrets
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, Q, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone

from memory.models import DueReason, Tenant
from refinement.errors import AllowanceSpent
from refinement.llm import catalog
from refinement.models import Driver, RefinementSession, Share

SOON = timedelta(hours=1)  # a month that begins later comes from a clock that was ahead
FEW_TOKENS = 1_000  # an amount of tokens for which a search writes


def month_of(moment: datetime) -> date:
    """Return the first day of the month that contains this moment (in UTC)."""
    return moment.astimezone(UTC).date().replace(day=1)


def next_month(moment: datetime) -> date:
    return (month_of(moment) + timedelta(days=31)).replace(day=1)


def of(tenant: Tenant) -> int | None:
    """Return the allowance in tokens, or None if there is no limit."""
    return settings.MONTH_TOKENS if tenant.month_tokens is None else tenant.month_tokens


def spent(tenant_id: int, now: datetime | None = None) -> int:
    """Return the number of model tokens that count for the tenant in this month. Those of a later month count, too: the
    clock was ahead, and `bring_back` has not run yet."""
    rows = Share.objects.filter(tenant_id=tenant_id, month__gte=month_of(now or timezone.now()))
    return rows.values_list("model_tokens", flat=True).first() or 0


def is_used_up(tenant: Tenant, now: datetime | None = None) -> bool:
    most = of(tenant)
    return most is not None and spent(tenant.pk, now) >= most


def used_up(now: datetime) -> Q:
    """Return a filter for agents whose tenant has used up or reserved its allowance."""
    most: Any = OuterRef("tenant__month_tokens")
    if settings.MONTH_TOKENS is not None:
        most = Coalesce(most, Value(settings.MONTH_TOKENS))
    used = Case(When(month__gte=month_of(now), then=F("model_tokens")), default=Value(0)) + F("reserved_tokens")
    share = Share.objects.filter(tenant_id=OuterRef("tenant_id")).annotate(used=used)
    return Q(Exists(share.filter(used__gte=most))) | Q(tenant__month_tokens=0)


def reserve(session: RefinementSession, tenant: Tenant) -> None:
    """Reserve the limit of a session that is about to open, or what the tenant has left if that is less. The session's
    limit becomes what is reserved, unless a person requested the session. Other sessions of the tenant wait until the
    transaction ends. Raises AllowanceSpent."""
    most, weight = of(tenant), catalog.weight(session.model)
    if most is None:
        return
    share = _locked(tenant.pk)
    left = max(0, most - share.reserved_tokens - spent(tenant.pk))
    if weight and session.trigger != DueReason.MANUAL:
        if left < weight:
            raise AllowanceSpent("The tenant has used or reserved its model tokens of this month. Try again later.")
        session.max_model_tokens = min(session.max_model_tokens, left // weight)
    session.reserved_tokens = min(session.max_model_tokens * weight, left)
    share.reserved_tokens += session.reserved_tokens
    share.save()


def count(session: RefinementSession) -> None:
    """Count the tokens of a session, and give back what it reserved. Call this in the transaction that closes the
    session."""
    tokens = session.used.charged
    if session.driver == Driver.SERVER and (tokens or session.reserved_tokens) and session.closed_at is not None:
        add(session.agent.tenant_id, session.model, tokens, session.closed_at, session.reserved_tokens)


def bring_back() -> None:
    """Count the tokens of months that have not begun in the present month, because the clock was ahead."""
    now = timezone.now()
    Share.objects.filter(month__gt=month_of(now + SOON)).update(month=month_of(now))


@transaction.atomic
def add(tenant_id: int, model: str, tokens: int, at: datetime, given_back: int = 0) -> None:
    """Add a model's tokens to the tenant's total of the month, and end a reservation."""
    share, month = _locked(tenant_id), month_of(at)
    share.reserved_tokens -= min(given_back, share.reserved_tokens)
    if share.month is None or share.month < month:
        share.month, share.model_tokens = month, 0
    if share.month == month:  # not if `at` is in an earlier month
        share.model_tokens += tokens * catalog.weight(model)
    share.save()


def add_sometimes(tenant_id: int, model: str, tokens: int) -> None:
    """Add the tokens of a small call, such as a search. So that not each search writes, about one of many calls adds
    FEW_TOKENS, so that the sum is right on average."""
    times, rest = divmod(tokens, FEW_TOKENS)
    times += secrets.randbelow(FEW_TOKENS) < rest
    if times:
        add(tenant_id, model, times * FEW_TOKENS, timezone.now())


def _locked(tenant_id: int) -> Share:
    return Share.objects.select_for_update().get_or_create(tenant_id=tenant_id)[0]
