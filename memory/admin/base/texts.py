"""Texts and links that several pages show about an agent."""

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from config.templatetags.moments import moment
from memory.mail import letters
from memory.models import Agent
from refinement import schedule

DUE_REASONS = {
    "weekly": "refinement date",
    "over_budget": "over budget",
    "manual": "requested by a person",
    "agent": "requested by the agent",
    "retry": "retry after a failure",
}


def budget_bar(agent: Agent) -> SafeString:
    """A bar that shows core tokens and budget. It is orange above the target, and red above the budget."""
    tokens = agent.core_tokens
    state = "budget" if tokens > agent.budget_tokens else "target" if tokens > agent.target_tokens else "within"
    width = min(100, round(100 * tokens / max(1, agent.budget_tokens), 1))
    return render_to_string("admin/budget_bar.html", {"agent": agent, "state": state, "width": width})


def next_refinement(agent: Agent, problem: str = "", waits: str = "") -> SafeString | str:
    """When the next refinement is, or why it is due, in a few words. `problem` says why the agent's model cannot be
    used, and `waits` why no agent is refined."""
    if problem:
        return "cannot start"
    due = DUE_REASONS.get(schedule.why(agent))
    found = ", ".join(filter(None, (due, "paused" if agent.paused else None))) or moment(agent.due_at)
    if waits and found and (due or not agent.paused):
        return format_html("<span>{}; no worker runs</span>", found)
    return found


def ask_access_url(agent_id: int, **fields: int | str) -> str:
    """The URL of the access request form, with these fields filled in."""
    return reverse("admin:memory_agent_ask", args=[agent_id], query=fields or None)


def time_machine_url(agent_id: int, kind: str = "", at: int | str = "") -> str:
    """The URL of the Time Machine, or of a preview there. `at` is a moment, or the number of a session or an entry."""
    query = {"kind": kind, kind if kind in ("moment", "session") else "entry": at} if kind else None
    return reverse("admin:memory_agent_time_machine", args=[agent_id], query=query)


def who_decides(agent: Agent) -> str:
    """A text that says who may decide: the agent's steward, its runtime, or one of these two."""
    runtime = "the agent's runtime"
    link = "the agent's steward (by the mailed link)"
    if agent.steward and agent.is_steward_only:
        return link
    return f"{link} or {runtime}" if agent.steward and not letters.are_printed() else runtime
