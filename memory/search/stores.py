"""Read memory stores: their memories and the versions of these memories."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import models
from django.db.models import F, Func, Max, Min, Value
from django.db.models.functions import Length

from audit import trail
from audit.bulk import in_parts
from audit.models import AuditEntry, Change
from memory.models import Agent, Memory, StoreVersion
from memory.models.memories import MemoryQuerySet
from memory.policy import switches
from memory.silo.silo import PLACE_BYTES, Label, Silo
from memory.writing.edits import Edited, sealed_of
from memory.writing.places import DELETED, after


@dataclass(frozen=True, slots=True, repr=False)
class Item:
    """A memory of a store. `version` is the audit entry that last changed it in the store. `content` is None if it was
    not asked for."""

    memory: Memory
    label: Label
    content: str | None
    version: int
    updated_at: datetime


@dataclass(frozen=True, slots=True, repr=False)
class Version:
    """A version of a memory, with the audit entry that made it. `label` is None if it is redacted. `redacted_by` is the
    entry of the redaction."""

    row: StoreVersion
    entry: AuditEntry
    label: Label | None
    content: str | None
    redacted_by: AuditEntry | None


def items(agent: Agent, memories: Sequence[Memory], *, is_full: bool) -> list[Item]:
    """The memories as clients see them, each with its version. Raises MemoryDisabled, CategoryDisabled."""
    switches.require_on(agent)
    switches.require_readable(agent, memories)
    rows = StoreVersion.objects.filter(agent_id=agent.pk, number__among=[memory.number for memory in memories])
    latest = max((memory.version for memory in memories), default=0)
    rows = rows.filter(seq__lte=latest)  # what a later writer adds is higher
    found = rows.order_by().values_list("number").annotate(Max("seq"), Max("at"))
    versions = {number: (seq, at) for number, seq, at in found}
    silo, made = Silo.for_agent(agent), []
    for memory in memories:
        label = silo.open_label(memory.number, bytes(memory.sealed))
        version = versions.get(memory.number, (memory.version, memory.created_at))  # the agent was erased meanwhile
        made.append(Item(memory, label, silo.open(memory).content if is_full else None, *version))
    return made


def added(agent: Agent, edited: Edited, *, is_full: bool) -> Item:
    """The memory that an edit has just added."""
    memory, silo = edited.memory, Silo.for_agent(agent)
    label, content = silo.open_label(memory.number, bytes(memory.sealed)), silo.open(memory).content
    return Item(memory, label, content if is_full else None, memory.version, memory.created_at)


def path_of(agent: Agent, number: int) -> str:
    """Return the path of a memory in its store, or "" if it is in no store."""
    found = Memory.objects.of(agent).kept().filter(number=number, store__isnull=False).first()
    return Silo.for_agent(agent).open_label(number, bytes(found.sealed)).path if found else ""


def at(agent: Agent, store: int, path: str) -> Memory | None:
    """Return the memory with this path."""
    return Memory.objects.of(agent).kept().filter(store=store, place=Silo.for_agent(agent).place(store, path)).first()


def page(agent: Agent, store: int, prefix: str, *, after_number: int, limit: int) -> list[Memory]:
    """Return at most `limit` memories of a store below a folder, with numbers above `after_number`."""
    return list(below(agent, store, prefix).filter(number__gt=after_number).order_by("number")[:limit])


def labels(agent: Agent, store: int, prefix: str, *, limit: int) -> Iterator[tuple[int, Label]]:
    """Yield the number and the label of at most `limit` memories below a folder. Raises MemoryDisabled,
    CategoryDisabled."""
    switches.require_on(agent)
    silo = Silo.for_agent(agent)
    for memory in in_parts(below(agent, store, prefix), after=0, limit=limit):
        switches.require_readable(agent, [memory])
        yield memory.number, silo.open_label(memory.number, bytes(memory.sealed))


class Child(NamedTuple):
    """What is directly in a folder: a memory, or a folder with at least one memory. `place` is its place."""

    place: bytes
    memory: Memory
    is_folder: bool


def children(agent: Agent, store: int, prefix: str, *, after_place: bytes, limit: int) -> list[Child]:
    """Return at most `limit` memories and folders that are directly in a folder, in the order of their places. The
    memory of a folder is one of the memories in it."""
    depth = PLACE_BYTES * (prefix.count("/") or 1)
    head = Func(F("place"), Value(1), Value(depth), function="SUBSTR", output_field=models.BinaryField())
    rows = below(agent, store, prefix).annotate(head=head)
    rows = rows.filter(head__gt=after_place) if after_place else rows
    groups = rows.values("head").annotate(first=Min("number"), longest=Max(Length("place"))).order_by("head")[:limit]
    found = [(bytes(each["head"]), each["first"], each["longest"] > depth) for each in groups]
    memories = {memory.number: memory for memory in Memory.objects.of(agent).numbered(n for _, n, _ in found)}
    return [Child(place, memories[number], is_folder) for place, number, is_folder in found]


def below(agent: Agent, store: int, prefix: str) -> MemoryQuerySet:
    """A query for the memories of a store below a folder."""
    rows = Memory.objects.of(agent).kept().filter(store=store)
    if prefix.rstrip("/"):
        folder = Silo.for_agent(agent).place(store, prefix)
        rows = rows.filter(place__gt=folder, place__lt=after(folder))
    return rows


def versions(
    agent: Agent, store: int, wanted: dict[str, Any], *, before: tuple[int, int] | None, limit: int
) -> list[StoreVersion]:
    """Return at most `limit` versions, newest first. `wanted` has lookups of `StoreVersion`, and `actor`: the actor's
    kind and label, or a session."""
    actor = wanted.pop("actor", None)
    # For one memory, `+ 0` keeps SQLite from using the index of the store.
    of = F("store") + 0 if "number" in wanted else F("store")
    rows = StoreVersion.objects.annotate(of=of).filter(agent_id=agent.pk, of=store, **wanted)
    if actor is not None:
        rows = rows.filter(seq__in=AuditEntry.objects.filter(agent_id=agent.pk, **actor).values("seq"))
    if before is not None:
        seq, number = before
        rows = rows.filter(seq__lte=seq).exclude(seq=seq, number__gte=number)
    return list(rows.order_by("-seq", "-number")[:limit])


def opened(agent: Agent, rows: Sequence[StoreVersion], *, is_full: bool) -> list[Version]:
    """Raises MemoryDisabled, CategoryDisabled."""
    switches.require_on(agent)
    if switches.closed(agent):
        memories = Memory.objects.of(agent).numbered({row.number for row in rows}).defer("sealed", "digest")
        switches.require_readable(agent, memories)
    changes = Change.objects.filter(agent_id=agent.pk, seq__among=sorted({row.seq for row in rows}))
    changes = changes.filter(number__among=sorted({row.number for row in rows}))
    snapshots = {(each.seq, each.number): each for each in changes}
    for row in rows:
        if row.redaction is None and not trail.has_body(_snapshot(row, snapshots)):
            row.refresh_from_db()  # a redaction came between the two reads
    entries = _entries(agent, {seq for row in rows for seq in (row.seq, row.redaction) if seq})
    silo, found = Silo.for_agent(agent), []
    for row in rows:
        label = content = None
        if row.redaction is None:
            sealed = sealed_of(_snapshot(row, snapshots))
            label = silo.open_label(row.number, sealed)
            is_shown = is_full and row.operation != DELETED
            content = silo.open_sealed(row.number, sealed).content if is_shown else None
        redacted_by = entries[row.redaction] if row.redaction else None
        found.append(Version(row, entries[row.seq], label, content, redacted_by))
    return found


def _snapshot(row: StoreVersion, changes: Mapping[tuple[int, int], Change]) -> bytes:
    change = changes[row.seq, row.number]
    return bytes((change.before if row.operation == DELETED else change.after) or b"")


def _entries(agent: Agent, seqs: Iterable[int]) -> dict[int, AuditEntry]:
    rows = AuditEntry.objects.filter(agent_id=agent.pk, seq__among=sorted(seqs)).defer("detail", "sealed")
    return {entry.seq: entry for entry in rows}
