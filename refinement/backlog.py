"""The backlog: the agents that are due and wait for a worker.

A task in the queue only wakes a worker. The worker then chooses an agent (`refinement.scheduling`). So if the queue
delivers a task twice, no agent is refined twice. If the queue loses a task, the next sweep wakes workers again.
"""

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
from refinement.llm.base import NoModel
from refinement.models import Dream, RefinementSession, Waiting, held

# At most this many wake-ups are queued, because mail waits behind them. A worker that takes an agent adds the next.
AT_ONCE = 4
MOST_FAILING = 100  # models that do not respond, whose agents a sweep adds
ROWS = 1_000  # in one statement
REPEAT_AFTER = timedelta(minutes=1)  # a repeated request gets a new task after this time, because the first may be lost


def request(agent: Agent) -> Agent:
    """Make the agent due now. The agent's side requests this.

    Raises MemoryDisabled, Erased, NoModel, BackingOff, AllowanceSpent.
    """
    with edits.locked(agent) as row:
        edits.require_key(row)
        switches.require_on(row)
        if not row.model:
            raise NoModel
        now = timezone.now()
        if row.failures_in_a_row and row.quiet_until and now < row.quiet_until:  # each attempt may cost money
            raise BackingOff(f"The last refinement failed. Try again after {row.quiet_until:%Y-%m-%d %H:%M:%S} UTC.")
        schedule.require_useful(row)
        if allowance.is_used_up(row.tenant, now):
            next_month = f"{allowance.next_month(now):%Y-%m-%d}"
            raise AllowanceSpent(f"The tenant has used up its model tokens of this month. Try again on {next_month}.")
        if schedule.why(row, now) != DueReason.MANUAL:  # a person's request takes priority
            row.due_reason = DueReason.AGENT
        row.due_at = now
        row.save(update_fields=["due_at", "due_reason"])
        _add_again(row)
        return row


def request_for(agent: Agent, actor: Actor) -> Agent:
    """Make the agent due now. A person requests this, and the trail records the request. This also works for an agent
    that is paused or in a cool-down. Raises MemoryDisabled, Erased.
    """
    with edits.locked(agent) as row:
        edits.require_key(row)
        switches.require_on(row)
        due = change(row, actor, due_at=timezone.now(), due_reason=DueReason.MANUAL)
        _add_again(due)
        return due


def _add_again(agent: Agent) -> None:
    """Add the agent to the backlog. If it is already in the backlog and its task may be lost, add it again. An agent
    takes priority if a person requested its refinement."""
    waits = Waiting.objects.filter(pk=agent.pk, taken_at=None)
    waits.filter(since__lt=timezone.now() - REPEAT_AFTER).delete()
    if agent.due_reason == DueReason.MANUAL:
        waits.update(asked=True)
    add(agent)


def when_over_budget(*, agent: Agent, **_: Any) -> None:
    """Add the agent to the backlog. With Redis, add it after the commit, because a long import must not delay a
    sweep."""
    if settings.REDIS_URL:
        transaction.on_commit(partial(add, agent))
    else:
        add(agent)


def add(agent: Agent) -> bool:
    """Add a due agent and wake a worker. Return False if the agent is already in the backlog."""
    with transaction.atomic():
        if added := bool(_add([agent])):
            put(REFINE_AGENT, agent.pk)
        return added


def add_if_due(agent_id: int) -> None:
    """Add the agent of a task if it is due. A sweep may have removed the agent because the backlog was full."""
    _add(if_due(agent_id))


def if_due(agent_id: int) -> QuerySet[Agent]:
    """The agent, if it is due or has a dream that waits."""
    return schedule.due().filter(pk=agent_id) or _dreaming().filter(pk=agent_id)


def sweep() -> int:
    """Add due agents, up to SWEEP_AGENTS, and wake workers. Returns how many were added.

    For each pair of tenant and provider, the agents are sorted: first those whose refinement a person requested, then
    those that have been due for the longest time. The sweep adds the first agent of each pair, then the second of each
    pair, and so on. If a provider or model does not respond, only a few of its agents are added, to find out when it
    responds again. An agent is removed if it is no longer due, if its model changed, or if too many other agents are
    before it.
    """
    began = timezone.now()
    schedule.bring_back()
    allowance.bring_back()
    add_lost()
    providers.forget_unused()
    due, is_failing = schedule.due(), providers.using(providers.failing_names())
    chosen = list(_in_turn(due.exclude(is_failing), "tenant_id", _PROVIDER)[: settings.SWEEP_AGENTS])
    chosen += _in_turn(due.filter(is_failing), "model").filter(place__lte=AT_ONCE)[: AT_ONCE * MOST_FAILING]
    chosen += _in_turn(_dreaming(), "tenant_id", _PROVIDER)[: settings.SWEEP_AGENTS]
    stay = {(agent.pk, agent.model) for agent in chosen}
    before = Waiting.objects.filter(taken_at=None, since__lt=began).values_list("pk", "model")
    gone = sorted(pk for pk, _ in set(before) - stay)
    for start in range(0, len(gone), ROWS):
        Waiting.objects.filter(taken_at=None, pk__in=gone[start : start + ROWS]).delete()
    added = _add(chosen)
    wake()
    return added


