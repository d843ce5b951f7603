"""Edits are the only way to change memories. Every operation in `memory/writing/operations.py` is an edit.

An edit is a transaction that locks the agent's row. It writes the changed memories, the new memories, the agent's
counters and one audit entry. The entry has a snapshot of each memory before and after the edit. If nothing changes, the
edit writes nothing.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from json.encoder import encode_basestring_ascii
from threading import Lock
from typing import Any, ClassVar

from django.db import models, transaction
from django.utils import timezone

from audit import bulk, redactions, trail
from audit.models import STEPS, AuditEntry, Change, Operation
from audit.trail import Actor, SnapshotPart
from audit.waiting import wait_at_most
from memory import errors
from memory.access import authority, heads, roles
from memory.access.authentication import request_key, require_rights_in, require_valid_key
from memory.models import Agent, AgentKey, Memory, StoreVersion, TenantKey
from memory.policy import switches, tokens
from memory.policy.categories import SCOPES
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.writing import counters, places
from memory.writing.counters import Weight
from memory.writing.signals import edited

PAUSE = 0.02  # seconds between two edits of one agent, in which other waiting writers get SQLite's lock
LONG, NOTED = 0.1, 10.0  # seconds: a long edit, and how long it is remembered
MOST_NOTED = 1_000  # agents with a long edit
MOST_MEMORIES = 500_000  # of an agent, without discarded ones: some statements under the lock read as many
_LAST = models.BigIntegerField.MAX_BIGINT  # the largest number that the database can store


# The memories of an edit: their numbers, or `Memory` objects that were read after the agent's row was locked.
MemoryRefs = Sequence[int | Memory]


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of an edit. `seq` is the number of its audit entry, or None if nothing changed. `memories` are the
    changed memories."""

    seq: int | None
    memories: tuple[Memory, ...]
    agent: Agent

    @property
    def memory(self) -> Memory:
        return self.memories[-1]


