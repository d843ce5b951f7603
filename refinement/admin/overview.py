"""The first page: what needs somebody, and how it goes; from metadata, in as many queries however many agents."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.db.models import Count, DateField, F, FloatField, Q, Sum
from django.db.models.functions import Cast, TruncWeek
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from audit.consent import LAPSES
from audit.models import AccessRequest, AccessState
from memory.access.roles import Action, manages
from memory.admin.base.page import WHY, budget_bar, ids_seen_by
from memory.models import Agent
from refinement import schedule
from refinement.models import Outcome, RefinementSession
from refinement.monitoring.health import problems

WEEKS = 12
DAYS = 30  # of outcomes
HEAVIEST = 12  # agents that are shown, the fullest first


def figures(request: HttpRequest) -> dict[str, Any]:
    """What the page shows of the tenants whoever asks may see."""
    tenants = ids_seen_by(request)
    agents = Agent.objects.filter(tenant__in=tenants)
    return {
        "is_empty": not tenants,
        "may_make_tenants": bool(request.user.is_superuser),
        "counts": _counts(agents, tenants),
        "troubles": problems(),
        "heaviest": _heaviest(agents),
        "charts": [_saved(tenants), _outcomes(tenants)],
        "next": _next(request),
    }


def _next(request: HttpRequest) -> list[tuple[str, str]]:
    """What an empty service needs, as far as whoever asks may do it."""
    offered = []
    if manages(request.user):  # type: ignore[arg-type]  # who is signed in
        offered.append(("Add a tenant", reverse("admin:memory_tenant_add_tenant")))
    if ids_seen_by(request, Action.CONFIGURE):
        offered.append(("Add an agent", reverse("admin:memory_agent_add_agent")))
    if ids_seen_by(request, Action.STAFF):
        offered.append(("Invite people", reverse("admin:memory_invitation_changelist")))
    return offered


def _counts(agents: Any, tenants: list[int]) -> list[tuple[str, int, str, str]]:
    """Figures, each with the list of its rows, and a note."""
    now = timezone.now()
    is_over, is_paused = Q(core_tokens__gt=F("budget_tokens")), Q(paused=True)
    told = agents.aggregate(
        all=Count("pk"),
        over=Count("pk", filter=is_over),
        resting=Count("pk", filter=is_paused),
        over_resting=Count("pk", filter=is_over & is_paused),
    )
    asked = AccessRequest.objects.filter(tenant_id__in=tenants).aggregate(
        open=Count("pk", filter=Q(state=AccessState.REQUESTED, asked_at__gt=now - LAPSES)),
        granted=Count("pk", filter=Q(state=AccessState.ACTIVE, until__gt=now)),
    )
    due = schedule.overdue().filter(tenant__in=tenants).count()
    lists, requests = (reverse(f"admin:{name}_changelist") for name in ("memory_agent", "audit_accessrequest"))
    why_not_due = f"{told['over_resting']:,} paused" if told["over_resting"] else ""
    return [
        ("agents", told["all"], lists, ""),
        ("over budget", told["over"], f"{lists}?need=over", why_not_due),
        ("due for refinement", due, f"{lists}?need=due", ""),
        ("paused", told["resting"], f"{lists}?paused__exact=1", ""),
        ("open access requests", asked["open"], f"{requests}?state__exact=requested", ""),
        ("grants in force", asked["granted"], f"{requests}?state__exact=active", ""),
    ]


def _heaviest(agents: Any) -> list[dict[str, Any]]:
    share = Cast("core_tokens", FloatField()) / Cast("budget_tokens", FloatField())
    rows = agents.filter(budget_tokens__gt=0).select_related("tenant").order_by(share.desc(), "pk")[:HEAVIEST]
    return [
        {
            "agent": row,
            "bar": budget_bar(row),
            "share": f"{100 * row.core_tokens / row.budget_tokens:.0f}\N{NO-BREAK SPACE}%",
            "due": ", ".join(filter(None, (WHY.get(schedule.why(row)), "paused" if row.paused else None))),
        }
        for row in rows
    ]


def _saved(tenants: list[int]) -> dict[str, Any]:
    """Core tokens that sessions saved, by the week they ended in."""
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - timedelta(days=today.weekday(), weeks=WEEKS - 1)
    weeks = [(first + timedelta(weeks=n)).date() for n in range(WEEKS)]
    ended = RefinementSession.objects.filter(agent__tenant__in=tenants, closed_at__gte=first)
    by_week = ended.values_list(TruncWeek("closed_at", output_field=DateField())).order_by()
    saved = dict(by_week.annotate(saved=Sum(F("tokens_before") - F("tokens_after"))))
    return _chart("Tokens saved per week", "tokens", [(f"{week:%d %b}", saved.get(week, 0)) for week in weeks])


def _outcomes(tenants: list[int]) -> dict[str, Any]:
    since = timezone.now() - timedelta(days=DAYS)
    ended = RefinementSession.objects.filter(agent__tenant__in=tenants, opened_at__gte=since)
    rows = dict(ended.values_list("outcome").annotate(count=Count("pk")).order_by())
    pairs = [(each.value.replace("_", " "), rows.get(each.value, 0)) for each in Outcome if rows.get(each.value)]
    return _chart(f"Sessions of the last {DAYS} days, by outcome", "sessions", pairs)


def _chart(title: str, unit: str, pairs: list[tuple[str, int]]) -> dict[str, Any]:
    """A chart's data as Unfold's component takes it, and the pairs for the table beside it."""
    look = {"backgroundColor": "#7c5cb8", "maxBarThickness": 28, "displayYAxis": True}
    dataset = {"label": unit, "data": [value for _, value in pairs]} | look
    data = json.dumps({"labels": [label for label, _ in pairs], "datasets": [dataset]})
    return {"title": title, "unit": unit, "pairs": pairs, "data": data, "is_empty": not any(v for _, v in pairs)}
