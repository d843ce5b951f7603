"""When agents are due, and why."""

import time
from datetime import datetime, timedelta

from axes.models import AccessAttempt
from django.conf import settings
from django.db.models import DateTimeField, Exists, ExpressionWrapper, F, OuterRef, Q, QuerySet
from django.db.models.functions import Greatest, Least
from django.utils import timezone

from config.deadlines import TOLERANCE
from memory.accounts import people
from memory.agents import due_dates, lifecycle
from memory.models import Agent, Authenticator, DueReason
from memory.writing import cooldown, edits
from refinement import allowance
from refinement.errors import BackingOff
from refinement.models import Driver, Outcome, RefinementSession, held

NOT_CONFIGURED = "model_not_configured"  # a reason of a session: the server's configuration has an error
LEASE_EXPIRED, WORKER_STOPPED = "lease_expired", "worker_stopped"  # reasons of a session that nobody drives any more
_OF_WORKERS = (LEASE_EXPIRED, WORKER_STOPPED)
# Reasons that are no failures of the agent or its model.
DATABASE_FAILED, MODEL_CHANGED = _NO_FAILURES = "database_failed", "model_changed"
FIRST_RETRY = timedelta(hours=1)
LONGEST_RETRY = timedelta(days=7)
_MOST_FAILURES = 10  # after that many, the cool-down is the longest
LONGEST_IDLE = timedelta(hours=24)
_USEFUL = Q(lost_tokens__gt=0, tokens_before__lte=F("lost_tokens") * 100)
_DATES = ("failures_in_a_row", "last_refined_at", "quiet_until", "quiet_below_tokens", "due_at", "due_reason")


def due(now: datetime | None = None) -> QuerySet[Agent]:
    """The agents that are due, in one query. The agents with the earliest due date come first.

    An agent with an open session is not due until the session's lease has expired. If an agent is paused, or if its
    tenant has no model tokens left this month, the agent is due only if a person requests a refinement. An agent
    without a model is not due.
    """
    now = now or timezone.now()
    rows = overdue(now).filter(~Exists(RefinementSession.objects.filter(held(now), agent=OuterRef("pk"))))
    rows = rows.filter(Q(due_reason=DueReason.MANUAL) | ~allowance.used_up(now), ~Q(model=""))
    return rows.select_related("tenant").order_by("due_at", "pk")


def overdue(now: datetime | None = None) -> QuerySet[Agent]:
    """The agents whose due date has passed. Agents with an open session are included, and so are agents whose tenant
    has used up its model tokens."""
    rows = Agent.objects.filter(due_at__lte=now or timezone.now(), memory_enabled=True)
    return rows.filter(Q(due_reason=DueReason.MANUAL) | Q(paused=False))


def why(agent: Agent, now: datetime | None = None) -> str:
    """The reason why an agent is due, or an empty text."""
    is_due = agent.due_at is not None and agent.due_at <= (now or timezone.now())
    return agent.due_reason if is_due and agent.memory_enabled else ""


def require_useful(agent: Agent, *, is_dream: bool = False) -> None:
    """Refuse a request of the agent's side for a while, if the last session that it requested cut less than 1 % of the
    tokens: for 1 hour, and twice as long after each further such session. A session that cuts more ends this. But a
    session for a memory store, which may be small, ends it only for dreams.

    The caller has locked the agent. Raises BackingOff.
    """
    now, ended = timezone.now(), RefinementSession.objects.filter(agent=agent, closed_at__isnull=False)
    useful = ended.filter(_USEFUL, *([] if is_dream else [Q(store=None)])).order_by("-number").first()
    idle = ended.filter(~_USEFUL, trigger=DueReason.AGENT, number__gt=useful.number if useful else 0)
    idle = idle.exclude(driver=Driver.SERVER, reason__in=_OF_WORKERS).order_by("-number")
    moments = [moment for moment in idle.values_list("closed_at", flat=True)[:6] if moment]
    if not moments:
        return
    until = moments[0] + min(FIRST_RETRY * (1 << len(moments) - 1), LONGEST_IDLE)
    if moments[0] <= now < until:
        problem = "The last session that you requested changed less than 1 % of core memory."
        raise BackingOff(f"{problem} Request the next after {until:%Y-%m-%d %H:%M:%S} UTC.")


def delay(agent: Agent) -> None:
    """Begin a cool-down for an agent whose session could not be opened. This counts as a failed session."""
    with edits.locked(agent) as row:
        row.failures_in_a_row += 1
        _wait(row, timezone.now(), retry_after(row.failures_in_a_row))
        row.save(update_fields=_DATES)


def set_aside(agent_id: int) -> None:
    """Try an agent again in an hour. An operator must repair its row first, so the row cannot be locked or signed."""
    Agent.objects.filter(pk=agent_id).update(due_at=timezone.now() + FIRST_RETRY, due_reason=DueReason.RETRY)


