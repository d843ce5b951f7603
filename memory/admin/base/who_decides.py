"""Who decides about what is asked of an agent, as it stands: its steward, its runtime, or either."""

from __future__ import annotations

from memory.mail import letters
from memory.models import Agent


def who(agent: Agent, path: str) -> str:
    """`path` is where its runtime says yes, below `/api/v1/`."""
    runtime = f"its runtime: POST /api/v1/{path} with the agent's key"
    link = "the link that is mailed to its steward"
    if agent.steward and agent.is_steward_only:
        return link
    return f"{link}, or {runtime}" if agent.steward and not letters.are_printed() else runtime
