"""An agent's own trail, for its side: what was done to its memories, by whom, with what they said before and after."""

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
    """Which entries are listed; None is any."""

    operation: str | None = None
    memory: int | None = None
    session: int | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, repr=False)
class State:
    """A memory before or after an edit. `opened` is None where it was redacted."""

    fields: dict[str, Any]
    opened: Opened | None


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """What one entry did to one memory."""

    number: int
    before: State | None
    after: State | None


def page(agent: Agent, filters: Filters, *, after: int, limit: int) -> list[AuditEntry]:
    """The next entries by number."""
    rows = AuditEntry.objects.filter(agent_id=agent.pk, seq__gt=after)
    wanted = {"operation": filters.operation, "session": filters.session, "at__gte": filters.since}
    rows = rows.filter(**{name: value for name, value in wanted.items() if value is not None})
    if filters.memory is not None:
        touched = Change.objects.filter(agent_id=agent.pk, number=filters.memory)
        rows = rows.filter(seq__in=touched.values("seq"))
    return list(rows.order_by("seq")[:limit])


def entry(agent: Agent, seq: int) -> AuditEntry:
    """Raises UnknownEntry."""
    found = AuditEntry.objects.filter(agent_id=agent.pk, seq=seq).first()
    if found is None:
        raise UnknownEntry(f"There is no entry {seq}.")
    return found


def note(agent: Agent, entry: AuditEntry) -> str:
    """What the edit dropped, in the agent's words, or the steward it replaced; empty where there is none
    (any more)."""
    return "" if entry.sealed is None else Silo.for_agent(agent).open_text("note", entry.seq, bytes(entry.sealed))


def steps(agent: Agent, seq: int, *, after: int, limit: int) -> list[Step]:
    """What an entry did, memory by memory in order of number."""
    return opened(agent, touched(agent, seq, after=after, limit=limit))


def touched(agent: Agent, seq: int, *, after: int, limit: int, only: Sequence[int] | None = None) -> list[Change]:
    """The next of an entry's changes, sealed; `only` those of these memories."""
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
