"""Work for an agent that nobody asked for: ending quiet sessions of talk, and telling of memories that are overdue.

A session that nobody ended is over after half an hour, and has its memory then, though no other begins in its project
(seed 004, "Session Memory"). Memories older than is suggested for their category are told of (seed 004, "Cleanup
Policy"): a retention period is a suggestion, and nothing here, and nothing that calls it, discards anything. What is
switched off is skipped without a word. No work waits long for an agent, and a fault of one agent stops no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import structlog
from django.db import OperationalError, transaction
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from audit.models import AuditEntry, Operation
from audit.trail import Actor
from audit.waiting import wait_at_most
from config.errors import DomainError
from config.queue import STALE_MINUTES
from memory.models import Agent, CleanupDecision, Memory, RecordedSession, Source
from memory.policy import settings_document, switches
from memory.policy.categories import SCOPES
from memory.recording import sessions
from memory.writing import edits, operations

PATIENCE = 1  # seconds for an agent that somebody else holds

log = structlog.get_logger("palimpsest.recording")


def attempt(agent_id: int, act: Callable[[], object], work: str) -> bool:
    """Whether `act` returns something true. False after a fault, such as a missing key: the log names the `work`, and
    the next task tries again."""
    try:
        with transaction.atomic():
            wait_at_most(PATIENCE)
            return bool(act())
    except (DomainError, OperationalError) as failure:
        log.warning("automatic work failed", operation=work, agent=agent_id, error=type(failure).__name__)
        return False


RECORDING = Actor.system("recording")
SESSIONS_AT_ONCE = 200  # sessions
# In rules as they are kept. If an agent has a key of its own by this name, the next session ends the one before it.
_UNBOUNDED = '"session_boundary_detection": false'


def end_quiet() -> int:
    """End the sessions that are over, and return how many. For a task that runs every five minutes. One query finds
    them; those that fell silent last come first, so that one that cannot be ended keeps none waiting."""
    found = list(_due()[:SESSIONS_AT_ONCE])
    return sum(attempt(each.agent_id, partial(_ended, each), "end of a quiet session") for each in found)


def _due() -> QuerySet[RecordedSession]:
    open_ones = RecordedSession.objects.filter(ended_at=None, last_at__lte=timezone.now() - sessions.QUIET)
    able = open_ones.filter(agent__memory_enabled=True).exclude(agent__wrapped_key=b"")
    return able.exclude(agent__rules__contains=_UNBOUNDED).select_related("agent__tenant").order_by("-last_at", "-pk")


def _ended(found: RecordedSession) -> bool:
    """Once its agent is locked: somebody may have gone on with it, or have switched memory off."""
    with edits.locked(found.agent) as row:
        session = RecordedSession.objects.filter(pk=found.pk, agent_id=row.pk, ended_at=None).first()
        may_be_ended = row.memory_enabled and bool(row.wrapped_key)
        if session is None or not may_be_ended or not sessions.is_quiet(row, session, timezone.now()):
            return False
        sessions.end(row, session, RECORDING)
        return True


SYSTEM = Actor.system("cleanup")
AT_ONCE = 500  # agents looked at, at most
_DAY = 24 * 60  # minutes
_MOST_DAYS = 700_000  # about as many as the calendar has
Days = Mapping[str, int]


def is_on(rules: Mapping[str, Any], name: str) -> bool:
    """A switch of cleanup_guidance. None is on while cleanup_guidance is off as a whole."""
    return all(settings_document.is_on(rules, "cleanup_guidance", each) for each in ("enabled", name))


def retention(agent: Agent) -> dict[str, int]:
    """For how many days a category's memories are suggested to be kept; without closed ones, and those for ever (0)."""
    rules, off = switches.rules_of(agent), switches.closed(agent)
    days = {
        name: settings_document.value(rules, f"memory_rules.categories.{name}.suggested_retention_days")
        for name in SCOPES
    }
    return {name: each for name, each in days.items() if each and name not in off}


def memories(days: Days, now: datetime, *, at_least: int = 0) -> QuerySet[Memory]:
    """Active memories recorded longer ago than their category's days, and `at_least` so many; of all agents.

    Left out is what is never suggested: constitutional ones, notices of the system, and what was decided to be kept
    until as many days have passed since then. `kept_at` is when that was decided last.
    """
    decided = CleanupDecision.objects.filter(
        agent_id=OuterRef("agent_id"), number=OuterRef("number"), is_kept=True
    ).values("at")
    wanted = Q(pk__in=[])
    for category, each in days.items():
        lately = Q(kept_at__isnull=False, kept_at__gte=_ago(now, each))
        wanted |= Q(category=category, origin__lt=_ago(now, max(each, at_least))) & ~lately
    rows = Memory.objects.active().filter(constitutional=False).exclude(source=Source.SYSTEM)
    return rows.annotate(kept_at=Subquery(decided)).filter(wanted)


