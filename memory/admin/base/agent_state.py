"""An agent's state in words and as a bar, for its own page and for the overview."""

from __future__ import annotations

from django.utils.html import format_html
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
    told = f"{agent.core_tokens:,} of {agent.budget_tokens:,} tokens, target {agent.target_tokens:,}"
    return format_html(
        '<span class="pal-nowrap"><meter min="0" low="{}" high="{}" max="{}" optimum="0" value="{}" title="{}"'
        ' aria-label="{}"></meter> {}</span>',
        agent.target_tokens,
        agent.budget_tokens,
        max(1, agent.core_tokens, agent.budget_tokens),
        agent.core_tokens,
        told,
        told,
        f"{agent.core_tokens:,} / {agent.budget_tokens:,}",
    )
