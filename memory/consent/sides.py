"""Who is an agent's side: its runtime, by the agent's key, unless its steward alone consents for it; or its steward."""

from __future__ import annotations

from audit.consent import same_address
from audit.models import ActorKind
from audit.trail import Actor
from memory import errors
from memory.models import Agent


def require(agent: Agent, actor: Actor) -> None:
    """Raise ConsentNeeded unless this is the agent's side."""
    is_runtime = actor.kind == ActorKind.AGENT and not agent.is_steward_only
    is_steward = actor.kind == ActorKind.STEWARD and same_address(actor.label, agent.steward)
    if not (is_runtime or is_steward):
        side = "its steward alone decides" if agent.is_steward_only else "its runtime or its steward decides"
        raise errors.ConsentNeeded(f"For this agent {side}.")