def _in_turn(agents: QuerySet[Agent], *of: Any) -> QuerySet[Any]:
    """Sort agents: first the first of each tenant and provider (or of each model), then the second, and so on."""
    place = Window(RowNumber(), partition_by=list(of), order_by=_REQUESTED_FIRST)
    columns = agents.select_related(None).only("tenant_id", "model", "due_reason", "due_at")
    return columns.annotate(place=place).order_by("place", "due_at", "pk")


def _dreaming() -> QuerySet[Agent]:
    """The agents with a dream that waits for a worker."""
    waiting = Dream.objects.filter(status=Dream.Status.PENDING)
    return Agent.objects.filter(pk__in=waiting.values("agent_id"), memory_enabled=True)


_PROVIDER = Substr(F("model"), 1, StrIndex(F("model"), Value("/")))
_REQUESTED_FIRST: Any = [
    Case(When(due_reason=DueReason.MANUAL, then=Value(0)), default=Value(1)).asc(), F("due_at").asc(), F("pk").asc()
]  # fmt: skip


def _add(agents: Iterable[Agent]) -> int:
    """Add the agents that are not in the backlog yet, and return their number. They are added in a fixed order, so that
    two sweeps cannot deadlock."""
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
        if agent.model
    ]
    if not rows:
        return 0
    with transaction.atomic():
        Waiting.objects.bulk_create(rows, batch_size=ROWS, ignore_conflicts=True)
        return Waiting.objects.filter(claim=claim).count()


def wake() -> None:
    """Queue tasks for agents that can be refined now, until AT_ONCE tasks are in the queue.

    The tasks in the queue may be of other kinds. So if there are enough, this queues one more, for an agent that has
    waited for a minute. Only tasks call this, so the task that it queued earlier has run.
    """
    following = list(scheduling.free().order_by("due_at", "pk")[:AT_ONCE])
    late = [each for each in following if each.since <= timezone.now() - REPEAT_AFTER]
    for each in following[depth() :] or late[:1]:
        put(REFINE_AGENT, each.pk)


def wake_next() -> None:
    """Wake another worker for the next agent. If the backlog is empty, queue a sweep.

    If the queue cannot be reached, the next sweep wakes a worker.
    """
    with suppress(QueueUnreachable):
        queued = depth()
        following = scheduling.free().order_by("due_at", "pk").first() if queued < AT_ONCE else None
        if following is not None:
            put(REFINE_AGENT, following.pk)
            return
        _wake_later()
        if not queued and _is_dry():
            put(SWEEP)


def _wake_later() -> None:
    """Queue a wake-up for the time when a closed provider opens again."""
    closed = providers.closed()
    waits = Waiting.objects.filter(taken_at=None).filter(providers.using(closed)).first() if closed else None
    if waits is not None and not is_put_later(REFINE_AGENT):
        put_later(REFINE_AGENT, waits.pk, wait=min(closed.values()) - timezone.now())


def _is_dry() -> bool:
    """Return True if no agent in the backlog can be refined now, and a due agent outside the backlog can be refined."""
    now = scheduling.closed()
    if scheduling.free(now).exists():
        return False
    failing = providers.using([*now.providers, *providers.failing_names()])
    others = schedule.due().exclude(tenant_id__in=now.tenants).exclude(failing)
    return others.filter(~Exists(Waiting.objects.filter(agent_id=OuterRef("pk")))).exists()


def add_lost() -> None:
    """Remove agents whose worker died, and add those that are due again. Their open sessions end separately."""
    now = timezone.now()
    driven = RefinementSession.objects.filter(held(now), agent=OuterRef("pk"))
    opening = timedelta(seconds=settings.LEASE_SECONDS)  # an import may lock the agent this long
    lost = Q(taken_at__lt=now - opening) | Q(taken_at__gt=now + opening)  # or a wrong clock set the time
    rows = Waiting.objects.filter(lost).filter(~Exists(driven))
    agents = list(rows.values_list("pk", flat=True))
    rows.filter(pk__in=agents).delete()
    for agent_id in agents:
        add_if_due(agent_id)
