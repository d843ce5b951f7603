"""What a test does and looks up inside the service: run in a process of its own (`tests.jobs.fleet.Fleet.do`)."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import redis
from django.conf import settings
from django.db import connection
from django.db.models import Max
from django.utils import timezone

from audit.models import AuditEntry, Change, Operation
from audit.trail import Actor
from config import queue
from memory.agents import lifecycle
from memory.models import Agent, DueReason, Memory
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.writing import operations
from memory.writing.edits import fields_of
from refinement import providers, schedule, tasks
from refinement.models import Outcome, Provider, RefinementSession, Waiting
from tests.jobs.scripted import EDITS, REMEMBERED, Edit, texts

ME = Actor.operator("tests")
TENANTS = 5
SECONDS_TO_OPEN = timedelta(seconds=5)  # a session, which a worker has minutes for
GIVEN_UP = "lease_expired", "worker_stopped", "interrupted"
COUNTED = {  # what a session counts: an entry's operation, and how many memories each is of
    "merged": (Operation.CONSOLIDATED, 2),
    "updated": (Operation.REVISED, 1),
    "deleted": (Operation.DISCARDED, 1),
    "protected": (Operation.PROTECTED, 1),
    "duplicates_removed": (Operation.DEDUPLICATED, 2),
}


def furnish(count: int, *, due: bool = True) -> None:
    """So many agents of several tenants, who are due."""
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit TO off")
    for place in range(count):
        name = f"a{place}"
        agent, _ = lifecycle.create(f"t{place % TENANTS}", name, model=f"openai/{name}", actor=ME)
        operations.remember(agent, [Draft(text) for text in texts(name)], ME)
    if due:
        make_due()


def make_due() -> None:
    Agent.objects.update(due_at=timezone.now(), due_reason=DueReason.WEEKLY)


def look_round() -> None:
    """What the schedules do every few minutes."""
    queue.put(queue.SWEEP)
    queue.put(queue.CLOSE_STALE)


def close_stale() -> str:
    return tasks.close_stale()


def sweep_at(moment: float) -> str:
    """Look who is due, at this moment (`time.time()`) or at once."""
    time.sleep(max(0.0, moment - time.time()))
    return tasks.sweep()


_TWICE = """
local waiting, told = redis.call('LRANGE', KEYS[1], 0, -1), 0
redis.call('DEL', KEYS[1])
for _, task in ipairs(waiting) do
  redis.call('RPUSH', KEYS[1], task)
  if redis.call('SADD', 'given twice', task) == 1 then
    redis.call('RPUSH', KEYS[1], task)
    told = told + 1
  end
