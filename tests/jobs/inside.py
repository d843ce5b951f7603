"""Functions that run in a process of the service (`tests.jobs.fleet.Fleet.do`): set up, change and look up."""

import time
from collections import Counter
from datetime import timedelta
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
SECONDS_TO_OPEN = timedelta(seconds=5)  # instead of the minutes that a worker has to open a session
GIVEN_UP = "lease_expired", "worker_stopped", "interrupted"
COUNTED = {  # a counter of a session: the operation of its entries, and the memories of each
    "merged": (Operation.CONSOLIDATED, 2),
    "updated": (Operation.REVISED, 1),
    "deleted": (Operation.DISCARDED, 1),
    "protected": (Operation.PROTECTED, 1),
    "duplicates_removed": (Operation.DEDUPLICATED, 2),
}


def create_agents(count: int) -> None:
    """Create agents of several tenants, all due. Their models have answered before."""
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit TO off")
    for place in range(count):
        name = f"a{place}"
        agent, _ = lifecycle.create(f"t{place % TENANTS}", name, model=f"openai/{name}", actor=ME)
        operations.remember(agent, [Draft(text) for text in texts(name)], ME)
        Provider.objects.create(name=agent.model, has_answered=True)
    Agent.objects.update(due_at=timezone.now(), due_reason=DueReason.WEEKLY)


def queue_schedules() -> None:
    """Queue the tasks that the schedules queue every few minutes."""
    queue.put(queue.SWEEP)
    queue.put(queue.CLOSE_STALE)


def close_stale() -> str:
    return tasks.close_stale()


def sweep_at(moment: float) -> str:
    """Sweep at this moment (`time.time()`)."""
    time.sleep(max(0.0, moment - time.time()))
    return tasks.sweep()


_REPEAT = """
local waiting, repeated = redis.call('LRANGE', KEYS[1], 0, -1), 0
redis.call('DEL', KEYS[1])
for _, task in ipairs(waiting) do
  redis.call('RPUSH', KEYS[1], task)
  if redis.call('SADD', 'repeated', task) == 1 then
    redis.call('RPUSH', KEYS[1], task)
    repeated = repeated + 1
  end
end
return repeated
"""


def repeat_queue() -> int:
    """Put every waiting task into the queue twice. Returns the number of tasks that were not repeated before."""
    return int(redis.from_url(settings.REDIS_URL).eval(_REPEAT, 1, queue._broker().list_key))


def let_time_pass() -> None:
    """End the long waits: retries of agents, turns of workers that may be dead, pauses of providers."""
    now = timezone.now()
    old = now - 2 * timedelta(seconds=settings.LEASE_SECONDS)
    Waiting.objects.filter(taken_at__lt=now - SECONDS_TO_OPEN).update(taken_at=old)
    Agent.objects.filter(due_reason=DueReason.RETRY, due_at__gt=now).update(due_at=now, quiet_until=None)
    Provider.objects.filter(shut_until__gt=now).update(shut_until=now)


def counts() -> dict[str, int]:
    return {
        "due": schedule.due().count(),
        "open": RefinementSession.objects.filter(outcome=Outcome.OPEN).count(),
        "waiting": Waiting.objects.count(),
        "queued": queue.depth(),
        "refined": RefinementSession.objects.filter(outcome=Outcome.COMPLETED).values("agent").distinct().count(),
        "agents": Agent.objects.count(),
    }


def paused_providers() -> list[str]:
    return sorted(providers.closed())


def sessions() -> list[dict[str, Any]]:
    names = ("agent__slug", "number", "outcome", "reason", "opened_at", "closed_at", "trigger", "model_milliseconds")
    return list(RefinementSession.objects.order_by("agent_id", "number").values(*names))


def edits(agent: Agent) -> Counter[Edit]:
    """The edits that sessions made to the agent's first memories."""
    touched: dict[int, list[int]] = {}
    changes = Change.objects.filter(agent_id=agent.pk, number__lte=REMEMBERED, before__isnull=False)
    for seq, number in changes.order_by("number").values_list("seq", "number"):
        touched.setdefault(seq, []).append(number)
    entries = AuditEntry.objects.filter(agent_id=agent.pk, session__isnull=False)
    entries = entries.exclude(operation__in=(Operation.SESSION_OPENED, Operation.SESSION_CLOSED))
    return Counter(
        (operation, tuple(touched.get(seq, []))) for seq, operation in entries.values_list("seq", "operation")
    )


def report() -> dict[str, Any]:
    """The figures of all sessions, and problems in words."""
    made = {agent: edits(agent) for agent in Agent.objects.select_related("tenant").order_by("pk")}
    return {
        "sessions": RefinementSession.objects.count(),
        "outcomes": dict(Counter(RefinementSession.objects.values_list("outcome", flat=True))),
        "takeovers": sum(_takeovers(agent) for agent in made),
        "edits": sum(sum(edits.values()) for edits in made.values()),
        "lost": sum(sum((EDITS - edits).values()) for edits in made.values()),
        "doubled": sum(sum((edits - EDITS).values()) for edits in made.values()),
        "problems": [f"{agent.slug}: {problem}" for agent in made for problem in _problems(agent)],
    }


def _takeovers(agent: Agent) -> int:
    """The sessions that were given up before the agent was refined."""
    rows = RefinementSession.objects.filter(agent=agent)
    last = rows.filter(outcome=Outcome.COMPLETED).aggregate(last=Max("number"))["last"] or 0
    return rows.filter(reason__in=GIVEN_UP, number__lt=last).count()


def _problems(agent: Agent) -> list[str]:
    rows = list(RefinementSession.objects.filter(agent=agent).order_by("number"))
    late = timezone.now() + timedelta(days=1)
    overlapping = [after.number for before, after in pairwise(rows) if (before.closed_at or late) > after.opened_at]
    return [
        *([] if rows and rows[-1].outcome == Outcome.COMPLETED else ["it was not refined in the end"]),
        *(f"session {row.number} is open" for row in rows if row.outcome == Outcome.OPEN),
        *(f"session {number} overlaps" for number in overlapping),
        *(f"session {row.number} counts other edits than the trail" for row in rows if not _has_right_counts(row)),
        *(f"memory {number} is lost" for number in _lost_memories(agent)),
    ]


def _has_right_counts(row: RefinementSession) -> bool:
    entries = AuditEntry.objects.filter(agent_id=row.agent_id, session=row.number)
    found = Counter(entries.values_list("operation", flat=True))
    return all(getattr(row, name) == each * found[operation] for name, (operation, each) in COUNTED.items())


def _lost_memories(agent: Agent) -> list[int]:
    """The memories whose original text is neither in a row nor in the trail."""
    silo = Silo.for_agent(agent)
    opened: dict[int, set[str]] = {}
    for memory in Memory.objects.filter(agent_id=agent.pk):
        opened.setdefault(memory.number, set()).add(silo.open(memory).content)
    for change in Change.objects.filter(agent_id=agent.pk, before__isnull=False):
        before = fields_of(bytes(change.before or b""))["sealed"]
        opened.setdefault(change.number, set()).add(silo.open_sealed(change.number, before).content)
    return [number for number, text in enumerate(texts(agent.slug), 1) if text not in opened.get(number, set())]
