"""Automatic work for agents: end quiet sessions, and send notices about overdue memories.

A session ends after half an hour without an interaction. A retention period is a suggestion: nothing here discards a
memory. Work that is switched off is skipped silently. No task waits long for the lock of an agent. An error with one
agent does not stop the work for other agents.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import structlog
from django.db import OperationalError
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Window
from django.db.models.functions import Random, RowNumber
from django.utils import timezone

from audit.models import AuditEntry, Operation
from audit.trail import Actor
from config import PROGRAM
from config.errors import DomainError
from memory.access import authority
from memory.models import Agent, CleanupDecision, Memory, RecordedSession, Source
from memory.policy import settings_document, switches
from memory.policy.categories import SCOPES
from memory.recording import sessions
from memory.writing import edits, operations

PATIENCE = 1  # seconds to wait for an agent's lock

log = structlog.get_logger("palimpsest.recording")


def attempt(agent_id: int, act: Callable[[], object], work: str) -> bool:
    """Call `act`, and return whether its result is true. After an error, such as a missing key, log `work` (the name
    of the work) and return False. The next run of the task tries again."""
    try:
        return bool(act())
    except (DomainError, OperationalError) as failure:
        log.warning("automatic work failed", operation=work, agent=agent_id, error=type(failure).__name__)
    except Exception as failure:  # a fault of one agent must not affect the others
        log.error("automatic work failed", operation=work, agent=agent_id, exc_info=failure)
    return False


# --- quiet sessions


RECORDING = Actor.system("recording")
SESSIONS_AT_ONCE = 200  # sessions of all agents
SESSIONS_OF_AN_AGENT = 10  # in one run
MOST_SECONDS = 5.0  # then other tasks of the queue get their turn
# The stored rules have this text if the setting is off. An agent whose rules have this text elsewhere is skipped, too.
# The previous session of this agent ends when the next session begins.
_UNBOUNDED = '"session_boundary_detection": false'


def end_quiet() -> int:
    """End sessions that have become quiet, for MOST_SECONDS, and return how many ended. Tenants take turns. A task
    calls this every minute. One query finds the sessions."""
    ended, until = 0, time.monotonic() + MOST_SECONDS
    for each in _due():
        ended += attempt(each.agent_id, partial(_ended, each), "end of a quiet session")
        if time.monotonic() > until:
            break
    return ended


def _due() -> QuerySet[RecordedSession]:
    """A few quiet sessions of each agent. They are chosen at random, so that sessions that cannot be ended do not block
    others of the same agent."""
    open_ones = RecordedSession.objects.filter(ended_at=None, last_at__lte=timezone.now() - sessions.QUIET)
    able = open_ones.filter(agent__memory_enabled=True).exclude(agent__wrapped_key=b"")
    place = Window(RowNumber(), partition_by=F("agent_id"), order_by=Random())
    placed = able.exclude(agent__rules__contains=_UNBOUNDED).annotate(place=place)
    chosen = placed.filter(place__lte=SESSIONS_OF_AN_AGENT).order_by("place", Random()).values("pk")
    found = RecordedSession.objects.filter(pk__in=chosen[:SESSIONS_AT_ONCE]).select_related("agent__tenant")
    turn = Window(RowNumber(), partition_by=F("agent__tenant_id"), order_by="pk")
    return found.annotate(turn=turn).order_by("turn", Random())


def _ended(found: RecordedSession) -> bool:
    """End the session if it is still quiet and memory is still on."""
    ahead = sessions.read_ahead(found.agent, [found])
    with edits.locked(found.agent, seconds=PATIENCE) as row:
        session = RecordedSession.objects.filter(pk=found.pk, agent_id=row.pk, ended_at=None).first()
        if not (session and row.memory_enabled and row.wrapped_key and sessions.is_quiet(row, session, timezone.now())):
            return False
        sessions.end(row, session, RECORDING, ahead)
        return True


# --- overdue memories


SYSTEM = Actor.system("cleanup")
AT_ONCE = 500  # agents in one run
TURN_MINUTES = 5
_MOST_DAYS = 700_000  # about the length of the calendar
Days = Mapping[str, int]


def is_on(rules: Mapping[str, Any], name: str) -> bool:
    """Return whether a switch of cleanup_guidance is on. If cleanup_guidance itself is off, all its switches count as
    off."""
    return all(settings_document.is_on(rules, "cleanup_guidance", each) for each in ("enabled", name))


def retention(agent: Agent) -> dict[str, int]:
    """Return the suggested retention of each category in days. Categories that are off, or whose retention is 0 (no
    limit), are left out."""
    rules, off = switches.rules_of(agent), switches.closed(agent)
    path = "memory_rules.categories.{}.suggested_retention_days"
    days = {name: settings_document.value(rules, path.format(name)) for name in SCOPES if name not in off}
    return {name: each for name, each in days.items() if each}


def memories(days: Days, now: datetime, *, at_least: int = 0) -> QuerySet[Memory]:
    """Return the overdue active memories of all agents. `days` has the retention of each category. A memory is overdue
    if it is older than this retention, and older than `at_least` days.

    Constitutional memories and system notices are left out. A memory is also left out if somebody decided to keep it,
    and this decision is not older than the retention of its category. `kept_at` is the time of the last decision to
    keep.
    """
    kept = CleanupDecision.objects.filter(agent_id=OuterRef("agent_id"), number=OuterRef("number"), is_kept=True)
    wanted = Q(pk__in=[])
    for category, each in days.items():
        lately = Q(kept_at__isnull=False, kept_at__gte=_ago(now, each))
        wanted |= Q(category=category, origin__lt=_ago(now, max(each, at_least))) & ~lately
    rows = Memory.objects.active().filter(constitutional=False).exclude(source=Source.SYSTEM)
    return rows.annotate(kept_at=Subquery(kept.values("at"))).filter(wanted)


def _ago(now: datetime, days: int) -> datetime:
    return now - timedelta(days=min(days, _MOST_DAYS))


# --- notices


def notify_overdue(agent: Agent, actor: Actor, now: datetime | None = None, number: int | None = None) -> int | None:
    """Send the agent a notice about its overdue memories. Return the number of the audit entry, or None if no notice is
    sent. `number` is the number of overdue memories, if it is known.

    The interval between two notices is at least `notification_frequency_days`. Only memories older than
    `cleanup_guidance_days` count. Raises Erased, SiloKeyMissing, SealBroken.
    """
    now = now or timezone.now()
    if number is None:
        number = _counts([agent], now).get(agent.pk, 0)  # it takes long, so no lock is held
    with edits.locked(agent, seconds=PATIENCE) as row:
        edits.require_key(row)
        if not (number and _may_be_notified(row, _last_notices([row.pk]).get(row.pk), now)):
            return None
        detail = {"cleanup": {"overdue": number}}
        return operations.notify(row, _text(number), operation=Operation.AGENT_CHANGED, actor=actor, detail=detail).seq


def send_notices(now: datetime | None = None) -> int:
    """Send notices to agents with overdue memories, and return how many were sent. A task calls this
    often: each agent has a turn of TURN_MINUTES every day.

    Each agent is checked once a day, at a time that depends on its id. So each run checks only a few agents. A run
    reads no content. If a run is missed, the agents of this run are checked the next day.
    """
    now = now or timezone.now()
    agents = list(filter(authority.is_signed, _in_turn(now)[:AT_ONCE]))  # SQL may have stored any rules
    last = _last_notices([agent.pk for agent in agents])
    agents = [agent for agent in agents if _may_be_notified(agent, last.get(agent.pk), now)]
    counts = _counts(agents, now)
    tasks = {agent.pk: partial(notify_overdue, agent, SYSTEM, now, counts.get(agent.pk, 0)) for agent in agents}
    return sum(attempt(pk, task, "cleanup notice") for pk, task in tasks.items() if counts.get(pk))


def _in_turn(now: datetime) -> QuerySet[Agent]:
    """Return the agents that are checked at this time of the day."""
    turns, then = 24 * 60 // TURN_MINUTES, now.astimezone(UTC)
    turn = (then.hour * 60 + then.minute) // TURN_MINUTES % turns
    agents = Agent.objects.select_related("tenant").filter(memory_enabled=True).exclude(wrapped_key=b"")
    return agents.annotate(turn=F("pk") % turns).filter(turn=turn).order_by("pk")


def _may_be_notified(agent: Agent, last_at: datetime | None, now: datetime) -> bool:
    rules = switches.rules_of(agent)
    if not (agent.memory_enabled and is_on(rules, "notify_overdue_memories")):
        return False
    days: int = settings_document.value(rules, "memory_rules.cleanup_guidance.notification_frequency_days")
    return last_at is None or last_at <= _ago(now, days)


def _last_notices(agents: list[int]) -> dict[int, datetime]:
    """Return the time of each agent's last notice. Runs one query."""
    rows = AuditEntry.objects.filter(agent_id__in=agents, operation=Operation.AGENT_CHANGED, detail__has_key="cleanup")
    return dict(rows.order_by("agent_id", "seq").values_list("agent_id", "at"))


def _counts(agents: list[Agent], now: datetime) -> dict[int, int]:
    """Return the number of overdue memories of each agent. Runs one query for all agents with the same retention
    periods."""
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
    which = "1 of your memories is" if number == 1 else f"{number:,} of your memories are"
    return (
        f"{which} older than the suggested retention of their category. Nothing is discarded unless you decide so for "
        f"each memory. Review them, and keep or discard each one (GET and POST /cleanup, or {PROGRAM} cleanup)."
    )
