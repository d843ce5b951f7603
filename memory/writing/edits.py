"""An edit in the making: the one way memories change, which every verb of `memory/writing/operations.py` goes.

One transaction with the agent's row locked; the changed rows in one statement, the new ones in another, the agent's
counters, and one audit entry with a snapshot of each memory before and after. Nothing touched: nothing written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar

from django.db import models, transaction
from django.utils import timezone

from audit import bulk, trail
from audit.patience import wait_at_most
from audit.trail import Actor, SnapshotPart
from memory import errors
from memory.access.authentication import require_valid_key
from memory.models import Agent, Memory
from memory.policy import switches, tokens
from memory.policy.categories import SCOPES
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.writing import counters
from memory.writing.counters import Weight
from memory.writing.signals import edited

_LAST = models.BigIntegerField.MAX_BIGINT  # the database holds no number beyond it


# Numbers of memories, or the memories that the caller has read since it locked the agent.
Those = Sequence[int | Memory]


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
    seq: int  # of the entry that this edit appends
    at: datetime
    detail: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    passes: bool = False  # the switches: a notice of the system's, or what the Time Machine puts back
    _before: dict[int, bytes | None] = field(default_factory=dict)
    _weights: dict[int, Weight | None] = field(default_factory=dict)
    _touched: dict[int, Memory] = field(default_factory=dict)
    _added: list[Memory] = field(default_factory=list)
    _changed: set[str] = field(default_factory=lambda: {"version"})  # fields of memories

    def take(self, those: Those, expect: Mapping[int, int] | None = None) -> list[Memory]:
        """These memories, in that order.

        Raises UnknownMemory or DuplicateNumbers, and Stale when one is not at the version `expect` gives for it.
        """
        memories = [each for each in those if isinstance(each, Memory)]
        found = memories or fetch(self.agent, [each for each in those if isinstance(each, int)])
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
        self._changed |= values.keys()
        self._touched[memory.number] = memory

    def add(self, draft: Draft, silo: Silo) -> Memory:
        """A new memory from a checked draft, with the agent's next number. Raises CategoryDisabled."""
        if not self.passes and draft.category in switches.closed(self.agent):
            raise errors.CategoryDisabled(draft.category)
        number = self.agent.next_number + len(self._added)
        memory = Memory(
            agent_id=self.agent.pk,
            number=number,
            kind=draft.kind,
            category=draft.category,
            scope=SCOPES[draft.category],
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
        self._added.append(memory)
        return memory

    def finish(self, *, always: bool = False) -> Edited:
        """Write the rows, the counters and the entry. Nothing touched: nothing written, unless `always`."""
        memories = tuple(self._touched.values())
        if not memories and not always:
            return Edited(None, (), self.agent)
        edited.send(Edit, agent=self.agent, seq=self.seq, memories=memories, are_new=len(self._added) == len(memories))
        sealed = Silo.for_agent(self.agent).seal_text("note", self.seq, self.note) if self.note else None
        counters.apply(self.agent, [(self._weights[m.number], Weight.of(m)) for m in memories])
        touches = [trail.Touch(m.number, self._before[m.number], snapshot(m)) for m in memories]
        self.agent.next_number += len(self._added)
        subject = trail.Subject(self.agent.pk, self.agent.tenant_id, self.agent.label)
        distinct = self.agent.core_tokens - self.agent.duplicate_tokens
        draft = trail.Draft(self.actor, self.operation, self.at, self.session, self.detail, sealed, distinct)
        with bulk.together():
            bulk.insert_many(self._added)
            bulk.update_many([m for m in memories if self._before[m.number] is not None], self._changed)
            counters.save(self.agent, trail.append(subject, self.head, draft, touches))
        return Edited(self.seq, memories, self.agent)


_locking = bulk.Prepared(lambda: Agent.objects.select_for_update().filter(pk=0))
_locked_here: ContextVar[frozenset[int]] = ContextVar("locked agents", default=frozenset())


@contextmanager
def locked(agent: Agent, *, seconds: int | None = None) -> Iterator[Agent]:
    """The agent's row as it stands, locked in a transaction, which is this block.

    What is called in the block gets this row, and is part of the transaction. To lock the same agent again by another
    object is a RuntimeError. Raises NotFound, KeyRejected, and OperationalError if PostgreSQL waits for the lock longer
    than `seconds`.
    """
    is_open = transaction.get_connection().in_atomic_block  # else nothing is locked, whatever an interrupt left behind
    if is_open and agent.is_locked:
        yield agent
        return
    if is_open and agent.pk in _locked_here.get():
        raise RuntimeError("This agent is locked already. Pass on the row that `locked` gave.")
    with transaction.atomic():
        if seconds is not None:
            wait_at_most(seconds)
        rows = _locking(agent.pk)
        if not rows:
            raise errors.NotFound("No such agent.")
        [row] = rows
        if row.tenant_id == agent.tenant_id:  # already here, and needed for the label
            row.tenant = agent.tenant
        require_valid_key(row)
        token = _locked_here.set(_locked_here.get() | {row.pk})
        row.is_locked = True
        try:
            yield row
        finally:
            row.is_locked = False
            _locked_here.reset(token)


@contextmanager
def begin(
    agent: Agent, operation: str, actor: Actor, *, session: int | None = None, is_notice: bool = False
) -> Iterator[Edit]:
    """An edit of one agent's memory: the row locked, unless this is the locked row, and the switch checked.

    An edit that is refused before it is finished has written nothing, and the locked row is as it was. The system's own
    notices pass the switches (60-memory-rules, Switches). Raises MemoryDisabled, Erased.
    """
    with locked(agent) as row:
        if not is_notice:
            require_key(row)
        if not (row.memory_enabled or is_notice):
            raise errors.MemoryDisabled
        head = trail.Head(row.audit_seq, bytes(row.audit_mac), row.audit_at)
        now = timezone.now()
        at = max(now, head.at) if head.at else now  # never earlier than the entry before it
        yield Edit(row, actor, operation, session, head, head.seq + 1, at, passes=is_notice)


def require_key(row: Agent) -> None:
    """Raise Erased for an agent whose data key was destroyed."""
    if not row.wrapped_key:
        raise errors.Erased(f"The silo of {row.label} was erased: nothing of it is read or changed again.")


# Without statistics, PostgreSQL reads all memories of an agent to find those in an array, but not to find one.
_one = bulk.Prepared(lambda: Memory.objects.filter(agent_id=0, number=0))
_several = bulk.Prepared(lambda: Memory.objects.filter(agent_id=0, number__among=[0]))


def fetch(agent: Agent, numbers: Sequence[int]) -> list[Memory]:
    """The agent's memories of these numbers, in that order. Raises UnknownMemory or DuplicateNumbers."""
    repeated = [number for number, times in Counter(numbers).items() if times > 1] if len(numbers) > 1 else []
    if repeated:
        raise errors.DuplicateNumbers(repeated)
    wanted = [number for number in numbers if 0 < number <= _LAST]
    rows = _one(agent.pk, *wanted) if len(wanted) == 1 else _several(agent.pk, bulk.parameter(wanted))
    found = {memory.number: memory for memory in rows}
    unknown = [number for number in numbers if number not in found]
    if unknown:
        raise errors.UnknownMemory(unknown)
    return [found[number] for number in numbers]


# --- snapshots: a memory's whole state as one byte string, which the trail keeps before and after an edit
#
# A head: metadata in canonical JSON, an empty project, false and null left out, and a NUL. A body: the content's keyed
# digest, and the sealed bytes as they stand in the row. A redaction takes the body away (`audit.trail`). Taking a
# snapshot opens nothing; putting one back moves sealed bytes.

DIGEST_BYTES = 32  # of a content's keyed digest
_TIMES = ("created_at", "discarded_at", "origin", "redacted_at")
_NAMES = ("category", "kind", "scope", "source", "superseded_by", "tokens", *_TIMES)
_LEFT_OUT: dict[str, Any] = dict.fromkeys(_NAMES) | {"project": "", "constitutional": False}


def snapshot(memory: Memory) -> bytes:
    """The state of a memory. `version` is left out: it is the number of the entry that holds the snapshot."""
    fields = [
        f"{key}{form(value)}{end}"
        for name, key, form, end, left_out in _FIELDS
        if (value := getattr(memory, name)) != left_out
    ]
    return f"{{{','.join(fields)}}}".encode() + b"\0" + bytes(memory.digest) + bytes(memory.sealed)


# What `json` makes of them in order of name, in three fifths of its time: a rollback of 10,000 takes 30,000 snapshots.
_FORMS: dict[str, Callable[[Any], str]] = {"constitutional": json.dumps, "superseded_by": str, "tokens": str}
_FIELDS = [
    (name, f'"{name}":"', datetime.isoformat, '"', None)
    if name in _TIMES
    else (name, f'"{name}":', _FORMS.get(name, encode_basestring_ascii), "", _LEFT_OUT[name])
    for name in sorted(_LEFT_OUT)
]


def fields_of(snapshot: bytes) -> dict[str, Any]:
    """The field values a snapshot holds, ready to be set on a Memory."""
    text, _, body = snapshot.partition(b"\0")
    state = json.loads(text)
    fields: dict[str, Any] = {name: state.get(name, left_out) for name, left_out in _LEFT_OUT.items()}
    for name in _TIMES:
        if fields[name] is not None:
            fields[name] = datetime.fromisoformat(fields[name])
    return fields | {"digest": body[:DIGEST_BYTES], "sealed": body[DIGEST_BYTES:]}


class KeyedDigest(SnapshotPart):
    """The keyed digest of what the snapshots in a column say; empty where it was redacted."""

    sql: ClassVar = {
        "sqlite": f"substr({{0}}, instr({{0}}, x'00') + 1, {DIGEST_BYTES})",
        "postgresql": f"substring({{0}} from position('\\x00'::bytea in {{0}}) + 1 for {DIGEST_BYTES})",
    }