@dataclass(slots=True)
class Edit:
    """One edit. It runs in a transaction that has locked the agent's row."""

    agent: Agent
    actor: Actor
    operation: str
    session: int | None
    seq: int  # the number of the audit entry that this edit appends
    at: datetime
    detail: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    ignores_switches: bool = False  # True for a notice of the service, and for a rollback
    # Number → the memory, its snapshot before this edit, and its weight before this edit.
    _touched: dict[int, tuple[Memory, bytes | None, Weight | None]] = field(default_factory=dict)
    _before: dict[tuple[int, int], bytes] = field(default_factory=dict)  # (number, version) → the snapshot before
    _added: list[Memory] = field(default_factory=list)
    _changed: set[str] = field(default_factory=lambda: {"version"})  # the fields of memories that this edit sets
    _in_store: bool = False  # whether one of the memories is or was in a store

    def take(self, refs: MemoryRefs, expect: Mapping[int, int] | None = None) -> list[Memory]:
        """Return the memories of `refs`, in the same order.

        Raises UnknownMemory and DuplicateNumbers. Raises Stale if `expect` has another version of a memory.
        """
        memories = [each for each in refs if isinstance(each, Memory)]
        found = memories or fetch(self.agent, [each for each in refs if isinstance(each, int)])
        stale = [m.number for m in found if expect is not None and expect.get(m.number, m.version) != m.version]
        if stale:
            raise errors.Stale(stale)
        return found

    def change(self, memory: Memory, **values: Any) -> None:
        """Set fields of a memory. The memory is written when the edit finishes. Raises CategoryDisabled."""
        if any(getattr(memory, name) != value for name, value in values.items()):
            if not self.ignores_switches:
                switches.require_open(self.agent, (memory.category,))
            self.put(memory, None if memory.number in self._touched else snapshot(memory), values)

    def rewrite(self, memory: Memory, content: str, tags: Sequence[str], silo: Silo) -> None:
        """Set the content and the tags of a memory. Raises CategoryDisabled."""
        path = silo.open_label(memory.number, bytes(memory.sealed)).path if memory.store else ""
        sealed, size = silo.seal(memory.number, content, tags, path), tokens.count(content)
        self.change(memory, sealed=sealed, digest=silo.digest(content), tokens=size)

    def put(self, memory: Memory, now: bytes | None, values: Mapping[str, Any]) -> None:
        """Set fields of a memory without checking the switches.

        `now` is the memory's current snapshot. `now` is used only if this edit has not changed the memory before.
        """
        _, before, weight = self._touched.get(memory.number) or (memory, now, Weight.of(memory))
        if before is now and now is not None:
            self._before[memory.number, memory.version] = now
        self._in_store = self._in_store or memory.store is not None
        for name, value in values.items():
            setattr(memory, name, value)
        memory.version = self.seq
        self._changed |= values.keys()
        self._touched[memory.number] = memory, before, weight

    def add(self, draft: Draft, silo: Silo) -> Memory:
        """Add a memory from a checked draft. The memory gets the agent's next free number. Raises CategoryDisabled."""
        if not self.ignores_switches and draft.category in switches.closed(self.agent):
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
            is_instruction=draft.is_instruction,
            origin=draft.origin or self.at,
            origin_latest=draft.origin_latest,
            beneath_at=self.at if draft.is_beneath else None,
            created_at=self.at,
            tokens=tokens.count(draft.content) if draft.tokens is None else draft.tokens,
            sealed=silo.seal(number, draft.content, draft.tags, draft.path),
            digest=silo.digest(draft.content),
            version=self.seq,
        )
        if draft.store is not None:
            memory.store, memory.place, self._in_store = draft.store, silo.place(draft.store, draft.path), True
        self._touched[number] = memory, None, None
        self._added.append(memory)
        return memory

    def finish(self, *, always: bool = False) -> Edited:
        """Write the memories, the counters and the audit entry. If no memory changed, nothing is written. If `always`
        is true, the audit entry is written even then."""
        touched = list(self._touched.values())
        if self.agent.redacted_seq and self.operation not in (Operation.REDACTED, Operation.ERASED):
            for number in redactions.put_back(self.agent, self._before):  # otherwise, the trail would have them again
                raise errors.SealBroken(f"Memory {number} of {self.agent.label} was redacted, and put back by SQL.")
        memories = tuple(memory for memory, *_ in touched)
        if not memories and not always:
            return Edited(None, (), self.agent)
        are_new = len(self._added) == len(memories)  # a merge is always possible
        if are_new and not self.ignores_switches and counters.held(self.agent) + len(memories) > MOST_MEMORIES:
            most = f"an agent can have at most {MOST_MEMORIES:,} memories"
            raise errors.Invalid("memories", f"cannot be added: {most}. Discard some of them first")
        edited.send(Edit, agent=self.agent, seq=self.seq, memories=memories, are_new=are_new)
        field, text = "note", self.note
        if self.operation in authority.OPERATIONS and self.agent.wrapped_key:
            field, text = authority.FIELD, authority.as_text(self.agent)
        sealed = Silo.for_agent(self.agent).seal_text(field, self.seq, text) if text else None
        pairs = [(weight, Weight.of(memory)) for memory, _, weight in touched]
        counters.apply(self.agent, pairs)
        versions: Sequence[StoreVersion] = ()
        if self._in_store:
            versions = places.versions_of(self.agent, self.seq, self.at, touched, pairs)
            self._changed |= {"store", "place"}  # `versions_of` may have removed them
        touches = [(memory.number, before, snapshot(memory)) for memory, before, _ in touched]
        self.agent.next_number += len(self._added)
        draft = trail.Draft(
            agent_id=self.agent.pk,
            tenant_id=self.agent.tenant_id,
            agent_label=self.agent.label,
            seq=self.seq,
            at=self.at,
            actor_kind=str(self.actor.kind),
            actor_label=self.actor.label,
            operation=str(self.operation),
            session=self.session,
            detail=self.detail,
            sealed=sealed,
            distinct_tokens=self.agent.core_tokens - self.agent.duplicate_tokens,
        )
        with bulk.pipelined():
            bulk.insert_many(self._added)
            bulk.insert_many(versions)
            bulk.update_many([memory for memory, before, _ in touched if before is not None], self._changed)
            counters.save(self.agent, trail.append(draft, bytes(self.agent.audit_mac), touches))
        if self.operation in _DECIDING:
            authority.require_nothing_added()
        bulk.analyze(len(memories), Memory, AuditEntry, Change)
        return Edited(self.seq, memories, self.agent)


# Entries that decide who reads, and those about what was read.
_DECIDING = authority.OPERATIONS | {*STEPS, Operation.CONTENT_READ}