def set_next(agent: Agent, session: RefinementSession) -> None:
    """Set the agent's next due date when a session ends. After an error of the configuration, the agent stays due."""
    if session.reason == NOT_CONFIGURED:
        return
    now = session.closed_at or timezone.now()
    troubled = session.outcome in (Outcome.FAILED, Outcome.INCOMPLETE, Outcome.ABANDONED)
    # A runtime's model is not the one that failed, so the agent goes on waiting.
    if agent.failures_in_a_row and session.driver == Driver.RUNTIME and not troubled:
        agent.last_refined_at = now
        if agent.quiet_until is not None:
            agent.due_at, agent.due_reason = max(now, agent.quiet_until), DueReason.RETRY
        agent.save(update_fields=_DATES)
        return
    if session.reason not in _NO_FAILURES:
        agent.failures_in_a_row = agent.failures_in_a_row + 1 if troubled else 0
    agent.last_refined_at = now
    agent.quiet_until = agent.quiet_below_tokens = None
    every = agent.refine_every
    agent.due_at = due_dates.following(now, every, agent.pk) if every else None
    agent.due_reason = DueReason.WEEKLY
    if troubled:
        # A worker died or was stopped. Later retries are not immediate, because the session itself may stop the worker.
        is_workers = session.driver == Driver.SERVER and session.reason in _OF_WORKERS
        again = session.reason == DATABASE_FAILED or (agent.failures_in_a_row == 1 and is_workers)
        _wait(agent, now, timedelta() if again else retry_after(agent.failures_in_a_row))
        if again and session.trigger == DueReason.MANUAL:
            agent.due_reason = DueReason.MANUAL  # a person requested it, perhaps for a paused agent
    elif session.tokens_after > agent.budget_tokens:
        _stay_quiet(agent, now)
    agent.save(update_fields=_DATES)


def retry_after(failures: int) -> timedelta:
    """The cool-down after this number of failed sessions in a row."""
    return min(FIRST_RETRY * (1 << min(max(failures - 1, 0), 10)), LONGEST_RETRY)


def bring_back() -> None:
    """Make agents due whose due date or cool-down ends too far in the future, because the clock was ahead.

    Forget codes and failed attempts to sign in that lie in the future, because they lock people out.
    """
    now = timezone.now() + TOLERANCE
    every = Greatest(Least("refine_every", lifecycle.MAX_INTERVAL), timedelta())  # SQL can store a million years
    next_week = ExpressionWrapper(now + every + 2 * due_dates.MAX_SPREAD, DateTimeField())
    far = Q(due_reason__in=(DueReason.MANUAL, DueReason.AGENT), due_at__gt=now)
    far |= Q(due_reason=DueReason.OVER_BUDGET, due_at__gt=now) & ~Q(quiet_until__gt=now)
    far |= Q(due_reason=DueReason.WEEKLY, due_at__gt=next_week)
    for failures in range(_MOST_FAILURES + 1):
        wait = retry_after(failures) * (1 + due_dates.SHARE)
        these = Q(failures_in_a_row=failures) if failures < _MOST_FAILURES else Q()
        far |= these & Q(due_reason=DueReason.RETRY, due_at__gt=now + wait)
        far |= these & Q(quiet_until__gt=now + max(wait, cooldown.QUIET))
    rows = Agent.objects.filter(far, due_at__isnull=False)
    if found := list(rows.values_list("pk", flat=True)):
        rows.filter(pk__in=found).update(due_at=timezone.now(), quiet_until=None, quiet_below_tokens=None)
    AccessAttempt.objects.filter(attempt_time__gt=now + settings.AXES_COOLOFF_TIME).delete()
    Authenticator.objects.filter(throttling_failure_timestamp__gt=now).update(throttling_failure_timestamp=None)
    step = int(time.time()) // people.STEP
    Authenticator.objects.filter(last_step__gt=step + people.TOLERANCE).update(last_step=step)


def _wait(agent: Agent, now: datetime, wait: timedelta) -> None:
    """Begin a cool-down. It does not end early, even if memory grows. The due dates of failed agents are spread, so
    that the agents do not all become due at the same time."""
    until = now + wait + due_dates.spread(wait, f"{agent.pk}/{now.timestamp()}")
    agent.quiet_until = until
    agent.due_at, agent.due_reason = until, DueReason.RETRY


def _stay_quiet(agent: Agent, now: datetime) -> None:
    """Begin a cool-down, because the agent is still over its budget. The cool-down ends after a day, or earlier if core
    memory grows by a tenth."""
    cooldown.begin(agent, now, agent.core_tokens)
    if agent.quiet_until is not None and (agent.due_at is None or agent.quiet_until < agent.due_at):
        agent.due_at, agent.due_reason = agent.quiet_until, DueReason.OVER_BUDGET
