"""The parts of an agent's page: its size, whether it is due and why, its size over time, and its latest merges."""

from collections.abc import Callable
from datetime import timedelta

from django.db.models import Max
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from audit.models import AuditEntry, Change, Operation
from config.templatetags.moments import moment
from config.wording import several
from memory.admin.base import charts, links
from memory.admin.base.page import Part, Status
from memory.admin.base.texts import DUE_REASONS
from memory.models import Agent, AgentKey, DueReason
from refinement import allowance, limits, probe, providers, schedule, scheduling, undone_sessions
from refinement.models import Outcome, RefinementSession, Waiting
from refinement.notices import attention, webhooks

MARKED = 60  # latest sessions that the chart marks
MERGES = 4  # latest merges in the picture of the lineage
LISTS = {
    "Memories": "memory.Memory",
    "Sessions": "refinement.RefinementSession",
    "Audit trail": "audit.AuditEntry",
    "Access requests": "audit.AccessRequest",
    "Keys": "memory.AgentKey",
}


def parts(agent: Agent, notes: list[str], waits: str) -> list[Part]:
    """`notes` has sentences about what waits for the agent's side. `waits` says why no agent is refined now."""
    is_running = RefinementSession.objects.filter(agent=agent, outcome=Outcome.OPEN).exists()
    waiting = format_html_join("", '<p class="mb-2">{}</p>', ([note] for note in notes))
    found = [Part("waiting", "Waits for the agent's side", waiting)] if notes else []
    found.append(Part("summary", "Core memory", _summary(agent, waits, is_running), live=is_running))
    marks = session_marks(agent, MARKED)
    if chart := charts.tokens_over_time(agent, charts.points(agent), marks, name="Core memory over time"):
        found.append(Part("chart", "Core memory over time", chart))
    if (merged := _merged(agent)) and (picture := charts.lineage(agent, merged)):
        found.append(Part("lineage", "Latest merges", picture))
    return found


def session_marks(agent: Agent, most: int, url: Callable[[int, str, int], str] = links.url) -> list[charts.Mark]:
    """The latest ended sessions, as marks of a chart. `url` makes their addresses. They lead to the sessions' pages."""
    ended = RefinementSession.objects.filter(agent=agent, closed_at__isnull=False).exclude(mode="store")
    rows = list(ended.defer("shown", "plan", "summaries").order_by("-number")[:most])
    undone_sessions.mark(rows)
    return [
        charts.Mark(
            row.closed_at or row.opened_at,
            row.tokens_after,
            url(agent.pk, "session", row.number),
            f"session {row.number}: {_result(row)}",
            "undone" if row.undone_by else row.outcome,
        )
        for row in reversed(rows)
    ]


def notes(agent: Agent, waits: str) -> str:
    """Paragraphs about what is wrong, and what helps. `waits` says why no agent is refined now."""
    context = {
        "attention": attention.items([agent.tenant_id], 1, pk=agent.pk),
        "page": webhooks.admin_path(agent),
        "waits": waits,
    }
    return SafeString(render_to_string("admin/parts/agent_notes.html", context).strip())


def _result(session: RefinementSession) -> str:
    text = f"{session.tokens_before:,} \N{RIGHTWARDS ARROW} {session.tokens_after:,} tokens, {session.outcome}"
    return f"{text}, rolled back by entry {session.undone_by}" if session.undone_by else text


def _merged(agent: Agent) -> list[int]:
    """The memories that the latest merges made."""
    merges = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.CONSOLIDATED).order_by("-seq")
    seqs = list(merges.values_list("seq", flat=True)[:MERGES])
    made = Change.objects.filter(agent_id=agent.pk, seq__in=seqs, before_digest__isnull=True)
    return list(made.order_by("number").values_list("number", flat=True)[: 2 * MERGES])


def tabs(request: HttpRequest, agent: Agent) -> list[tuple[str, str]]:
    """The lists of an agent that the person may see."""
    lists = {name: model.lower().replace(".", "_") for name, model in LISTS.items() if links.may_open(request, model)}
    query = {"agent": agent.label}
    return [(name, reverse(f"admin:{model}_changelist", query=query)) for name, model in lists.items()]


