"""When agents are due, and why."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from memory.agents import due_dates
from memory.models import Agent, DueReason
from memory.writing import cooldown, edits
from refinement import allowance
from refinement.models import Driver, Outcome, RefinementSession

LEASE_EXPIRED, WORKER_STOPPED = "lease_expired", "worker_stopped"  # reasons of a session that nobody drives any more
FIRST_RETRY = timedelta(hours=1)
LONGEST_RETRY = timedelta(days=7)
_DATES = ("failures_in_a_row", "last_refined_at", "quiet_until", "quiet_below_tokens", "due_at", "due_reason")


def due(now: datetime | None = None) -> QuerySet[Agent]:
    """The agents that are due, in one query. The agents with the earliest due date come first.

    An agent with an open session is not due until the session's lease has expired. If an agent is paused, or if its
    tenant has no model tokens left this month, the agent is due only if a person requests a refinement.
    """
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
    """The agents whose due date has passed. Agents with an open session are included, and so are agents whose tenant
    has used up its model tokens."""
    rows = Agent.objects.filter(due_at__lte=now or timezone.now(), memory_enabled=True)
    return rows.filter(Q(due_reason=DueReason.MANUAL) | Q(paused=False))


def why(agent: Agent, now: datetime | None = None) -> str:
    """The reason why an agent is due, or an empty text."""
    is_due = agent.due_at is not None and agent.due_at <= (now or timezone.now())
    return agent.due_reason if is_due and agent.memory_enabled else ""


def delay(agent: Agent) -> None:
    """Begin a cool-down for an agent whose session could not be opened. This counts as a failed session."""
    with edits.locked(agent) as row:
        row.failures_in_a_row += 1
        _wait(row, timezone.now(), retry_after(row.failures_in_a_row))
        row.save(update_fields=_DATES)


def set_next(agent: Agent, session: RefinementSession) -> None:
    """Set the agent's next due date when a session ends."""
    now = session.closed_at or timezone.now()
    troubled = session.outcome in (Outcome.FAILED, Outcome.INCOMPLETE, Outcome.ABANDONED)
    if agent.failures_in_a_row and session.driver == Driver.RUNTIME and not troubled:
        _keep_waiting(agent, now)  # the runtime's model is not the one that failed
        return
    agent.failures_in_a_row = agent.failures_in_a_row + 1 if troubled else 0
    agent.last_refined_at = now
    agent.quiet_until = agent.quiet_below_tokens = None
    every = agent.refine_every
    agent.due_at = due_dates.following(now, every, agent.pk) if every else None
    agent.due_reason = DueReason.WEEKLY
    if troubled:
        again = agent.failures_in_a_row == 1 and _was_the_workers_fault(session)
        _wait(agent, now, timedelta() if again else retry_after(agent.failures_in_a_row))
        if again and session.trigger == DueReason.MANUAL:
            agent.due_reason = DueReason.MANUAL  # a person requested it, perhaps for a paused agent
    elif session.tokens_after > agent.budget_tokens:
        _stay_quiet(agent, now)
    agent.save(update_fields=_DATES)


def retry_after(failures: int) -> timedelta:
    """The cool-down after this number of failed sessions in a row."""
    return min(FIRST_RETRY * (1 << min(max(failures - 1, 0), 10)), LONGEST_RETRY)


def _wait(agent: Agent, now: datetime, wait: timedelta) -> None:
    """Begin a cool-down. It does not end early, even if memory grows. The due dates of failed agents are spread, so
    that the agents do not all become due at the same time."""
    until = now + wait + due_dates.spread(wait, f"{agent.pk}/{now.timestamp()}")
    agent.quiet_until = until
    agent.due_at, agent.due_reason = until, DueReason.RETRY


def _keep_waiting(agent: Agent, now: datetime) -> None:
    agent.last_refined_at = now
    if agent.quiet_until is not None:
        agent.due_at, agent.due_reason = max(now, agent.quiet_until), DueReason.RETRY
    agent.save(update_fields=_DATES)


def _was_the_workers_fault(session: RefinementSession) -> bool:
    """Whether the session ended because its worker died or was stopped. Then the first retry is immediate. Later
    retries are not immediate, because the session itself may stop the worker."""
    return session.driver == Driver.SERVER and session.reason in (LEASE_EXPIRED, WORKER_STOPPED)


def _stay_quiet(agent: Agent, now: datetime) -> None:
    """Begin a cool-down, because the agent is still over its budget. The cool-down ends after a day, or earlier if core
    memory grows by a tenth."""
    cooldown.begin(agent, now, agent.core_tokens)
    if agent.quiet_until is not None and (agent.due_at is None or agent.quiet_until < agent.due_at):
        agent.due_at, agent.due_reason = agent.quiet_until, DueReason.OVER_BUDGET
