"""An edit in the making: the one way memories change, which every verb of `memory/writing/operations.py` goes.

One transaction with the agent's row locked; the changed rows in one statement, the new ones in another, the agent's
counters, and one audit entry with a snapshot of each memory before and after. Nothing touched: nothing written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from threading import local
from typing import Any

from django.db import models, transaction

from audit import bulk, trail
from audit.trail import Actor
from memory import errors
from memory.access import request_key
from memory.models import Agent, Memory
from memory.policy import switches, tokens
from memory.policy.categories import scope_of
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.writing.counters import Counters, Weight
from memory.writing.signals import edited
from memory.writing.snapshots import snapshot

_LAST = models.BigIntegerField.MAX_BIGINT  # the database holds no number beyond it
_CHANGEABLE = tuple(f.attname for f in Memory._meta.concrete_fields if f.attname != "number")


@dataclass(frozen=True, slots=True)
class Edited:
    """What a verb did: the entry's number (None when there was nothing to do) and the memories it touched."""

    seq: int | None
    memories: tuple[Memory, ...]
    agent: Agent

    @property
    def memory(self) -> Memory:
        return self.memories[-1]


@dataclass(slots=True)
class Edit:
    """One edit in the making, inside its transaction, with the agent's row locked."""

    agent: Agent
    actor: Actor
    operation: str
    session: int | None
    head: trail.Head
    at: datetime
    detail: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    passes: bool = False  # the switches: a notice of the system's, or what the Time Machine puts back
    _before: dict[int, bytes | None] = field(default_factory=dict)
    _weights: dict[int, Weight | None] = field(default_factory=dict)
    _touched: dict[int, Memory] = field(default_factory=dict)

    @property
    def seq(self) -> int:
        return self.head.seq + 1

    def take(self, numbers: Sequence[int], expect: Mapping[int, int] | None = None) -> list[Memory]:
        """The memories of these numbers, in that order.

        Raises UnknownMemory or Repeated, and Stale when one is not at the version `expect` gives for it.
        """
        found = fetch(self.agent, numbers)
        stale = [m.number for m in found if expect is not None and expect.get(m.number, m.version) != m.version]
        if stale:
            raise errors.Stale(stale)
        return found

    def change(self, memory: Memory, **values: Any) -> None:
        """Set fields of a memory; written when the edit is finished. Values it already has are no change. Raises
        CategoryDisabled."""
        if any(getattr(memory, name) != value for name, value in values.items()):
            if not self.passes:
                switches.require_open(self.agent, (memory.category,))
            self.put(memory, None if memory.number in self._before else snapshot(memory), values)

    def put(self, memory: Memory, now: bytes | None, values: Mapping[str, Any]) -> None:
        """The same, of values that are some change. `now` is its snapshot, where this edit has not touched it yet."""
        if memory.number not in self._before:
            self._before[memory.number] = now
            self._weights[memory.number] = Weight.of(memory)
        for name, value in values.items():
            setattr(memory, name, value)
        memory.version = self.seq
        self._touched[memory.number] = memory

    def add(self, draft: Draft, silo: Silo) -> Memory:
        """A new memory from a checked draft, with the agent's next number. Raises CategoryDisabled."""
        if not self.passes:
            switches.require_open(self.agent, (draft.category,))
        number = self.agent.next_number
        self.agent.next_number += 1
        memory = Memory(
            agent_id=self.agent.pk,
            number=number,
            kind=draft.kind,
            category=draft.category,
            scope=scope_of(draft.category),
            project=draft.project,
            source=draft.source,
            origin=draft.origin or self.at,
            created_at=self.at,
            tokens=tokens.count(draft.content),
            sealed=silo.seal(number, draft.content, draft.tags),
            digest=silo.digest(draft.content),
            version=self.seq,
        )
        self._before[number] = self._weights[number] = None
        self._touched[number] = memory
        return memory

    def finish(self, *, always: bool = False) -> Edited:
        """Write the rows, the counters and the entry. Nothing touched: nothing written, unless `always`."""
        memories = tuple(self._touched.values())
        if not memories and not always:
            return Edited(None, (), self.agent)
        are_new = all(before is None for before in self._before.values())
        edited.send(Edit, agent=self.agent, seq=self.seq, memories=memories, are_new=are_new)
        counters = Counters(self.agent)
        counters.apply([(self._weights[m.number], Weight.of(m)) for m in memories])
        touches = [trail.Touch(m.number, self._before[m.number], snapshot(m)) for m in memories]
        new = [memory for memory in memories if self._before[memory.number] is None]
        Memory.objects.bulk_create(new, batch_size=bulk.ROWS_AT_ONCE)
        bulk.update_many([m for m in memories if self._before[m.number] is not None], _CHANGEABLE)
        counters.save(trail.append(subject(self.agent), self.head, self._draft(), touches))
        return Edited(self.seq, memories, self.agent)

    def _draft(self) -> trail.Draft:
        sealed = Silo.for_agent(self.agent).seal_text("note", self.seq, self.note) if self.note else None
        distinct = self.agent.core_tokens - self.agent.duplicate_tokens
        return trail.Draft(self.actor, self.operation, self.at, self.session, self.detail, sealed, distinct)


