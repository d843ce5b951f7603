"""When agents are due, and why (30-refinement, When)."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from memory.agents import due_dates
from memory.errors import MemoryDisabled
from memory.models import Agent, DueReason
from memory.writing import cooldown, edits
from refinement import allowance
from refinement.errors import AllowanceSpent, BackingOff
from refinement.models import Driver, Outcome, RefinementSession

LEASE_EXPIRED, WORKER_STOPPED = "lease_expired", "worker_stopped"  # why a session ended: nobody drove it any more
FIRST_RETRY = timedelta(hours=1)
LONGEST_RETRY = timedelta(days=7)


def due(now: datetime | None = None) -> QuerySet[Agent]:
    """The agents that are due, longest overdue first, in one query. An agent with an open session is not among
    them, unless its lease has run out; a paused one, or one whose tenant has used up its month's model tokens, only
    when a person asked."""
    now = now or timezone.now()
    held = RefinementSession.objects.filter(agent=OuterRef("pk"), outcome=Outcome.OPEN, lease_until__gte=now)
    return (
        overdue(now)
        .filter(~Exists(held))
        .filter(Q(due_reason=DueReason.MANUAL) | ~allowance.used_up(now))
        .select_related("tenant")
        .order_by("due_at", "pk")
    )


def overdue(now: datetime | None = None) -> QuerySet[Agent]:
    """… and those that are being refined, or wait for their tenant's next month: whose date has come, as people see
    it."""
    rows = Agent.objects.filter(due_at__lte=now or timezone.now(), memory_enabled=True)
    return rows.filter(Q(due_reason=DueReason.MANUAL) | Q(paused=False))


def why(agent: Agent, now: datetime | None = None) -> str:
    """The reason an agent is due, or an empty text."""
    due = agent.due_at is not None and agent.due_at <= (now or timezone.now())
    return agent.due_reason if due and agent.memory_enabled else ""


def ask(agent: Agent) -> Agent:
    """Make an agent due at once because its own side asked.

    Raises MemoryDisabled, Erased, BackingOff, AllowanceSpent.
    """
    with edits.locked(agent) as row:
        edits.require_key(row)
        if not row.memory_enabled:
            raise MemoryDisabled
        now = timezone.now()
        if row.failures_in_a_row and row.quiet_until and now < row.quiet_until:  # each try may cost the operator money
            raise BackingOff(f"Refinement ended in trouble; ask again from {row.quiet_until:%Y-%m-%d %H:%M:%S} UTC on.")
        if allowance.is_used_up(row.tenant, now):
            raise AllowanceSpent(f"The tenant's model tokens of this month are used up; {_from(now)}")
        is_called = row.due_reason == DueReason.MANUAL and row.due_at is not None and row.due_at <= now
        row.due_at, row.due_reason = now, DueReason.MANUAL if is_called else DueReason.AGENT  # a person's goes further
        row.save(update_fields=["due_at", "due_reason"])
        return row


def _from(now: datetime) -> str:
    return f"ask again from {allowance.next_month(now):%Y-%m-%d} on."


def put_off(agent: Agent) -> None:
    """Have an agent whose session could not even be opened wait as after one that failed."""
    with edits.locked(agent) as row:
        row.failures_in_a_row += 1
        _wait(row, timezone.now(), retry_after(row.failures_in_a_row))
        row.save(update_fields=["failures_in_a_row", "quiet_until", "due_at", "due_reason"])


def set_next(agent: Agent, session: RefinementSession) -> None:
    """The next due date, set when a session closes."""
    now = session.closed_at or timezone.now()
    troubled = session.outcome in (Outcome.FAILED, Outcome.INCOMPLETE, Outcome.ABANDONED)
    if agent.failures_in_a_row and session.driver == Driver.RUNTIME and not troubled:
        _keep_waiting(agent, now)  # a runtime's own model says nothing of the one that failed
        return
    agent.failures_in_a_row = agent.failures_in_a_row + 1 if troubled else 0
    agent.last_refined_at = now
    agent.quiet_until = agent.quiet_below_tokens = None
    agent.due_at, agent.due_reason = _weekly(agent, now)
    if troubled:
        again = agent.failures_in_a_row == 1 and _was_the_workers_fault(session)
        _wait(agent, now, timedelta() if again else retry_after(agent.failures_in_a_row))
        if again and session.trigger == DueReason.MANUAL:
            agent.due_reason = DueReason.MANUAL  # what a person asked for, of a paused agent perhaps
    elif session.tokens_after > agent.budget_tokens:
        _stay_quiet(agent, now)
    agent.save(
        update_fields=[
            "failures_in_a_row",
            "last_refined_at",
            "quiet_until",
            "quiet_below_tokens",
            "due_at",
            "due_reason",
        ]
    )


def _weekly(agent: Agent, now: datetime) -> tuple[datetime | None, str]:
    every = agent.refine_every
    return (due_dates.following(now, every, agent.pk) if every else None), DueReason.WEEKLY


def retry_after(failures: int) -> timedelta:
    """How long an agent waits after so many sessions in a row that ended in trouble."""
    return min(FIRST_RETRY * (1 << min(max(failures - 1, 0), 10)), LONGEST_RETRY)


def _wait(agent: Agent, now: datetime, wait: timedelta) -> None:
    """Growth meanwhile does not bring it forward. Who ended in trouble together does not come back together."""
    until = now + wait + due_dates.spread(wait, f"{agent.pk}/{now.timestamp()}")
    agent.quiet_until = until
    agent.due_at, agent.due_reason = until, DueReason.RETRY


def _keep_waiting(agent: Agent, now: datetime) -> None:
    agent.last_refined_at = now
    if agent.quiet_until is not None:
        agent.due_at, agent.due_reason = max(now, agent.quiet_until), DueReason.RETRY
    agent.save(update_fields=["last_refined_at", "due_at", "due_reason"])


def _was_the_workers_fault(session: RefinementSession) -> bool:
    """It died or was stopped: another takes over at once. The second time it may be the session that kills them."""
    return session.driver == Driver.SERVER and session.reason in (LEASE_EXPIRED, WORKER_STOPPED)


def _stay_quiet(agent: Agent, now: datetime) -> None:
    """Still over its budget: not due again for that before a day has passed, or memory grew by a tenth."""
    cooldown.begin(agent, now, agent.core_tokens)
    if agent.quiet_until is not None and (agent.due_at is None or agent.quiet_until < agent.due_at):
        agent.due_at, agent.due_reason = agent.quiet_until, DueReason.OVER_BUDGET
