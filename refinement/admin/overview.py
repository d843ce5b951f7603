"""The overview page. It shows figures and charts that come from metadata. The number of queries does not depend on the
number of agents."""

from collections import Counter
from datetime import date, datetime, timedelta
from typing import Any

from django.db.models import Count, DateField, F, FloatField, Q, QuerySet, Sum
from django.db.models.functions import Cast, TruncWeek
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from audit.consent import open_and_active
from audit.models import AccessRequest, AuditEntry, Operation
from config.queue import unattended
from memory.access.roles import Action, manages
from memory.admin.base import charts
from memory.admin.base.charts import Chart
from memory.admin.base.permissions import visible_tenant_ids
from memory.admin.base.texts import budget_bar, next_refinement
from memory.models import Agent
from refinement import probe, schedule, undone_sessions
from refinement.admin.sessions import MEANINGS
from refinement.models import Outcome, RefinementSession
from refinement.monitoring.health import problems
from refinement.notices import attention

WEEKS = 12
DAYS = 30  # covered by the chart of outcomes
MOST_AGENTS, MOST_SESSIONS = 200, 5_000  # with rollbacks, and the latest sessions of these agents
MOST_ATTENTION = 20  # agents
HEAVIEST = 12  # agents in the table of the fullest memories


def figures(request: HttpRequest) -> dict[str, Any]:
    """Return the page's template context. It covers only the tenants that the person may see."""
    tenants = visible_tenant_ids(request)
    agents, waits = Agent.objects.filter(tenant__in=tenants), unattended()
    return {
        "is_empty": not tenants,
        "can_add_tenants": manages(request.user),  # type: ignore[arg-type]  # the site requires sign-in
        "counts": _counts(agents, tenants),
        "troubles": problems(waits, of_operator=manages(request.user)),  # type: ignore[arg-type]
        "attention": attention.items(tenants, MOST_ATTENTION),
        "requests": attention.requests(tenants, MOST_ATTENTION),
        "may_steer": set(visible_tenant_ids(request, Action.STEER)),
        "heaviest": _heaviest(agents, waits),
        "charts": _charts(tenants),
        "next_steps": _next_steps(request),
    }


def _next_steps(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the label and the URL of each step that the person may take next. The page shows these steps if there are
    no agents yet."""
    steps = (
        ("Add a tenant", "memory_tenant_add_tenant", manages(request.user)),  # type: ignore[arg-type]  # signed in
        ("Add an agent", "memory_agent_add_agent", visible_tenant_ids(request, Action.CONFIGURE)),
        ("Invite people", "memory_invitation_changelist", visible_tenant_ids(request, Action.STAFF)),
    )
    return [(label, reverse(f"admin:{name}")) for label, name, may in steps if may]


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
        ("due", due, f"{lists}?need=due", ""),
        ("paused", totals["paused_count"], f"{lists}?paused__exact=1", ""),
        ("access requests", opened, f"{requests}?state__exact=requested", ""),
        ("active grants", active, f"{requests}?state__exact=active", ""),
    ]


def _heaviest(agents: Any, waits: str) -> list[dict[str, Any]]:
    share = Cast("core_tokens", FloatField()) / Cast("budget_tokens", FloatField())
    rows = list(agents.filter(budget_tokens__gt=0).select_related("tenant").order_by(share.desc(), "pk")[:HEAVIEST])
    problems = probe.problems(row.model for row in rows)
    return [
        {
            "agent": row,
            "bar": budget_bar(row),
            "share": f"{100 * row.core_tokens // row.budget_tokens}\N{NO-BREAK SPACE}%",
            "due": next_refinement(row, problems.get(row.model, ""), waits),
        }
        for row in rows
    ]


def _charts(tenants: list[int]) -> list[Chart]:
    """Both charts. The sessions that were rolled back are found once."""
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - timedelta(days=today.weekday(), weeks=WEEKS - 1)
    weeks = [(first + timedelta(weeks=n)).date() for n in range(WEEKS)]
    ended = RefinementSession.objects.filter(agent__tenant__in=tenants, closed_at__gte=first)
    undone = _undone(ended, tenants, first)
    return [_saved(ended, undone, weeks), _outcomes(tenants, undone)]


def _saved(ended: QuerySet[RefinementSession], undone: list[RefinementSession], weeks: list[date]) -> Chart:
    """The core tokens that sessions saved. A session counts in the week in which it ended, unless it was rolled
    back."""
    by_week = ended.values_list(TruncWeek("closed_at", output_field=DateField())).order_by()
    saved = dict.fromkeys(weeks, 0) | dict(by_week.annotate(saved=Sum(F("tokens_before") - F("tokens_after"))))
    for session in undone:
        day = (session.closed_at or session.opened_at).date()
        saved[day - timedelta(days=day.weekday())] -= session.tokens_before - session.tokens_after
    bars = [(f"{week:%d %b}", max(0, saved[week]), "good") for week in weeks]
    return charts.columns("Tokens saved per week", "tokens", bars)


def _undone(ended: QuerySet[RefinementSession], tenants: list[int], since: datetime) -> list[RefinementSession]:
    """Those of the sessions that were rolled back. Only agents with rollbacks since then have any."""
    rollbacks = AuditEntry.objects.filter(tenant_id__in=tenants, operation=Operation.ROLLED_BACK, at__gte=since)
    agents = list(rollbacks.values_list("agent_id", flat=True).distinct()[:MOST_AGENTS])
    latest = ended.filter(agent__in=agents).defer("shown", "plan", "summaries").order_by("-closed_at")
    found = list(latest[:MOST_SESSIONS]) if agents else []
    undone_sessions.mark(found)
    return [session for session in found if session.undone_by]


def _outcomes(tenants: list[int], undone: list[RefinementSession]) -> Chart:
    since = timezone.now() - timedelta(days=DAYS)
    ended = RefinementSession.objects.filter(agent__tenant__in=tenants, opened_at__gte=since)
    rows = Counter(dict(ended.values_list("outcome").annotate(count=Count("pk")).order_by()))
    rolled_back = Counter(session.outcome for session in undone if session.opened_at >= since)
    rows -= rolled_back
    meanings = MEANINGS | {Outcome.OPEN: "primary"}
    bars = [(each.value, rows[each.value], meanings.get(each, "faint")) for each in Outcome if rows.get(each.value)]
    if rolled_back:
        bars.append(("rolled back", rolled_back.total(), "faint"))
    return charts.columns(f"Sessions of the last {DAYS} days, by outcome", "sessions", bars)
