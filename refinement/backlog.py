"""The agents that wait for refinement: those that are due, each once, until a worker has refined them.

A task of the queue only wakes a worker. The worker then chooses an agent (`refinement.scheduling`). So the queue may
deliver a task twice, or lose it: no agent is refined twice, and the next sweep wakes workers again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Value, When, Window
from django.db.models.functions import RowNumber, StrIndex, Substr
from django.utils import timezone

from audit.trail import Actor
from config.queue import REFINE_AGENT, SWEEP, QueueUnreachable, depth, is_put_later, put, put_later
from memory.agents.lifecycle import change
from memory.models import Agent, DueReason
from memory.policy import switches
from memory.writing import edits
from refinement import allowance, providers, schedule, scheduling
from refinement.errors import AllowanceSpent, BackingOff
from refinement.models import Outcome, RefinementSession, Waiting

AT_ONCE = (
    4  # wake-ups in the queue at most: each worker that takes an agent adds the next one. Letters wait behind them
)
ROWS = 1_000  # in one statement
ASKED_AGAIN = timedelta(minutes=1)  # after which an agent that asks again gets a new task: the first may be lost


def ask(agent: Agent) -> Agent:
    """Have a worker refine the agent soon, because its own side asked.

    Raises MemoryDisabled, Erased, BackingOff, AllowanceSpent.
    """
    with edits.locked(agent) as row:
        edits.require_key(row)
        switches.require_on(row)
        now = timezone.now()
        if row.failures_in_a_row and row.quiet_until and now < row.quiet_until:  # each try may cost the operator money
            raise BackingOff(f"Refinement ended in trouble; ask again from {row.quiet_until:%Y-%m-%d %H:%M:%S} UTC on.")
        if allowance.is_used_up(row.tenant, now):
            again = f"ask again from {allowance.next_month(now):%Y-%m-%d} on."
            raise AllowanceSpent(f"The tenant's model tokens of this month are used up; {again}")
        if schedule.why(row, now) != DueReason.MANUAL:  # a person's request has more rights: it stays
            row.due_reason = DueReason.AGENT
        row.due_at = now
        row.save(update_fields=["due_at", "due_reason"])
        _call_again(row)
        return row


def ask_for(agent: Agent, actor: Actor) -> Agent:
    """The same, because a person asked, which the trail records. Works for a paused agent, or one that waits after
    trouble, too. Raises MemoryDisabled, Erased."""
    with edits.locked(agent) as row:
        edits.require_key(row)
        switches.require_on(row)
        due = change(row, actor, due_at=timezone.now(), due_reason=DueReason.MANUAL)
        _call_again(due)
        return due


def _call_again(agent: Agent) -> None:
    """Call the agent, and a second time if its task may be lost. Agents that a person asked for come first."""
    waits = Waiting.objects.filter(pk=agent.pk, taken_at=None)
    waits.filter(since__lt=timezone.now() - ASKED_AGAIN).delete()
    if agent.due_reason == DueReason.MANUAL:
        waits.update(asked=True)
    call(agent)


def when_over_budget(*, agent: Agent, **_: Any) -> None:
    """With Redis, call the agent after the commit: an import that calls it earlier would hold up a sweep."""
    if settings.REDIS_URL:
        transaction.on_commit(partial(call, agent))
    else:
        call(agent)


def call(agent: Agent) -> bool:
    """Let an agent that is due wait, and wake a worker. False if it waits already."""
    with transaction.atomic():
        called = bool(_add([agent]))
        if called:
            put(REFINE_AGENT, agent.pk)
        return called


def look(agent_id: int) -> None:
    """Let an agent with a task of its own wait, if it is due: a sweep may have removed it for want of room."""
    _add(schedule.due().filter(pk=agent_id))


def sweep() -> int:
    """Let agents that are due wait, as many as there is room for, and wake workers. Returns how many were added.

    Of each tenant, and of each provider it uses, the first agent comes first, then the second of each, and so on. The
    first is one that a person asked for, or the longest overdue. For a provider or model that does not answer, only a
    few agents wait, to find out when it answers again: so it does not keep others out. Agents that are not due any
    more, that use another model now, or for which there is no room, are removed.
    """
    began = timezone.now()
    forget_lost()
    doubted = providers.doubted()
    chosen = list(_in_turn().exclude(_using(doubted))[: settings.SWEEP_AGENTS])
    for name in doubted:
        chosen += schedule.due().filter(_using([name])).order_by(*_ASKED_FIRST)[:AT_ONCE]
    stay = {(agent.pk, agent.model) for agent in chosen}
    before = Waiting.objects.filter(taken_at=None, since__lt=began).values_list("pk", "model")
    gone = sorted(pk for pk, _ in set(before) - stay)
    for start in range(0, len(gone), ROWS):
        Waiting.objects.filter(taken_at=None, pk__in=gone[start : start + ROWS]).delete()
    added = _add(chosen)
    wake()
    return added


def _in_turn() -> QuerySet[Agent]:
    place = Window(RowNumber(), partition_by=[F("tenant_id"), _PROVIDER], order_by=_ASKED_FIRST)
    columns = schedule.due().select_related(None).only("tenant_id", "model", "due_reason", "due_at")
    return columns.annotate(place=place).order_by("place", "due_at", "pk")


def _using(names: Iterable[str]) -> Q:
    """Agents of these models, and of all models of these providers."""
    found = Q(model__in=list(names))
    for provider in (name for name in names if "/" not in name):
        found |= Q(model__startswith=f"{provider}/")
    return found


_PROVIDER = Substr(F("model"), 1, StrIndex(F("model"), Value("/")))
_ASKED_FIRST: Any = [
    Case(When(due_reason=DueReason.MANUAL, then=Value(0)), default=Value(1)).asc(), F("due_at").asc(), F("pk").asc()
]  # fmt: skip


def _add(agents: Iterable[Agent]) -> int:
    """Let agents wait that do not wait yet; returns how many. Always in the same order, so that two sweeps do not
    deadlock."""
    claim, now = secrets.randbits(62), timezone.now()
    rows = [
        Waiting(
            agent_id=agent.pk,
            tenant_id=agent.tenant_id,
            provider=providers.of(agent.model),
            model=agent.model,
            asked=agent.due_reason == DueReason.MANUAL,
            due_at=agent.due_at,
            since=now,
            claim=claim,
        )
        for agent in sorted(agents, key=attrgetter("pk"))
    ]
    if not rows:
        return 0
    with transaction.atomic():
        Waiting.objects.bulk_create(rows, batch_size=ROWS, ignore_conflicts=True)
        return Waiting.objects.filter(claim=claim).count()


def wake() -> None:
    """Queue as many wake-ups as there are agents that can be refined now, but at most `AT_ONCE`."""
    queued = depth()
    if queued < AT_ONCE:
        for agent_id in _next_agents(AT_ONCE)[queued:]:
            put(REFINE_AGENT, agent_id)


def go_on() -> None:
    """Wake another worker for the next agent. If nobody waits, look for others that are due.

    If the queue cannot be reached, the next sweep does it.
    """
    with suppress(QueueUnreachable):
        queued = depth()
        following = _next_agents(1) if queued < AT_ONCE else []
        if following:
            put(REFINE_AGENT, following[0])
            return
        _wake_later()
        if not queued and _is_dry():
            put(SWEEP)


def _wake_later() -> None:
    """Have a worker woken for the agents whose provider is closed, when it opens again."""
    shut = providers.shut()
    waits = Waiting.objects.filter(taken_at=None).filter(_using(shut)).first() if shut else None
    if waits is not None and not is_put_later(REFINE_AGENT):
        put_later(REFINE_AGENT, waits.pk, wait=min(shut.values()) - timezone.now())


def _is_dry() -> bool:
    """Whether no agent that waits can be refined now, but others that are due can: there was no room for all."""
    now = scheduling.closed()
    if scheduling.free(now).exists():
        return False
    others = schedule.due().exclude(tenant_id__in=now.tenants).exclude(_using([*now.providers, *providers.doubted()]))
    return others.filter(~Exists(Waiting.objects.filter(agent_id=OuterRef("pk")))).exists()


def _next_agents(most: int) -> list[int]:
    return list(scheduling.free().order_by("due_at", "pk").values_list("pk", flat=True)[:most])


def forget_lost() -> None:
    """Remove agents whose worker died, so that they can wait again. Another worker ends their open sessions."""
    now = timezone.now()
    driven = RefinementSession.objects.filter(agent=OuterRef("pk"), outcome=Outcome.OPEN, lease_until__gte=now)
    opening = timedelta(seconds=settings.LEASE_SECONDS)  # an import may hold the agent for as long
    lost = Q(taken_at__lt=now - opening) | Q(taken_at__gt=now + opening)  # by a clock that was wrong
    Waiting.objects.filter(lost).filter(~Exists(driven)).delete()
