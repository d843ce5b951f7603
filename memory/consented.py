"""Reading under a grant: the one road by which a person comes to see what a memory says.

Checked at every read, against the trail itself; recorded in the trail before a word is opened; told to the agent, the
first time of each grant, by a notice in its journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from audit.consent import Person, Standing
from audit.models import AuditEntry, Operation
from audit.trail import Actor
from memory import consent, editing, errors, history, read_notices, store
from memory.history import State as State
from memory.history import Step as Step
from memory.models import Agent
from memory.reading import Read as Read
from memory.silo.silo import Silo

MOST = 100  # memories, or steps of an entry, that one read shows


def memories(agent: Agent, number: int, person: Person, numbers: Sequence[int]) -> list[Read]:
    """What these memories say, by the grant of this number. Redacted ones say nothing, and are left out.

    Raises NotGranted, UnknownMemory, Repeated, Invalid.
    """
    if not 0 < len(numbers) <= MOST:
        raise errors.Invalid("numbers", f"must be 1 to {MOST}")
    with consent.over_stays_over(agent), editing.locked(agent) as row:
        grant = consent.in_force(row, number, person)
        if not grant.scope.covers_memories(numbers):
            raise errors.NotGranted("The grant does not cover all of these.")
        found = [memory for memory in editing.fetch(row, numbers) if memory.redacted_at is None]
        _record(row, grant, person, {"memories": list(numbers)})
        silo = Silo.for_agent(row)
        return [Read(memory, silo.open(memory)) for memory in found]


def entry(agent: Agent, number: int, person: Person, seq: int, *, after: int = 0) -> list[Step]:
    """What an entry did to the memories that the grant covers, a page of it. Raises NotGranted, UnknownEntry."""
    with consent.over_stays_over(agent), editing.locked(agent) as row:
        grant = consent.in_force(row, number, person)
        done: AuditEntry = history.entry(row, seq)
        if not grant.scope.covers_entry(done):
            raise errors.NotGranted("The grant does not cover this entry.")
        only = grant.scope.numbers if grant.scope.kind == "memories" else None
        touched = history.touched(row, seq, after=after, limit=MOST, only=only)
        if not touched:
            raise errors.NotGranted("The grant covers nothing of this entry.")
        _record(row, grant, person, {"entry": seq, "memories": [change.number for change in touched]})
        return history.opened(row, touched)


def gc_report(agent: Agent, number: int, person: Person, report: int, numbers: Sequence[int]) -> None:
    """Record that what a model said of these memories is read. Raises NotGranted unless the grant covers them all."""
    with consent.over_stays_over(agent), editing.locked(agent) as row:
        grant = consent.in_force(row, number, person)
        if not grant.scope.covers_memories(numbers):
            raise errors.NotGranted("The grant does not cover all that the report may quote.")
        _record(row, grant, person, {"gc_report": report})


def _record(agent: Agent, grant: Standing, person: Person, what: dict[str, Any]) -> None:
    """Write down who reads what, and tell the agent once."""
    actor, detail = Actor.person(person.address), {"request": grant.number} | what
    if not read_notices.reads(agent, grant.number).exists():
        store.notify(agent, read_notices.at_first(grant), operation=Operation.CONTENT_READ, actor=actor, detail=detail)
        return
    with editing.begin(agent, Operation.CONTENT_READ, actor, is_notice=True) as edit:
        edit.detail = detail
        edit.finish(always=True)
