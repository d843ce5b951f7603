"""Common functions of access requests, removal requests and proposals. Each step is an entry of the audit trail."""

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
    """The present time, or the time of the agent's last entry if this is later. So a request stays expired even if the
    clock is set back."""
    now = timezone.now()
    return max(now, agent.audit_at) if agent.audit_at else now


def write(agent: Agent, operation: str, actor: Actor, detail: dict[str, Any]) -> int:
    """Append an entry and return its number."""
    with edits.begin(agent, operation, actor, is_notice=True) as edit:
        edit.detail = detail
        edit.finish(always=True)
    return edit.seq


def ask_steward(agent: Agent, number: int) -> None:
    """If the agent has a steward, queue a mail to the steward. The mail has a link to the page of request `number`."""
    if agent.steward:
        put(ASK_STEWARD, agent.pk, number)


def require_side(agent: Agent, actor: Actor, *, is_steward_only: bool) -> None:
    """Raise ConsentRequired unless the actor is the agent's steward or its runtime. If `is_steward_only` is
    true, the runtime is refused too."""
    is_runtime = actor.kind == ActorKind.AGENT and not is_steward_only
    is_steward = actor.kind == ActorKind.STEWARD and same_address(actor.label, agent.steward)
    if not (is_runtime or is_steward):
        side = "only its steward decides" if is_steward_only else "its runtime or its steward decides"
        raise ConsentRequired(f"For this agent, {side}.")


def is_altered(agent: Agent, number: int) -> bool:
    """Whether somebody altered the audit trail from entry `number` on."""
    return any(verify.chain_since(agent.pk, agent.label, number, (agent.audit_seq, bytes(agent.audit_mac))))


def require_room(agent: Agent, actor: Actor) -> None:
    """Raise TooManyRequests if the actor or the agent has reached the limit of requests in 24 hours.

    Access requests, removal requests and proposals count, because each of them sends mail to the steward and adds a
    permanent entry. They also count after they are decided or withdrawn. The limit of an actor is ASKS_PER_PERSON, for
    all agents together. The limit of an agent is ASKS_PER_AGENT, for all actors together.

    The caller must have locked the agent's row. An actor who asks several agents at the same moment can slightly exceed
    ASKS_PER_PERSON.
    """
    entries = AuditEntry.objects.filter(ASKS, at__gt=clock(agent) - DAY)
    by_actor = entries.filter(actor_kind=actor.kind, actor_label=actor.label)
    of_agent = entries.filter(CONSENT, agent_id=agent.pk)
    full = [
        *_full_until(by_actor, "You", settings.ASKS_PER_PERSON),
        *_full_until(of_agent, "This agent's side", settings.ASKS_PER_AGENT),
    ]
    if full:
        until, who, most = max(full)
        raise TooManyRequests(who, most, until)


def _full_until(entries: QuerySet[AuditEntry], who: str, most: int) -> list[tuple[datetime, str, int]]:
    """Return a list with one tuple: the time at which another request is possible, `who` and `most`.

    The time is one day after the entry at place `most`, counted from the newest entry. If there are fewer entries, the
    list is empty.
    """
    times = entries.order_by("-at").values_list("at", flat=True)[most - 1 : most]
    return [(at + DAY, who, most) for at in times]
