"""Whose turn it is: due agents wait in the queue, each once, until a worker takes them.

The queue may deliver a task twice, and may lose it with its server. A worker looks, with the agent's row locked, if the
agent is still due; and who was lost is queued again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from audit.trail import Actor
from config.queue import REFINE_AGENT, depth, put
from memory import editing
from memory.agents import change
from memory.errors import MemoryDisabled
from memory.models import Agent, DueReason
from refinement import schedule
from refinement import session as sessions
from refinement.models import RefinementSession, Waiting

log = structlog.get_logger("palimpsest.refinement")

AT_ONCE = 100  # agents queued in one transaction
ASKED_AGAIN = timedelta(minutes=1)  # after which who asks is queued once more, should a worker have died with the task
LOST_AFTER = timedelta(minutes=10)  # waiting for a task that an empty queue does not hold
LOST_AT_LAST = timedelta(days=1)  # … or any queue


def ask(agent: Agent) -> Agent:
    """Have a worker refine the agent next, because its own side asked. Raises MemoryDisabled, Erased, BackingOff."""
    with editing.locked(agent) as row:
        due = schedule.ask(row)
        Waiting.objects.filter(pk=agent.pk, since__lt=timezone.now() - ASKED_AGAIN).delete()
        call([agent.pk])
        return due


def ask_for(agent: Agent, actor: Actor) -> Agent:
    """… because a person asked, which the trail keeps: also a paused one, or one that waits after trouble.

    Raises MemoryDisabled, Erased.
    """
    with editing.locked(agent) as row:
        editing.require_key(row)
        if not row.memory_enabled:
            raise MemoryDisabled
        due = change(row, actor, due_at=timezone.now(), due_reason=DueReason.MANUAL)
        Waiting.objects.filter(pk=agent.pk, since__lt=timezone.now() - ASKED_AGAIN).delete()
        call([agent.pk])
        return due


def when_over_budget(*, agent: Agent, **_: Any) -> None:
    call([agent.pk])


def call_due() -> int:
    """Queue the agents that are due and do not wait yet, longest overdue first; how many."""
    _forget_lost()
    waiting = Waiting.objects.filter(agent_id=OuterRef("pk"))
    room = max(0, settings.SWEEP_AGENTS - Waiting.objects.count())
    agents = list(schedule.due().filter(~Exists(waiting)).values_list("pk", flat=True)[:room])
    return sum(_called(agents[place : place + AT_ONCE]) for place in range(0, len(agents), AT_ONCE))


def _called(agents: Sequence[int]) -> int:
    """The same as `call`, where one that cannot be queued must not keep the others waiting."""
    try:
        return call(agents)
    except Exception as failure:
        if len(agents) > 1:
            return sum(_called([agent]) for agent in agents)
        fault = (type(failure), failure, failure.__traceback__)
        log.error("due agent not queued", agent=agents[0], exc_info=fault)
        return 0


def call(agents: Sequence[int]) -> int:
    """Queue those of these agents that do not wait yet, in one transaction; how many."""
    claim = secrets.randbits(62)
    rows = [Waiting(agent_id=agent, since=timezone.now(), claim=claim) for agent in agents]
    with transaction.atomic():
        Waiting.objects.bulk_create(rows, ignore_conflicts=True)
        claimed = set(Waiting.objects.filter(agent_id__in=agents, claim=claim).values_list("pk", flat=True))
        for agent in agents:
            if agent in claimed:
                put(REFINE_AGENT, agent)
    return len(claimed)


def take(agent_id: int) -> None:
    """The agent waits no more: a worker has its task."""
    Waiting.objects.filter(pk=agent_id).delete()


def open_due(agent: Agent) -> RefinementSession | None:
    """Open the agent's session if it is due; None when it is not, or is being refined.

    Looked at and opened under one lock: of two workers with the same task, one finds nothing to do.
    """
    with editing.locked(agent) as row:
        if not schedule.due().filter(pk=row.pk).exists():
            return None
        return sessions.open_session(row, trigger=row.due_reason)


def _forget_lost() -> None:
    """Who waits for a task that is no more, because Redis lost it, may be queued again."""
    now = timezone.now()
    Waiting.objects.filter(since__lt=now - LOST_AT_LAST).delete()
    if depth() == 0:
        Waiting.objects.filter(since__lt=now - LOST_AFTER).delete()
