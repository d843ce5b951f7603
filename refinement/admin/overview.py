"""The overview page. It shows figures and charts that come from metadata. The number of queries does not depend on the
number of agents."""

import json
from datetime import timedelta
from typing import Any

from django.db.models import Count, DateField, F, FloatField, Q, Sum
from django.db.models.functions import Cast, TruncWeek
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from audit.consent import open_and_active
from audit.models import AccessRequest
from memory.access.roles import Action, manages
from memory.admin.base.permissions import visible_tenant_ids
from memory.admin.base.texts import DUE_REASONS, budget_bar
from memory.models import Agent
from refinement import schedule
from refinement.models import Outcome, RefinementSession
from refinement.monitoring.health import problems

WEEKS = 12
DAYS = 30  # covered by the chart of outcomes
HEAVIEST = 12  # agents in the table of the fullest memories


def figures(request: HttpRequest) -> dict[str, Any]:
    """Return the page's template context. It covers only the tenants that the person may see."""
    tenants = visible_tenant_ids(request)
    agents = Agent.objects.filter(tenant__in=tenants)
    return {
        "is_empty": not tenants,
        "can_add_tenants": manages(request.user),  # type: ignore[arg-type]  # the site requires sign-in
        "counts": _counts(agents, tenants),
        "troubles": problems(),
        "heaviest": _heaviest(agents),
        "charts": [_saved(tenants), _outcomes(tenants)],
        "next_steps": _next_steps(request),
    }


def _next_steps(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the label and the URL of each step that the person may take next. The page shows these steps if there are
    no agents yet."""
    steps = []
    if manages(request.user):  # type: ignore[arg-type]  # the site requires sign-in
        steps.append(("Add a tenant", reverse("admin:memory_tenant_add_tenant")))
    if visible_tenant_ids(request, Action.CONFIGURE):
        steps.append(("Add an agent", reverse("admin:memory_agent_add_agent")))
    if visible_tenant_ids(request, Action.STAFF):
        steps.append(("Invite people", reverse("admin:memory_invitation_changelist")))
    return steps


def _counts(agents: Any, tenants: list[int]) -> list[tuple[str, int, str, str]]:
    """For each figure, return its name, its count, the URL of its list, and its note."""
    is_over, is_paused = Q(core_tokens__gt=F("budget_tokens")), Q(paused=True)
    totals = agents.aggregate(
        all=Count("pk"),
        over=Count("pk", filter=is_over),
        paused_count=Count("pk", filter=is_paused),
        over_paused=Count("pk", filter=is_over & is_paused),
    )
    opened, active = open_and_active(AccessRequest.objects.filter(tenant_id__in=tenants))
    due = schedule.overdue().filter(tenant__in=tenants).count()
    lists, requests = (reverse(f"admin:{name}_changelist") for name in ("memory_agent", "audit_accessrequest"))
    paused_note = f"{totals['over_paused']:,} paused" if totals["over_paused"] else ""
    return [
        ("agents", totals["all"], lists, ""),
        ("over budget", totals["over"], f"{lists}?need=over", paused_note),
        ("due for refinement", due, f"{lists}?need=due", ""),
        ("paused", totals["paused_count"], f"{lists}?paused__exact=1", ""),
        ("open access requests", opened, f"{requests}?state__exact=requested", ""),
        ("active grants", active, f"{requests}?state__exact=active", ""),
    ]


def _heaviest(agents: Any) -> list[dict[str, Any]]:
    share = Cast("core_tokens", FloatField()) / Cast("budget_tokens", FloatField())
    rows = agents.filter(budget_tokens__gt=0).select_related("tenant").order_by(share.desc(), "pk")[:HEAVIEST]
    return [
        {
            "agent": row,
            "bar": budget_bar(row),
            "share": f"{100 * row.core_tokens / row.budget_tokens:.0f}\N{NO-BREAK SPACE}%",
            "due": ", ".join(filter(None, (DUE_REASONS.get(schedule.why(row)), "paused" if row.paused else None))),
        }
        for row in rows
    ]


def _saved(tenants: list[int]) -> dict[str, Any]:
    """Return a chart of the core tokens that sessions saved. A session counts in the week in which it ended."""
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
    pairs = [(outcome.value.replace("_", " "), rows[outcome.value]) for outcome in Outcome if rows.get(outcome.value)]
    return _chart(f"Sessions of the last {DAYS} days, by outcome", "sessions", pairs)


def _chart(title: str, unit: str, pairs: list[tuple[str, int]]) -> dict[str, Any]:
    """Return the data for Unfold's chart component, and the pairs for the table below the chart."""
    style = {"backgroundColor": "#7c5cb8", "maxBarThickness": 28, "displayYAxis": True}
    dataset = {"label": unit, "data": [value for _, value in pairs]} | style
    data = json.dumps({"labels": [label for label, _ in pairs], "datasets": [dataset]})
    return {"title": title, "unit": unit, "pairs": pairs, "data": data, "is_empty": not any(v for _, v in pairs)}