def _ago(now: datetime, days: int) -> datetime:
    return now - timedelta(days=min(days, _MOST_DAYS))


# --- notices


def notify_overdue(agent: Agent, actor: Actor, now: datetime | None = None) -> int | None:
    """Tell an agent how many of its memories are overdue; the entry's number, None where there is nothing to tell.

    No more often than `notification_frequency_days`, and of memories older than `cleanup_guidance_days`, too. When the
    last notice was is in its trail. Raises Erased, SiloKeyMissing, SealBroken.
    """
    now = now or timezone.now()
    with edits.locked(agent) as row:
        edits.require_key(row)
        last_at = _last_notices([row.pk]).get(row.pk)
        number = _counts([row], now).get(row.pk, 0) if _may_be_told(row, last_at, now) else 0
        if not number:
            return None
        return operations.notify(
            row, _text(number), operation=Operation.AGENT_CHANGED, actor=actor, detail={"cleanup": {"overdue": number}}
        ).seq


def remind(now: datetime | None = None) -> int:
    """Tell those who have overdue memories, and were not told lately; how many were. For a task that comes every
    STALE_MINUTES, and not for the sweep, of which a busy service has one a second.

    Each agent has its place in the day, by its id, and is looked at once a day: at a time it is few, by three queries
    whatever they hold, and no content is read. Whoever has no turn, for no worker looked then, has one the next day.
    """
    now = now or timezone.now()
    agents = list(_in_turn(now)[:AT_ONCE])
    last = _last_notices([agent.pk for agent in agents])
    agents = [agent for agent in agents if _may_be_told(agent, last.get(agent.pk), now)]
    counts = _counts(agents, now)
    due = [agent for agent in agents if counts.get(agent.pk)]
    return sum(attempt(agent.pk, partial(notify_overdue, agent, SYSTEM, now), "cleanup notice") for agent in due)


def _in_turn(now: datetime) -> QuerySet[Agent]:
    """Those whose place in the day this is."""
    turns, then = _DAY // STALE_MINUTES, now.astimezone(UTC)
    turn = (then.hour * 60 + then.minute) // STALE_MINUTES % turns
    agents = Agent.objects.select_related("tenant").filter(memory_enabled=True).exclude(wrapped_key=b"")
    return agents.annotate(turn=F("pk") % turns).filter(turn=turn).order_by("pk")


def _may_be_told(agent: Agent, last_at: datetime | None, now: datetime) -> bool:
    rules = switches.rules_of(agent)
    if not (agent.memory_enabled and is_on(rules, "notify_overdue_memories")):
        return False
    days: int = settings_document.value(rules, "memory_rules.cleanup_guidance.notification_frequency_days")
    return last_at is None or last_at <= _ago(now, days)


def _last_notices(agents: list[int]) -> dict[int, datetime]:
    """When each was told last: one query, by the index of what is asked and decided, of which a trail has little."""
    entries = AuditEntry.objects.filter(
        agent_id__in=agents, operation=Operation.AGENT_CHANGED, detail__has_key="cleanup"
    )
    return dict(entries.order_by("agent_id", "seq").values_list("agent_id", "at"))


def _counts(agents: list[Agent], now: datetime) -> dict[int, int]:
    """How many overdue memories each has: one query for all that have the same periods, as nearly all do."""
    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for agent in agents:
        guidance = settings_document.value(switches.rules_of(agent), "memory_rules.cleanup_guidance_days")
        alike[guidance, tuple(retention(agent).items())].append(agent.pk)
    counts: dict[int, int] = {}
    for (guidance, days), ids in alike.items():
        found = memories(dict(days), now, at_least=guidance).filter(agent_id__in=ids)
        counts |= dict(found.order_by().values_list("agent_id").annotate(Count("pk")))
    return counts


def _text(number: int) -> str:
    which = "1 memory of yours is" if number == 1 else f"{number:,} memories of yours are"
    return (
        f"{which} older than is suggested for their category. That is a suggestion: nothing is discarded unless you "
        "say so, one by one. You can look through them, and say of each whether to keep or to discard it "
        "(GET and POST /cleanup, or manage.py cleanup)."
    )
