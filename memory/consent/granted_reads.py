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
from memory import errors
from memory.consent import grants, notices
from memory.models import Agent
from memory.silo.silo import Read, Silo
from memory.time_machine import trail_view
from memory.time_machine.trail_view import State as State
from memory.time_machine.trail_view import Step as Step
from memory.writing import edits, operations

MOST = 100  # memories, or steps of an entry, that one read shows


def memories(agent: Agent, number: int, person: Person, numbers: Sequence[int]) -> list[Read]:
    """What these memories say, by the grant of this number. Redacted ones say nothing, and are left out.

    Raises NotGranted, UnknownMemory, DuplicateNumbers, Invalid.
    """
    if not 0 < len(numbers) <= MOST:
        raise errors.Invalid("numbers", f"must be 1 to {MOST}")
    with grants.over_stays_over(agent), edits.locked(agent) as row:
        grant = grants.in_force(row, number, person)
        if not grant.scope.covers_memories(numbers):
            raise errors.NotGranted("The grant does not cover all of these.")
        found = [memory for memory in edits.fetch(row, numbers) if memory.redacted_at is None]
        _record(row, grant, person, {"memories": list(numbers)})
        silo = Silo.for_agent(row)
        return [Read(memory, silo.open(memory)) for memory in found]


def entry(agent: Agent, number: int, person: Person, seq: int, *, after: int = 0) -> list[Step]:
    """What an entry did to the memories that the grant covers, a page of it. Raises NotGranted, UnknownEntry."""
    with grants.over_stays_over(agent), edits.locked(agent) as row:
        grant = grants.in_force(row, number, person)
        done: AuditEntry = trail_view.entry(row, seq)
        if not grant.scope.covers_entry(done):
            raise errors.NotGranted("The grant does not cover this entry.")
        only = grant.scope.numbers if grant.scope.kind == "memories" else None
        touched = trail_view.touched(row, seq, after=after, limit=MOST, only=only)
        if not touched:
            raise errors.NotGranted("The grant covers nothing of this entry.")
        _record(row, grant, person, {"entry": seq, "memories": [change.number for change in touched]})
        return trail_view.opened(row, touched)


def gc_report(agent: Agent, number: int, person: Person, report: int, numbers: Sequence[int]) -> None:
    """Record that what a model said of these memories is read. Raises NotGranted unless the grant covers them all."""
    with grants.over_stays_over(agent), edits.locked(agent) as row:
        grant = grants.in_force(row, number, person)
        if not grant.scope.covers_memories(numbers):
            raise errors.NotGranted("The grant does not cover all that the report may quote.")
        _record(row, grant, person, {"gc_report": report})


def _record(agent: Agent, grant: Standing, person: Person, what: dict[str, Any]) -> None:
    """Write down who reads what, and tell the agent once."""
    actor, detail = Actor.person(person.address), {"request": grant.number} | what
    if not notices.reads(agent, grant.number).exists():
        operations.notify(agent, notices.at_first(grant), operation=Operation.CONTENT_READ, actor=actor, detail=detail)
        return
    with edits.begin(agent, Operation.CONTENT_READ, actor, is_notice=True) as edit:
        edit.detail = detail
        edit.finish(always=True)
