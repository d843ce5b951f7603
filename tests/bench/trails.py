"""Long trails, made in bulk: an entry for each edit, as the verbs of the store write them one by one.

A million calls of a verb would take a quarter of an hour. What is written here is what they would have written, down
to the MACs, the snapshots and the agent's row: `replay.problems` finds nothing, and the benches see to that.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from django.db import transaction
from django.utils import timezone

from audit import bulk, trail
from audit.models import AuditEntry, Change, Operation
from audit.trail import changes_digest, entry_mac
from config.keyring import keyring
from memory.models import Agent, Memory
from memory.writing.counters import recount
from memory.writing.edits import snapshot
from tests.bench import texts
from tests.bench.agents import ME, filled, fresh
from tests.steps import signed_update

BATCH = 2_000  # entries
Edit = tuple[str, int]  # an operation, and the number of the memory it is done to

VALUES: dict[str, Callable[[datetime], dict[str, Any]]] = {
    Operation.PROTECTED: lambda _: {"constitutional": True},
    Operation.UNPROTECTED: lambda _: {"constitutional": False},
    Operation.DISCARDED: lambda at: {"discarded_at": at},
}


def grown(slug: str, memories: int) -> Agent:
    """An agent with so many memories, imported."""
    return filled(slug, texts.lines(memories, slug))


def toggles(memories: int, count: int) -> Iterator[Edit]:
    """So many edits: every memory protected in turn, then every one unprotected, and so on."""
    for place in range(count):
        is_protected = place // memories % 2
        yield (Operation.UNPROTECTED if is_protected else Operation.PROTECTED), place % memories + 1


def lengthen(agent: Agent, edits: Iterable[Edit]) -> None:
    """Append an entry of one change for each edit, each of which must change something."""
    pen, waiting = _Pen(fresh(agent)), iter(edits)
    while batch := list(islice(waiting, BATCH)):
        with transaction.atomic():
            pen.write(batch)
    pen.finish()


class _Pen:
    """Writes a trail on from where it stands."""

    def __init__(self, agent: Agent) -> None:
        assert not agent.duplicate_tokens, "core memory's weight is counted here without exact repeats"
        self.agent = agent
        self.key = keyring().audit[0]
        self.head = AuditEntry(seq=agent.audit_seq, mac=bytes(agent.audit_mac), at=agent.audit_at)
        self.distinct = agent.core_tokens
        self.memories = {memory.number: memory for memory in Memory.objects.filter(agent_id=agent.pk)}
        self.states = {number: _state(memory) for number, memory in self.memories.items()}
        self.common = {
            "agent_id": agent.pk,
            "tenant_id": agent.tenant_id,
            "agent_label": agent.label,
            "actor_kind": ME.kind,
            "actor_label": ME.label,
            "session": None,
            "sealed": None,
            "sealed_digest": None,
            "changes": 1,
            "key_id": self.key.id,
        }

    def write(self, edits: Iterable[Edit]) -> None:
        entries, changes = [], []
        for operation, number in edits:
            at = timezone.now()
            changes.append(self._change(number, VALUES[operation](at)))
            entries.append(self._entry(operation, at, changes[-1]))
        AuditEntry.objects.bulk_create([AuditEntry(**entry) for entry in entries])
        Change.objects.bulk_create([Change(**change) for change in changes])

    def _change(self, number: int, values: dict[str, Any]) -> dict[str, Any]:
        memory = self.memories[number]
        was_core = memory.discarded_at is None
        for name, value in values.items():
            assert getattr(memory, name) != value
            setattr(memory, name, value)
        memory.version = self.head.seq + 1
        self.distinct -= memory.tokens * (was_core - (memory.discarded_at is None))
        (before, before_digest), (after, after_digest) = self.states[number], _state(memory)
        self.states[number] = after, after_digest
        return {
            "agent_id": self.agent.pk,
            "seq": memory.version,
            "number": number,
            "before": before,
            "before_digest": before_digest,
            "after": after,
            "after_digest": after_digest,
        }

    def _entry(self, operation: str, at: datetime, change: dict[str, Any]) -> dict[str, Any]:
        entry = self.common | {
            "seq": self.head.seq + 1,
            "at": at,
            "operation": str(operation),
            "detail": {"reason": "bench"} if operation == Operation.UNPROTECTED else {},
            "distinct_tokens": self.distinct,
            "changes_digest": changes_digest([change]),
        }
        entry["mac"] = entry_mac(self.key.secret, self.head.mac, entry, entry["changes_digest"])
        self.head = AuditEntry(**entry)
        return entry

    def finish(self) -> None:
        """The rows as the last entries left them."""
        bulk.update_many(list(self.memories.values()), ["constitutional", "discarded_at", "version"])
        head = {"audit_seq": self.head.seq, "audit_mac": self.head.mac, "audit_at": self.head.at}
        signed_update(Agent.objects.filter(pk=self.agent.pk), **recount(self.agent), **head)


def _state(memory: Memory) -> tuple[bytes, bytes]:
    """A memory's snapshot, and its digest."""
    state = snapshot(memory)
    return state, trail.snapshot_digest(state)
