"""What requests to read, requests to remove and proposals share: each of their steps is an entry of the trail."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from audit import verify
from audit.consent import same_address
from audit.models import ASKS, CONSENT, ActorKind, AuditEntry
from audit.trail import Actor
from config.queue import ASK_STEWARD, put
from memory.errors import ConsentRequired, TooManyRequests
from memory.models import Agent
from memory.writing import edits

SYSTEM = Actor.system("consent")
DAY = timedelta(hours=24)


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
    """Raise ConsentRequired unless the actor is the agent's steward or, if the steward is not alone, its runtime."""
    is_runtime = actor.kind == ActorKind.AGENT and not is_stewards_alone
    is_steward = actor.kind == ActorKind.STEWARD and same_address(actor.label, agent.steward)
    if not (is_runtime or is_steward):
        side = "its steward alone decides" if is_stewards_alone else "its runtime or its steward decides"
        raise ConsentRequired(f"For this agent {side}.")


def is_altered(agent: Agent, number: int) -> bool:
    """Whether the trail, from the entry of this number on, is not as it was written."""
    return any(verify.chain_since(agent.pk, agent.label, number, (agent.audit_seq, bytes(agent.audit_mac))))


def require_room(agent: Agent, actor: Actor) -> None:
    """Raise TooManyRequests if this agent's side is not to be asked by this actor now.

    Each request, to read or to remove, and each proposal is a letter to its steward, and an entry for ever. So within
    24 hours a person, or a program, asks so many times, of whichever agents; and one agent's side is asked so many
    times by all of them. Counted in the trail: nothing is bought by a decision, a withdrawal or another proposal.

    The caller holds the agent's row locked, so that no two take the last place there is. Only who asks several agents'
    sides in the same moment may come to some more than their own share.
    """
    asked = AuditEntry.objects.filter(ASKS, at__gt=clock(agent) - DAY)
    by_actor = asked.filter(actor_kind=actor.kind, actor_label=actor.label)
    of_agent = asked.filter(CONSENT, agent_id=agent.pk)
    full = [
        *_full_until(by_actor, "You", settings.ASKS_PER_PERSON),
        *_full_until(of_agent, "This agent's side", settings.ASKS_PER_AGENT),
    ]
    if full:
        until, who, most = max(full)
        raise TooManyRequests(who, most, until)


def _full_until(entries: QuerySet[AuditEntry], who: str, most: int) -> list[tuple[datetime, str, int]]:
    """When the first of the last so many is a day old; nothing where there are fewer."""
    times = entries.order_by("-at").values_list("at", flat=True)[most - 1 : most]
    return [(at + DAY, who, most) for at in times]
