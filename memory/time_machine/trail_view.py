"""Read an agent's audit trail for the agent's side. The states of memories before and after each entry can also be
read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from audit import trail
from audit.models import AuditEntry, Change
from memory.errors import UnknownEntry
from memory.models import Agent
from memory.silo.silo import Opened, Silo
from memory.writing.edits import fields_of


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters for a list of entries. A filter that is None allows all entries."""

    operation: str | None = None
    memory: int | None = None
    session: int | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, repr=False)
class State:
    """The state of a memory before or after an edit. `opened` is None if the memory is redacted."""

    fields: dict[str, Any]
    opened: Opened | None


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """The change of one memory by one entry."""

    number: int
    before: State | None
    after: State | None


def page(agent: Agent, filters: Filters, *, after: int, limit: int) -> list[AuditEntry]:
    """Return at most `limit` entries with numbers above `after`, sorted by number."""
    rows = AuditEntry.objects.filter(agent_id=agent.pk, seq__gt=after)
    wanted = {"operation": filters.operation, "session": filters.session, "at__gte": filters.since}
    rows = rows.filter(**{name: value for name, value in wanted.items() if value is not None})
    if filters.memory is not None:
        touched = Change.objects.filter(agent_id=agent.pk, number=filters.memory)
        rows = rows.filter(seq__in=touched.values("seq"))
    return list(rows.order_by("seq")[:limit])


def entry(agent: Agent, seq: int) -> AuditEntry:
    """Return one entry. Raises UnknownEntry."""
    found = AuditEntry.objects.filter(agent_id=agent.pk, seq=seq).first()
    if found is None:
        raise UnknownEntry(f"Entry {seq} does not exist.")
    return found


def note(agent: Agent, entry: AuditEntry) -> str:
    """Return the note of an entry, or "". A note is the agent's text about facts that an edit left out, or the address
    of the previous steward."""
    return "" if entry.sealed is None else Silo.for_agent(agent).open_text("note", entry.seq, bytes(entry.sealed))


def steps(agent: Agent, seq: int, *, after: int, limit: int) -> list[Step]:
    """Return the decrypted changes of an entry, in order of the memories' numbers."""
    return opened(agent, touched(agent, seq, after=after, limit=limit))


def touched(agent: Agent, seq: int, *, after: int, limit: int, only: Sequence[int] | None = None) -> list[Change]:
    """Return at most `limit` changes of an entry, for memories with numbers above `after`. The changes are not
    decrypted. With `only`, changes of other memories are left out."""
    rows = Change.objects.filter(agent_id=agent.pk, seq=seq, number__gt=after).order_by("number")
    return list((rows if only is None else rows.filter(number__among=list(only)))[:limit])


def opened(agent: Agent, changes: Iterable[Change]) -> list[Step]:
    silo = Silo.for_agent(agent)
    return [
        Step(change.number, _state(silo, change.number, change.before), _state(silo, change.number, change.after))
        for change in changes
    ]


def _state(silo: Silo, number: int, kept: bytes | memoryview[int] | None) -> State | None:
    if kept is None:
        return None
    snapshot = bytes(kept)
    fields = fields_of(snapshot)
    sealed = fields.pop("sealed")
    fields.pop("digest")
    return State(fields, silo.open_sealed(number, sealed) if trail.has_body(snapshot) else None)