def subject(agent: Agent) -> trail.Subject:
    return trail.Subject(agent.pk, agent.tenant_id, agent.label)


@dataclass(slots=True)
class _Held:
    """An agent's row, locked by this thread, and the memories read since the last edit: both as they stand."""

    agent: Agent
    block: transaction.Atomic  # that holds the lock
    savepoints: list[str]
    memories: dict[int, Memory] = field(default_factory=dict)

    def take(self, agent: Agent) -> None:
        self.agent, self.savepoints, self.memories = agent, _savepoints(), {}

    def is_locked(self) -> bool:
        """False once its block was left. (An interrupt may come at any moment, also just before this is let go.)"""
        return self.block in transaction.get_connection().atomic_blocks

    def is_present(self) -> bool:
        """False once a savepoint was left in which this was read or written: it may have been rolled back."""
        return self.is_locked() and _savepoints()[: len(self.savepoints)] == self.savepoints


def _savepoints() -> list[str]:
    return [savepoint for savepoint in transaction.get_connection().savepoint_ids if savepoint is not None]


class _Holding(local):
    def __init__(self) -> None:
        self.by_agent: dict[int, _Held] = {}


_holding = _Holding()


@contextmanager
def locked(agent: Agent) -> Iterator[Agent]:
    """The agent's row as it stands, locked for this block, which is one transaction. Raises NotFound, KeyRejected.

    Edits made inside it are part of the transaction, and neither lock nor read again what cannot have changed. An edit
    that is refused there takes the transaction with it, unless it stands in a savepoint of its own.
    """
    pk, by_agent = agent.pk, _holding.by_agent
    held = by_agent.get(pk)
    if held is not None and held.is_locked():
        with transaction.atomic(savepoint=False):
            if not held.is_present():
                held.take(_lock(agent))
            yield held.agent
        return
    block = transaction.atomic()
    with block:
        held = by_agent[pk] = _Held(_lock(agent), block, _savepoints())
        try:
            request_key.require_valid()
            yield held.agent
        finally:
            by_agent.pop(pk, None)


def _lock(agent: Agent) -> Agent:
    row = Agent.objects.select_for_update().filter(pk=agent.pk).first()
    if row is None:
        raise errors.NotFound("No such agent.")
    if row.tenant_id == agent.tenant_id:  # already here, and needed for the label
        row.tenant = agent.tenant
    return row


@contextmanager
def begin(
    agent: Agent, operation: str, actor: Actor, *, session: int | None = None, is_notice: bool = False
) -> Iterator[Edit]:
    """An edit of one agent's memory: one transaction, the row locked, the switch checked.

    The system's own notices pass the switches (60-memory-rules, Switches). Raises MemoryDisabled, Erased.
    """
    with locked(agent) as row:
        if not is_notice:
            require_key(row)
        if not (row.memory_enabled or is_notice):
            raise errors.MemoryDisabled
        head = trail.Head(row.audit_seq, bytes(row.audit_mac), row.audit_at)
        edit = Edit(_copied(row), actor, operation, session, head, head.next_at(), passes=is_notice)
        held = _holding.by_agent[agent.pk]
        try:
            yield edit
            held.take(edit.agent)
        finally:
            held.memories = {}  # the edit has changed them, or was about to


def require_key(row: Agent) -> None:
    """Raise Erased for an agent whose data key was destroyed."""
    if not row.wrapped_key:
        raise errors.Erased(f"The silo of {row.label} was erased: nothing of it is read or changed again.")


def _copied(row: Agent) -> Agent:
    """For an edit to change: if it is refused, the row it was made of is as it was."""
    copy = Agent.__new__(Agent)
    copy.__dict__ = dict(row.__dict__)
    return copy


def fetch(agent: Agent, numbers: Sequence[int]) -> list[Memory]:
    """The agent's memories of these numbers, in that order. Raises UnknownMemory or Repeated."""
    repeated = [number for number, times in Counter(numbers).items() if times > 1] if len(numbers) > 1 else []
    if repeated:
        raise errors.Repeated(repeated)
    held = _holding.by_agent.get(agent.pk)
    found = held.memories if held is not None and held.is_present() else {}
    wanted = [n for n in numbers if n not in found and 0 < n <= _LAST]
    if wanted:
        found |= {memory.number: memory for memory in Memory.objects.of(agent).numbered(wanted)}
    unknown = [number for number in numbers if number not in found]
    if unknown:
        raise errors.UnknownMemory(unknown)
    return [found[number] for number in numbers]
