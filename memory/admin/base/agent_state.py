"""An agent's state in words and as a bar, for its own page and for the overview."""

from __future__ import annotations

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

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