end
return told
"""


def repeat_queue() -> int:
    """Have every task that waits come twice, one right after the other; how many did not yet."""
    return int(redis.from_url(settings.REDIS_URL).eval(_TWICE, 1, queue._broker().list_key))


def let_time_pass() -> None:
    """What waits for minutes or hours has waited: agents after trouble, turns whose worker may be dead, providers that
    did not answer."""
    now = timezone.now()
    Waiting.objects.filter(taken_at__lt=now - SECONDS_TO_OPEN).update(
        taken_at=now - 2 * timedelta(seconds=settings.LEASE_SECONDS)
    )
    Agent.objects.filter(due_reason=DueReason.RETRY, due_at__gt=now).update(due_at=now, quiet_until=None)
    Provider.objects.filter(shut_until__gt=now).update(shut_until=now)


def standing() -> dict[str, int]:
    return {
        "due": schedule.due().count(),
        "open": RefinementSession.objects.filter(outcome=Outcome.OPEN).count(),
        "waiting": Waiting.objects.count(),
        "queued": queue.depth(),
        "refined": RefinementSession.objects.filter(outcome=Outcome.COMPLETED).values("agent").distinct().count(),
        "agents": Agent.objects.count(),
    }


def left_alone() -> list[str]:
    """The providers of models that nobody calls now."""
    return sorted(providers.closed())


def sessions() -> list[dict[str, Any]]:
    """Every session, in order; its agent by the name of its model."""
    rows = RefinementSession.objects.order_by("agent_id", "number")
    names = ("agent__slug", "number", "outcome", "reason", "opened_at", "closed_at", "trigger")
    return [{name: row[name] for name in names} for row in rows.values(*names)]


def edits(agent: Agent) -> Counter[Edit]:
    """What sessions did to the memories that were there before them."""
    touched: dict[int, list[int]] = {}
    changes = Change.objects.filter(agent_id=agent.pk, number__lte=REMEMBERED, before__isnull=False)
    for seq, number in changes.order_by("number").values_list("seq", "number"):
        touched.setdefault(seq, []).append(number)
    entries = AuditEntry.objects.filter(agent_id=agent.pk, session__isnull=False)
    done = entries.exclude(operation__in=(Operation.SESSION_OPENED, Operation.SESSION_CLOSED))
    return Counter((operation, tuple(touched.get(seq, []))) for seq, operation in done.values_list("seq", "operation"))


def told() -> dict[str, Any]:
    """What came of all of it, in figures, and what is wrong with it in words."""
    done = {agent: edits(agent) for agent in Agent.objects.select_related("tenant").order_by("pk")}
    return {
        "sessions": RefinementSession.objects.count(),
        "outcomes": dict(Counter(RefinementSession.objects.values_list("outcome", flat=True))),
        "takeovers": sum(_takeovers(agent) for agent in done),
        "edits": sum(sum(edits.values()) for edits in done.values()),
        "lost": sum(sum((EDITS - edits).values()) for edits in done.values()),
        "doubled": sum(sum((edits - EDITS).values()) for edits in done.values()),
        "wrong": [f"{agent.slug}: {what}" for agent in done for what in _wrong_with(agent)],
    }


def _takeovers(agent: Agent) -> int:
    """Sessions that were given up, and whose agent was refined after."""
    rows = RefinementSession.objects.filter(agent=agent)
    last = rows.filter(outcome=Outcome.COMPLETED).aggregate(last=Max("number"))["last"] or 0
    return rows.filter(reason__in=GIVEN_UP, number__lt=last).count()


def _wrong_with(agent: Agent) -> list[str]:
    rows = list(RefinementSession.objects.filter(agent=agent).order_by("number"))
    wrong = [] if rows and rows[-1].outcome == Outcome.COMPLETED else ["it was not refined in the end"]
    wrong += [f"session {row.number} is open" for row in rows if row.outcome == Outcome.OPEN]
    wrong += [f"session {two.number} overlaps" for one, two in pairwise(rows) if _end(one) > two.opened_at]
    wrong += [f"session {row.number} counts other edits than the trail" for row in rows if not _counts_right(row)]
    return wrong + _lost(agent)


def _end(session: RefinementSession) -> datetime:
    return session.closed_at or timezone.now() + timedelta(days=1)


def _counts_right(row: RefinementSession) -> bool:
    entries = AuditEntry.objects.filter(agent_id=row.agent_id, session=row.number)
    found = Counter(entries.values_list("operation", flat=True))
    return all(getattr(row, name) == each * found[operation] for name, (operation, each) in COUNTED.items())


def _lost(agent: Agent) -> list[str]:
    """Memories that cannot be opened as they were, neither in their rows nor in the trail."""
    silo = Silo.for_agent(agent)
    opened: dict[int, set[str]] = {}
    for memory in Memory.objects.filter(agent_id=agent.pk):
        opened.setdefault(memory.number, set()).add(silo.open(memory).content)
    for change in Change.objects.filter(agent_id=agent.pk, before__isnull=False):
        before = fields_of(bytes(change.before or b""))["sealed"]
        opened.setdefault(change.number, set()).add(silo.open_sealed(change.number, before).content)
    return [
        f"memory {number} is lost"
        for number, text in enumerate(texts(agent.slug), 1)
        if text not in opened.get(number, set())
    ]
