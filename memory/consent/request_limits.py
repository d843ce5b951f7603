"""How often an agent's side is asked: each request, to read or to remove, and each proposal is a letter to its steward,
and an entry for ever.

Within 24 hours a person, or a program, asks so many times, of whichever agents; and one agent's side is asked so many
times by all of them. Counted in the trail: nothing is bought by a decision, a withdrawal or another proposal.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import QuerySet

from audit.models import ASKS, CONSENT, AuditEntry
from audit.trail import Actor
from memory.errors import TooManyAsked
from memory.models import Agent

DAY = timedelta(hours=24)


def require(agent: Agent, actor: Actor, now: datetime) -> None:
    """Raise TooManyAsked if this agent's side is not to be asked by this actor now.

    The caller holds the agent's row locked, so that no two take the last place there is. Only who asks several agents'
    sides in the same moment may come to some more than their own share.
    """
    asked = AuditEntry.objects.filter(ASKS, at__gt=now - DAY)
    by_actor = asked.filter(actor_kind=actor.kind, actor_label=actor.label)
    of_agent = asked.filter(CONSENT, agent_id=agent.pk)
    full = [
        *_full_until(by_actor, "You have", settings.ASKS_PER_PERSON),
        *_full_until(of_agent, "This agent's side was", settings.ASKS_PER_AGENT),
    ]
    if full:
        until, who, most = max(full)
        raise TooManyAsked(who, most, until)


def _full_until(entries: QuerySet[AuditEntry], who: str, most: int) -> list[tuple[datetime, str, int]]:
    """When the first of the last so many is a day old; nothing where there are fewer."""
    times = entries.order_by("-at").values_list("at", flat=True)[most - 1 : most]
    return [(at + DAY, who, most) for at in times]
