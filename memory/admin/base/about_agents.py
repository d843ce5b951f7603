"""What several pages say of an agent: its weight, why it is due, who decides for it, and where its pages are."""

from __future__ import annotations

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from memory.mail import letters
from memory.models import Agent

WHY = {
    "weekly": "its date",
    "over_budget": "over budget",
    "manual": "asked for by a person",
    "agent": "asked for by itself",
    "retry": "once more, after trouble",
}


def budget_bar(agent: Agent) -> SafeString:
    """Core tokens as a part of the budget: yellow above the target, red above the budget."""
    most = max(1, agent.core_tokens, agent.budget_tokens)
    return render_to_string("admin/budget_bar.html", {"agent": agent, "most": most})


def ask_access_address(agent_id: int, **asked: int | str) -> str:
    """The page on which access is asked for, with these fields filled in."""
    return reverse("admin:memory_agent_ask", args=[agent_id], query=asked or None)


def time_machine_address(agent_id: int, kind: str = "", at: int | str = "") -> str:
    query = {"kind": kind, "at": at} if kind else None
    return reverse("admin:memory_agent_time_machine", args=[agent_id], query=query)


def who_decides(agent: Agent, path: str) -> str:
    """Its steward, its runtime, or either. `path` is where its runtime says yes, below `/api/v1/`."""
    runtime = f"its runtime: POST /api/v1/{path} with the agent's key"
    link = "the link that is mailed to its steward"
    if agent.steward and agent.is_steward_only:
        return link
    return f"{link}, or {runtime}" if agent.steward and not letters.are_printed() else runtime
