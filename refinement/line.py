"""Who stands in line to be refined: agents that are due, each once, until a worker has refined them.

A task in the queue is a worker's wake-up: whose turn it is, it finds out when it takes one (`refinement.turns`). So the
queue may deliver one twice, or lose it with its server: nobody is refined twice for it, and the next sweep wakes anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, QuerySet, Value, When, Window
from django.db.models.functions import RowNumber, StrIndex, Substr
from django.utils import timezone

from audit.trail import Actor
from config.queue import REFINE_AGENT, depth, put
from memory import editing
from memory.agents import change
from memory.errors import MemoryDisabled
from memory.models import Agent, DueReason
from refinement import providers, schedule, turns
from refinement.models import Outcome, RefinementSession, Waiting

AT_ONCE = 100  # wake-ups that a sweep queues at most: a worker that has refined somebody queues the next
ROWS = 1_000  # in one statement
ASKED_AGAIN = timedelta(minutes=1)  # after which who asks is queued once more, should a worker have died with the task
OPENING = timedelta(minutes=2)  # from being taken until there is a session
ASKED = (DueReason.MANUAL, DueReason.AGENT)


class Place(NamedTuple):
    """Of an agent in line."""

    agent_id: int
    tenant_id: int
    model: str
    reason: str
    due_at: datetime | None


def ask(agent: Agent) -> Agent:
    """Have a worker refine the agent next, because its own side asked.

    Raises MemoryDisabled, Erased, BackingOff, AllowanceSpent.
    """
    with editing.locked(agent) as row:
        due = schedule.ask(row)
        _call_again(due)
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
        _call_again(due)
        return due


def _call_again(agent: Agent) -> None:
    """It goes to the front, and is called anew if its task may be lost."""
    waits = Waiting.objects.filter(pk=agent.pk, taken_at=None)
    waits.filter(since__lt=timezone.now() - ASKED_AGAIN).delete()
    waits.update(asked=True)
    call(agent)


def when_over_budget(*, agent: Agent, **_: Any) -> None:
    call(agent)


def call(agent: Agent) -> bool:
    """Have an agent that is due stand in line, and wake a worker; False if it does already."""
    place = Place(agent.pk, agent.tenant_id, agent.model, agent.due_reason, agent.due_at)
    with transaction.atomic():
        called = bool(_stand([place]))
        if called:
            put(REFINE_AGENT, agent.pk)
        return called


def look(agent_id: int) -> None:
    """Whoever has a wake-up of its own, and is due, stands in line: a sweep may have sent it away for want of room."""
    _stand(_places(schedule.due().filter(pk=agent_id)))


def sweep() -> int:
    """Have those that are due stand in line, as many as there is room for; how many came. Wakes workers.

    Of each tenant, and of each provider it uses, first the one that somebody asked for or that is longest overdue, then
    the second of each, and so on. Who is due no more, or has to make room, goes.
    """
    began = timezone.now()
    forget_lost()
    chosen = _places(_in_turn()[: settings.SWEEP_AGENTS])
    came = _stand(chosen)
    before = Waiting.objects.filter(taken_at=None, since__lt=began).values_list("pk", flat=True)
    gone = sorted(set(before) - {place.agent_id for place in chosen})
    for start in range(0, len(gone), ROWS):
        Waiting.objects.filter(taken_at=None, pk__in=gone[start : start + ROWS]).delete()
    wake()
    return came


def _in_turn() -> QuerySet[Agent]:
    asked_first = Case(When(due_reason__in=ASKED, then=Value(0)), default=Value(1)).asc()
    order: Any = [asked_first, F("due_at").asc(), F("pk").asc()]
    place = Window(RowNumber(), partition_by=[F("tenant_id"), _PROVIDER], order_by=order)
    return schedule.due().annotate(place=place).order_by("place", "due_at", "pk")


_PROVIDER = Substr(F("model"), 1, StrIndex(F("model"), Value("/")))


def _places(agents: QuerySet[Agent]) -> list[Place]:
    rows = agents.select_related(None).values_list("pk", "tenant_id", "model", "due_reason", "due_at")
    return [Place(*row) for row in rows]


def _stand(places: Iterable[Place]) -> int:
    """Put them in line who do not stand there yet; how many. Always in the same order: two sweeps must not wait for
    each other."""
    claim, now = secrets.randbits(62), timezone.now()
    rows = [_waiting(place, claim, now) for place in sorted(places)]
    if not rows:
        return 0
    with transaction.atomic():
        Waiting.objects.bulk_create(rows, batch_size=ROWS, ignore_conflicts=True)
        return Waiting.objects.filter(claim=claim).count()


def _waiting(place: Place, claim: int, now: datetime) -> Waiting:
    return Waiting(
        agent_id=place.agent_id,
        tenant_id=place.tenant_id,
        provider=providers.of(place.model),
        asked=place.reason in ASKED,
        due_at=place.due_at,
        since=now,
        claim=claim,
    )


def wake() -> None:
    """See to it that as many wake-ups wait as there are agents that could be refined now, `AT_ONCE` at most."""
    there = depth()
    if there < AT_ONCE:
        for agent_id in list(_next_agents(AT_ONCE))[there:]:
            put(REFINE_AGENT, agent_id)


def go_on() -> None:
    """A worker that has refined somebody has one woken for the next: itself, if it is the first to be free."""
    if depth() < AT_ONCE:
        for agent_id in _next_agents(1):
            put(REFINE_AGENT, agent_id)


def _next_agents(most: int) -> Any:
    return turns.free().order_by("due_at").values_list("pk", flat=True)[:most]


def forget_lost() -> None:
    """Whose worker died may stand in line again. Its session, if there was one, is another's to end."""
    now = timezone.now()
    driven = RefinementSession.objects.filter(agent=OuterRef("pk"), outcome=Outcome.OPEN, lease_until__gte=now)
    Waiting.objects.filter(taken_at__lt=now - OPENING).filter(~Exists(driven)).delete()