def status(agent: Agent, state: str | None) -> Status:
    """`state` says why an agent is not refined or used, such as "paused"."""
    tokens, over = agent.core_tokens, agent.core_tokens - agent.budget_tokens
    if over > 0:
        label, meaning, where = "over budget", "bad", f"{over:,} tokens over its budget of {agent.budget_tokens:,}"
    elif tokens > agent.target_tokens:
        where = f"{tokens - agent.target_tokens:,} tokens above its target of {agent.target_tokens:,}"
        where += f", and {-over:,} below its budget of {agent.budget_tokens:,}"
        label, meaning = "above target", "warn"
    else:
        place = "below" if tokens < agent.target_tokens else "exactly at"
        label, meaning, where = "within target", "good", f"{place} its target of {agent.target_tokens:,} tokens"
    if state:
        label, meaning = state, "warn" if state in ("paused", "memory off") else "bad"
    return Status(label, meaning, f"Core memory has {tokens:,} tokens: {where}.")


def _summary(agent: Agent, waits: str, is_running: bool) -> SafeString:
    floor = limits.floor(agent.retention, agent.target_tokens, agent.high_water_tokens)
    marks = {"floor": floor, "target": agent.target_tokens, "budget": agent.budget_tokens}
    last = RefinementSession.objects.filter(agent=agent).order_by("-number").first()
    if last:
        undone_sessions.mark([last])
    problem = probe.problems([agent.model]).get(agent.model, "")
    context = {
        "agent": agent,
        "bar": charts.bar(agent.core_tokens, marks),
        "due": "a session is open now" if is_running else why_due(agent, problem),
        "is_waiting": waits and agent.due_at and not agent.paused and not problem,
        "used_at": AgentKey.objects.filter(agent_id=agent.pk).aggregate(last=Max("last_used_at"))["last"],
        "problem": problem,
        "last": last and links.link(agent.pk, "session", last.number, f"session {last.number}"),
        "at": last and (last.closed_at or last.opened_at),
        "result": last and _result(last),
    }
    return SafeString(render_to_string("admin/parts/agent.html", context))


def in_words(every: timedelta) -> str:
    hours = round(every.total_seconds() / 3600)
    return several(hours // 24, "day") if hours and hours % 24 == 0 else several(hours, "hour")


def why_due(agent: Agent, problem: str) -> SafeString | str:
    """Whether the agent is due, why, and what it waits for. `problem` says why its model cannot be used."""
    due = DUE_REASONS.get(schedule.why(agent))
    if problem:
        return f"cannot start: {problem}"
    if agent.paused and agent.due_reason != DueReason.MANUAL:
        return "none while the agent is paused"
    if due and agent.due_reason != DueReason.MANUAL and allowance.is_used_up(agent.tenant):
        first = f"{allowance.next_month(timezone.now()):%Y-%m-%d}"
        return f"{due}; waits until {first}, because the tenant's model tokens for this month are used up"
    if due:
        return format_html("{}; {}", due, _queue_state(agent))
    return _cooldown(agent) or (moment(agent.due_at) if agent.due_at else "not due")


def _queue_state(agent: Agent) -> str:
    row = Waiting.objects.filter(pk=agent.pk).first()
    if row is None:
        if {providers.of(agent.model), agent.model} & set(providers.failing_names()):
            return f"starts when {agent.model} answers again"
        return "starts after the next check for due agents"
    if row.taken_at:
        return "a worker has started"
    return format_html("waiting for a worker since {}{}", moment(row.since), _blocked_by(row))


def _blocked_by(row: Waiting) -> str:
    """The reason why no worker may start the agent's session now. It is "" if a worker may start the session."""
    closed = scheduling.closed()
    if {row.model, row.provider, str(row.pk)} & set(providers.closed()):
        return f"; starts when {row.model} answers again"
    if row.tenant_id in closed.tenants:
        return "; the tenant has reached its limit of open sessions"
    return f"; {row.provider} has reached its limit of open sessions" if row.provider in closed.providers else ""


def _cooldown(agent: Agent) -> str | None:
    """The reason why the agent is not due yet. A cool-down or a retry can delay the refinement. None if nothing delays
    it."""
    if agent.paused or not agent.memory_enabled or agent.due_at is None or agent.due_at <= timezone.now():
        return None
    if agent.failures_in_a_row and agent.due_reason == DueReason.RETRY:
        return format_html("not due: retry at {} after a failure", moment(agent.due_at))
    if agent.core_tokens <= agent.budget_tokens or agent.quiet_below_tokens is None:
        return None
    text = "over budget; next refinement at {}, or when core memory reaches {} tokens"
    return format_html(text, moment(agent.due_at), f"{agent.quiet_below_tokens:,}")
