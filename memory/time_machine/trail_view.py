"""Read an agent's audit trail for the agent's side. The states of memories before and after each entry can also be
read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from audit import trail
from audit.bulk import in_parts
from audit.models import CONSENT, AuditEntry, Change, Operation
from memory.access import authority
from memory.errors import UnknownEntry
from memory.models import Agent
from memory.silo.silo import Opened, Silo
from memory.writing.edits import fields_of


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

    def size(self) -> int:
        """The characters of both contents."""
        states = (self.before, self.after)
        return sum(len(state.opened.content) for state in states if state is not None and state.opened is not None)


def page(agent: Agent, *, after: int, limit: int, memory: int | None = None, **filters: Any) -> list[AuditEntry]:
    """Return at most `limit` entries with numbers above `after`, sorted by number. With `memory`, only the entries
    that changed this memory are returned. `filters` are lookups of entries, such as `operation` or `at__gte`."""
    rows = AuditEntry.objects.filter(agent_id=agent.pk, seq__gt=after, **filters)
    if memory is not None:
        rows = rows.filter(seq__in=Change.objects.filter(agent_id=agent.pk, number=memory).values("seq"))
    return list(rows.order_by("seq")[:limit])


def entry(agent: Agent, seq: int) -> AuditEntry:
    """Return one entry. Raises UnknownEntry."""
    found = AuditEntry.objects.filter(agent_id=agent.pk, seq=seq).first()
    if found is None:
        raise UnknownEntry(f"Entry {seq} does not exist.")
    return found


def note(agent: Agent, entry: AuditEntry) -> str:
    """Return the note of an entry, or "". A note is the agent's text about facts that an edit left out."""
    if entry.sealed is None or entry.operation in authority.OPERATIONS:
        return ""
    return Silo.for_agent(agent).open_text("note", entry.seq, bytes(entry.sealed))


def authority_of(agent: Agent, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `memory.access.authority` in this entry. Raises SealBroken."""
    text = Silo.for_agent(agent).open_text(authority.FIELD, entry["seq"], bytes(entry["sealed"] or b""))
    values: dict[str, Any] = json.loads(text)
    return values


def set_by(agent: Agent, name: str) -> str:
    """Return the kind of the actor who last set this field of the agent."""
    changes = AuditEntry.objects.filter(CONSENT, agent_id=agent.pk, operation=Operation.AGENT_CHANGED)
    last = changes.filter(detail__changed__has_key=name).order_by("-seq").values_list("actor_kind", flat=True).first()
    return last or entry(agent, 1).actor_kind


def touched(agent: Agent, seq: int, *, after: int, limit: int) -> Iterator[Change]:
    """Yield at most `limit` changes of an entry, for memories with numbers above `after`. The changes are not
    decrypted."""
    yield from in_parts(Change.objects.filter(agent_id=agent.pk, seq=seq), after=after, limit=limit)


def opened(agent: Agent, changes: Iterable[Change]) -> Iterator[Step]:
    silo = Silo.for_agent(agent)
    for change in changes:
        states = (_state(silo, change.number, kept) for kept in (change.before, change.after))
        yield Step(change.number, *states)


def _state(silo: Silo, number: int, kept: bytes | memoryview[int] | None) -> State | None:
    if kept is None:
        return None
    snapshot = bytes(kept)
    fields = fields_of(snapshot)
    sealed = fields.pop("sealed")
    del fields["digest"], fields["place"]
    return State(fields, silo.open_sealed(number, sealed) if trail.has_body(snapshot) else None)
