"""What requests to read, requests to remove and proposals share: each of their steps is an entry of the trail."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils import timezone

from audit import verify
from audit.consent import same_address
from audit.models import ActorKind
from audit.trail import Actor
from config.queue import ASK_STEWARD, put
from memory.errors import ConsentNeeded
from memory.models import Agent
from memory.writing import edits

SYSTEM = Actor.system("consent")


def clock(agent: Agent) -> datetime:
    """Now, but never earlier than the agent's last entry: a clock that is set back revives nothing."""
    now = timezone.now()
    return max(now, agent.audit_at) if agent.audit_at else now


def write(agent: Agent, operation: str, actor: Actor, detail: dict[str, Any]) -> int:
    """Append an entry; its number."""
    with edits.begin(agent, operation, actor, is_notice=True) as edit:
        edit.detail = detail
        edit.finish(always=True)
    return edit.seq


def ask_steward(agent: Agent, number: int) -> None:
    """Have a link about the entry of this number mailed to the steward, if there is one."""
    if agent.steward:
        put(ASK_STEWARD, agent.pk, number)


def require_side(agent: Agent, actor: Actor, *, is_stewards_alone: bool) -> None:
    """Raise ConsentNeeded unless the actor is the agent's steward or, if the steward is not alone, its runtime."""
    is_runtime = actor.kind == ActorKind.AGENT and not is_stewards_alone
    is_steward = actor.kind == ActorKind.STEWARD and same_address(actor.label, agent.steward)
    if not (is_runtime or is_steward):
        side = "its steward alone decides" if is_stewards_alone else "its runtime or its steward decides"
        raise ConsentNeeded(f"For this agent {side}.")


def is_altered(agent: Agent, number: int) -> bool:
    """Whether the trail, from the entry of this number on, is not as it was written."""
    return any(verify.chain_since(agent.pk, agent.label, number, (agent.audit_seq, bytes(agent.audit_mac))))