# `no_key`: rows about the agent can be inserted meanwhile. Otherwise a claim and a sync of its vault could deadlock.
_locking = bulk.Prepared(lambda: Agent.objects.select_for_update(no_key=True).filter(pk=0))
# On SQLite, one thread of a process writes for an agent at a time: 16 writers made other agents wait up to 6 seconds.
_turns = [Lock() for _ in range(256)]
_locked_here: ContextVar[frozenset[int]] = ContextVar("locked agents", default=frozenset())


@contextmanager
def locked(agent: Agent, *, seconds: int | None = None) -> Iterator[Agent]:
    """Run the block in a transaction that locks the agent's row. Yields the current row.

    Pass this row to nested calls, so that they join the transaction. A nested call that locks the same agent through
    another object raises RuntimeError. Raises NotFound, NotAllowed and KeyRejected. Raises OperationalError if
    PostgreSQL waits longer than `seconds` for the lock.
    """
    # Without a transaction no row is locked, even if an interrupt left `is_locked` true.
    database = transaction.get_connection()
    is_open = database.in_atomic_block
    if is_open and agent.is_locked:
        yield agent
        return
    if is_open and agent.pk in _locked_here.get():
        raise RuntimeError("This agent is already locked. Pass on the row that `locked` yields.")
    with ExitStack() as turn:
        if not is_open and database.vendor == "sqlite":
            turn.enter_context(_turns[agent.pk % len(_turns)])
            _prepare(agent, database)
            turn.callback(setattr, database, "step", None)
        with transaction.atomic():
            since = time.monotonic()
            transaction.on_commit(turn.close)  # it ends before the tasks after the commit, such as the vault's files
            if seconds is not None:
                wait_at_most(seconds)
            row = next(iter(_locking(agent.pk)), None)
            # SQL may have changed the row while this waited for the lock
            if row is None or (row.pk, row.tenant_id, row.slug) != (agent.pk, agent.tenant_id, agent.slug):
                raise errors.NotFound("The agent does not exist.")
            row.tenant = agent.tenant  # the label needs it
            authority.require(row, agent)
            if isinstance(request_key.get(), AgentKey):
                require_valid_key(row)
            token = _locked_here.set(_locked_here.get() | {row.pk})
            row.is_locked = True
            try:
                yield row
            finally:
                row.is_locked = False
                _locked_here.reset(token)
                if time.monotonic() > since + LONG and not is_open and database.vendor == "sqlite":
                    turn.callback(_let_others_write, agent.pk)
            if row.audit_seq == agent.audit_seq:  # no entry has met one that SQL hid together with a newer row
                authority.require_last(row)
            # The lock keeps the agent's keys as they are, but not the tenant's rights. So these are checked last.
            if roles.request_rights.get() or isinstance(request_key.get(), TenantKey):
                require_rights_in(row.tenant_id)


def _prepare(agent: Agent, database: Any) -> None:
    """Do what must come before SQLite's lock."""
    database.step = PAUSE if time.monotonic() < _long_edits.get(agent.pk, 0.0) + NOTED else None
    if heads.is_behind(agent):
        authority.require_ahead(agent)


_long_edits: dict[int, float] = {}  # on SQLite: the agents with a long edit, and when it ended


def _let_others_write(agent_id: int) -> None:
    """Pause after a long edit, before another edit of the same agent begins. For a while, the agent then looks less
    often whether SQLite's lock is free. Otherwise its next edit, in another process, would begin before others."""
    if len(_long_edits) >= MOST_NOTED:
        _long_edits.clear()
    _long_edits[agent_id] = time.monotonic()
    time.sleep(PAUSE)


@contextmanager
def begin(
    agent: Agent, operation: str, actor: Actor, *, session: int | None = None, is_notice: bool = False
) -> Iterator[Edit]:
    """Begin an edit of one agent's memories. Lock the agent's row if it is not locked yet, and check the switches.

    Until `finish` is called, the edit writes nothing and does not change the locked row. With `is_notice`, the edit
    ignores the switches and the missing data key of an erased agent. Raises MemoryDisabled, Erased.
    """
    with locked(agent) as row:
        if not is_notice:
            require_key(row)
        if not (row.memory_enabled or is_notice):
            raise errors.MemoryDisabled
        now = timezone.now()
        at = max(now, row.audit_at) if row.audit_at else now  # never earlier than the previous entry
        yield Edit(row, actor, operation, session, row.audit_seq + 1, at, ignores_switches=is_notice)


