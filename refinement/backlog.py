"""Who stands in line to be refined: agents that are due, each once, until a worker has refined them.

A task in the queue is a worker's wake-up: whose turn it is, it finds out when it takes one (`refinement.scheduling`).
So the queue may deliver one twice, or lose it with its server: nobody is refined twice for it, and the next sweep wakes
anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Value, When, Window
from django.db.models.functions import RowNumber, StrIndex, Substr
from django.utils import timezone

from audit.trail import Actor
from config.queue import REFINE_AGENT, SWEEP, QueueUnreachable, depth, is_put_later, put, put_later
from memory.agents.lifecycle import change
from memory.errors import MemoryDisabled
from memory.models import Agent, DueReason
from memory.writing import edits
from refinement import providers, schedule, scheduling
from refinement.models import Outcome, RefinementSession, Waiting

AT_ONCE = 4  # wake-ups that wait at most: whoever takes a turn wakes the next. Letters wait behind them
ROWS = 1_000  # in one statement
ASKED_AGAIN = timedelta(minutes=1)  # after which who asks is queued once more, should a worker have died with the task


class Place(NamedTuple):
    """Of an agent in line."""

    agent_id: int
    tenant_id: int
    model: str
    reason: str
    due_at: datetime | None


def ask(agent: Agent) -> Agent:
    """Have a worker refine the agent soon, because its own side asked: in its tenant's order, by its date.

    Raises MemoryDisabled, Erased, BackingOff, AllowanceSpent.
    """
    with edits.locked(agent) as row:
        due = schedule.ask(row)
        _call_again(due)
        return due


def ask_for(agent: Agent, actor: Actor) -> Agent:
    """… because a person asked, which the trail keeps: also a paused one, or one that waits after trouble.

    Raises MemoryDisabled, Erased.
    """
    with edits.locked(agent) as row:
        edits.require_key(row)
        if not row.memory_enabled:
            raise MemoryDisabled
        due = change(row, actor, due_at=timezone.now(), due_reason=DueReason.MANUAL)
        _call_again(due)
        return due


def _call_again(agent: Agent) -> None:
    """It is called anew if its task may be lost; what a person asked for goes to the front of its tenant's."""
    waits = Waiting.objects.filter(pk=agent.pk, taken_at=None)
    waits.filter(since__lt=timezone.now() - ASKED_AGAIN).delete()
    if agent.due_reason == DueReason.MANUAL:
        waits.update(asked=True)
    call(agent)


def when_over_budget(*, agent: Agent, **_: Any) -> None:
    """With the queue elsewhere, once it is committed: a sweep would wait for an import that stood in line before."""
    if settings.REDIS_URL:
        transaction.on_commit(partial(call, agent))
    else:
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

    Of each tenant, and of each provider it uses, first the one that a person asked for or that is longest overdue, then
    the second of each, and so on. Of what does not answer a few stand there, to find out when it does again: however
    long that takes, it does not keep the others out. Who is due no more, uses another model now, or has to make room,
    goes.
    """
    began = timezone.now()
    forget_lost()
    doubted = providers.doubted()
    chosen = _places(_in_turn().exclude(_using(doubted))[: settings.SWEEP_AGENTS])
    for name in doubted:
        chosen += _places(_asked_first(schedule.due().filter(_using([name])))[:AT_ONCE])
    stay = {(place.agent_id, place.model) for place in chosen}
    before = Waiting.objects.filter(taken_at=None, since__lt=began).values_list("pk", "model")
    gone = sorted(pk for pk, _ in set(before) - stay)
    for start in range(0, len(gone), ROWS):
        Waiting.objects.filter(taken_at=None, pk__in=gone[start : start + ROWS]).delete()
    came = _stand(chosen)
    wake()
    return came


def _in_turn() -> QuerySet[Agent]:
    place = Window(RowNumber(), partition_by=[F("tenant_id"), _PROVIDER], order_by=_ASKED_FIRST)
    return schedule.due().annotate(place=place).order_by("place", "due_at", "pk")


def _asked_first(agents: QuerySet[Agent]) -> QuerySet[Agent]:
    return agents.order_by(*_ASKED_FIRST)


def _using(names: Iterable[str]) -> Q:
    """Agents of these models, and of any model of these providers."""
    found = Q(model__in=list(names))
    for provider in (name for name in names if "/" not in name):
        found |= Q(model__startswith=f"{provider}/")
    return found


_PROVIDER = Substr(F("model"), 1, StrIndex(F("model"), Value("/")))
_ASKED_FIRST: Any = [
    Case(When(due_reason=DueReason.MANUAL, then=Value(0)), default=Value(1)).asc(), F("due_at").asc(), F("pk").asc()
]  # fmt: skip


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
        model=place.model,
        asked=place.reason == DueReason.MANUAL,
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
    """Whoever takes a turn, or has ended one, has another woken for the next; when nobody is left in line, others that
    are due are looked for.

    A queue that cannot be reached is left to the next sweep: what was done is done.
    """
    with suppress(QueueUnreachable):
        there = depth()
        if there < AT_ONCE:
            for agent_id in _next_agents(1):
                put(REFINE_AGENT, agent_id)
                return
        _wake_later()
        if not there and _is_dry():
            put(SWEEP)


def _wake_later() -> None:
    """Have somebody woken for those whose provider is left alone, once it no longer is."""
    shut = providers.shut()
    waits = Waiting.objects.filter(taken_at=None).filter(_using(shut)).first() if shut else None
    if waits is not None and not is_put_later(REFINE_AGENT):
        put_later(REFINE_AGENT, waits.pk, wait=min(shut.values()) - timezone.now())


def _is_dry() -> bool:
    """Whether nobody in line can be refined now, but others can that are due: there was no room for all. Who waits for
    its tenant, or for what does not answer, keeps nobody else waiting."""
    now = scheduling.closed()
    if scheduling.free(now).exists():
        return False
    others = schedule.due().exclude(tenant_id__in=now.tenants).exclude(_using([*now.providers, *providers.doubted()]))
    return others.filter(~Exists(Waiting.objects.filter(agent_id=OuterRef("pk")))).exists()


def _next_agents(most: int) -> Any:
    return scheduling.free().order_by("due_at").values_list("pk", flat=True)[:most]


def forget_lost() -> None:
    """Whose worker died may stand in line again. Its session, if there was one, is another's to end."""
    now = timezone.now()
    driven = RefinementSession.objects.filter(agent=OuterRef("pk"), outcome=Outcome.OPEN, lease_until__gte=now)
    opening = timedelta(seconds=settings.LEASE_SECONDS)  # an import may hold the agent for as long
    lost = Q(taken_at__lt=now - opening) | Q(taken_at__gt=now + opening)  # by a clock that was wrong
    Waiting.objects.filter(lost).filter(~Exists(driven)).delete()