def require_same_owner(row: Agent, before: Agent) -> None:
    """Raise FileFault if the agent was claimed, or has another memory file, since `before` was read."""
    if (row.claimed_at, row.memory_path) != (before.claimed_at, before.memory_path):
        raise errors.FileFault(
            "The agent was claimed, or has another memory file, since this began. Nothing was changed."
        )


def require_key(row: Agent) -> None:
    """Raise Erased for an agent whose data key was destroyed."""
    if not row.wrapped_key:
        raise errors.Erased(f"The silo of {row.label} was erased. It can no longer be read or changed.")


# Without statistics, PostgreSQL reads all memories of an agent to find an array of numbers. For a single number, it
# uses the index.
_one = bulk.Prepared(lambda: Memory.objects.filter(agent_id=0, number=0))
_several = bulk.Prepared(lambda: Memory.objects.filter(agent_id=0, number__among=[0]))


def fetch(agent: Agent, numbers: Sequence[int]) -> list[Memory]:
    """Return the agent's memories with these numbers, in this order. Raises UnknownMemory, DuplicateNumbers."""
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


# --- snapshots: a memory's whole state as one byte string
#
# The trail has the snapshots of a memory from before and after each edit. The head of a snapshot is the metadata as
# canonical JSON. Fields that are empty, false or null are left out. A NUL byte follows. The body is the keyed digest of
# the content, the place in a store, and the sealed bytes of the row. (The head has only the length of the place.) A
# redaction removes the body (`audit.trail`). Taking or restoring a snapshot does not decrypt anything.

DIGEST_BYTES = 32  # the length of a content's keyed digest
# No field may be called `trust`: this name is kept for a later version.
_TIMES = ("beneath_at", "created_at", "discarded_at", "origin", "origin_latest", "redacted_at")
_NAMES = ("category", "kind", "place", "scope", "source", "store", "superseded_by", "tokens", *_TIMES)
_LEFT_OUT: dict[str, Any] = dict.fromkeys(_NAMES) | {"project": "", "constitutional": False, "is_instruction": False}


def snapshot(memory: Memory) -> bytes:
    """Return the state of a memory, without `version`. (The version is the number of the entry with the snapshot.)"""
    fields = [
        f"{key}{form(value)}{end}"
        for name, key, form, end, left_out in _FIELDS
        if (value := getattr(memory, name)) != left_out
    ]
    body = bytes(memory.digest) + bytes(memory.place or b"") + bytes(memory.sealed)
    return f"{{{','.join(fields)}}}".encode() + b"\0" + body


# The result is the same as that of `json` with sorted names, but this is faster. A rollback of 10,000 memories takes
# 30,000 snapshots.
_FORMS: dict[str, Callable[[Any], str]] = dict.fromkeys(("store", "superseded_by", "tokens"), str)
_FORMS |= {"place": lambda place: str(len(place))}
_FORMS |= dict.fromkeys(("constitutional", "is_instruction"), json.dumps)
_FIELDS = [
    (name, f'"{name}":"', datetime.isoformat, '"', None)
    if name in _TIMES
    else (name, f'"{name}":', _FORMS.get(name, encode_basestring_ascii), "", _LEFT_OUT[name])
    for name in sorted(_LEFT_OUT)
]


def fields_of(snapshot: bytes) -> dict[str, Any]:
    """Return the field values of a snapshot. They can be set on a Memory."""
    text, _, body = snapshot.partition(b"\0")
    state = json.loads(text)
    fields: dict[str, Any] = {name: state.get(name, left_out) for name, left_out in _LEFT_OUT.items()}
    for name in _TIMES:
        if fields[name] is not None:
            fields[name] = datetime.fromisoformat(fields[name])
    end = DIGEST_BYTES + (fields["place"] or 0)
    place = body[DIGEST_BYTES:end] or None
    return fields | {"digest": body[:DIGEST_BYTES], "place": place, "sealed": body[end:]}


def sealed_of(snapshot: bytes) -> bytes:
    """Return the sealed content of a snapshot. This is faster than `fields_of`."""
    text, _, body = snapshot.partition(b"\0")
    return body[DIGEST_BYTES + json.loads(text).get("place", 0) :]


class KeyedDigest(SnapshotPart):
    """The keyed digest of a snapshot's content. It is empty if the memory is redacted."""

    sql: ClassVar = {
        "sqlite": f"substr({{0}}, instr({{0}}, x'00') + 1, {DIGEST_BYTES})",
        "postgresql": f"substring({{0}} from position('\\x00'::bytea in {{0}}) + 1 for {DIGEST_BYTES})",
    }
