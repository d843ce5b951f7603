"""Reads under a grant. A person has no other way to read content.

Each read is checked against the audit trail, and recorded there before the content is decrypted. The first read under a
grant adds a notice to the agent's journal.
"""

from collections.abc import Sequence, Set
from typing import Any

from audit import redactions, verify
from audit.consent import Person, Request
from audit.ill_formed import binary_or_none
from audit.models import Change, Operation
from audit.trail import Actor, has_body
from memory import errors
from memory.access import authority
from memory.consent import grants, notices, requests
from memory.models import Agent, Memory
from memory.silo.silo import Read, Silo
from memory.time_machine import trail_view
from memory.time_machine.trail_view import State as State
from memory.time_machine.trail_view import Step as Step
from memory.writing import edits, operations

Place = tuple[int, int]  # the number of a memory, and of the entry that changed it
MAX_READ = 100  # memories, or steps of an entry, per read
NEAR = 50  # entries: to check those between two takes less time than another check


def memories(agent: Agent, number: int, person: Person, numbers: Sequence[int]) -> list[Read]:
    """Read the content of these memories under grant `number`. Redacted memories are left out.

    Raises NotGranted, UnknownMemory, DuplicateNumbers, Invalid. Raises SealBroken for an altered row.
    """
    if not 0 < len(numbers) <= MAX_READ:
        raise errors.Invalid("numbers", f"must have 1 to {MAX_READ} numbers")
    last, ahead = _last_redaction(agent), _ahead(agent, number, person, numbers)
    with grants.in_force(agent, number, person) as (row, grant):
        if not grant.scope.covers_memories(numbers):
            raise errors.NotGranted("The grant does not cover all of these memories.")
        rows = [each for each in edits.fetch(row, numbers) if not each.redacted_at]
        redacted = redactions.whole(row.pk, numbers)  # SQL may have put back a row
        wanted = {(each.number, each.version) for each in rows}
        ahead = ahead if row.redacted_seq == last else {}
        known = {place: body for place, body in _in_trail(row.pk, wanted).items() if ahead.get(place) == body}
        known |= _snapshots(row.pk, wanted - known.keys())
        found = [m for m in rows if m.number not in redacted and has_body(known.get((m.number, m.version), b""))]
        for memory in found:
            if known[memory.number, memory.version] != edits.snapshot(memory):
                raise errors.SealBroken(
                    f"Memory {memory.number} of {row.label} cannot be read: its row is not as in the trail."
                )
        _record(row, grant, person, {"memories": list(numbers)})
        silo = Silo.for_agent(row)
        return [Read(memory, silo.open(memory)) for memory in found]


def _last_redaction(agent: Agent) -> int | None:
    """The number of the last redaction, or None if SQL has changed the row: it can predict the next number."""
    return agent.redacted_seq if authority.is_signed(agent) else None


def _ahead(agent: Agent, number: int, person: Person, numbers: Sequence[int]) -> dict[Place, bytes]:
    """The snapshots of these memories before the agent is locked: to check entries with many changes takes long."""
    if not _is_granted(agent, number, person):
        return {}
    return _snapshots(agent.pk, set(Memory.objects.of(agent).numbered(numbers).values_list("number", "version")))


def _is_granted(agent: Agent, number: int, person: Person) -> bool:
    grant = requests.get(agent, number)
    return grant is not None and (grant.person_id, grant.state) == (person.id, "active")


def _in_trail(agent_id: int, places: Set[Place]) -> dict[Place, bytes]:
    """The snapshots that the trail has there now, not checked."""
    numbers, entries = ([place[each] for place in places] for each in (0, 1))
    changes = Change.objects.filter(agent_id=agent_id, number__among=numbers, seq__among=entries)
    found = changes.values_list("number", "seq", "after")
    return {(number, seq): binary_or_none(after) or b"" for number, seq, after in found if (number, seq) in places}


def _snapshots(agent_id: int, wanted: Set[Place]) -> dict[Place, bytes]:
    """The snapshots of these memories after these entries, without those of altered entries. Entries that are near each
    other are checked together."""
    runs: list[list[int]] = []
    for seq in sorted({seq for _, seq in wanted}):
        if runs and seq - runs[-1][1] <= NEAR:
            runs[-1][1] = seq
        else:
            runs.append([seq, seq])
    changes = [
        change
        for first, last in runs
        for change in verify.intact_changes(agent_id, first, last, keep=lambda row: (row.number, row.seq) in wanted)
    ]
    return {(change.number, change.seq): binary_or_none(change.after) or b"" for change in changes}


def entry(agent: Agent, number: int, person: Person, seq: int, *, after: int = 0) -> list[Step]:
    """Read one page of the changes in entry `seq`. Changes of memories that the grant does not cover are left out.

    Raises NotGranted, UnknownEntry.
    """
    last, ahead = _last_redaction(agent), _entry_ahead(agent, number, person, seq)
    with grants.in_force(agent, number, person) as (row, grant):
        trail_view.entry(row, seq)
        if row.redacted_seq != last:
            ahead = verify.intact(row.pk, bool, seq, seq + 1)
        *changes, found = ahead or [{"session": None}]
        covered = [each for each in changes if grant.scope.covers_change(seq, found["session"], each.number)]
        covered = [each for each in covered if each.number > after]
        redacted = redactions.whole(row.pk, (each.number for each in covered))  # SQL may have put back a row before
        touched = [each for each in covered if each.number not in redacted or not _has_words(each)][:MAX_READ]
        touched = _unchanged(row.pk, seq, touched)
        if not touched:
            raise errors.NotGranted("The grant covers no memory of this entry, or the entry was altered.")
        _record(row, grant, person, {"entry": seq, "memories": [change.number for change in touched]})
        return list(trail_view.opened(row, touched))


def _entry_ahead(agent: Agent, number: int, person: Person, seq: int) -> list[Any]:
    """The changes of the entry, and then the entry itself. They are checked before the agent is locked, like those of
    memories. Empty if the entry was altered."""
    # The second attempt is for a redaction that was just committed.
    attempts = range(2 if _is_granted(agent, number, person) else 0)
    return next(filter(None, (verify.intact(agent.pk, bool, seq, seq + 1) for _ in attempts)), [])


def _unchanged(agent_id: int, seq: int, changes: list[Any]) -> list[Any]:
    """Those of these changes that are still the same in the trail."""
    found = Change.objects.filter(agent_id=agent_id, seq=seq, number__among=[each.number for each in changes])
    present = {(each.number, _bodies(each)) for each in found}
    return [each for each in changes if (each.number, _bodies(each)) in present]


def _bodies(change: Any) -> tuple[bytes | None, bytes | None]:
    return binary_or_none(change.before), binary_or_none(change.after)


def _has_words(change: Any) -> bool:
    return any(has_body(each or b"") for each in _bodies(change))


def gc_report(agent: Agent, number: int, person: Person, report: int, numbers: Sequence[int]) -> None:
    """Record that a gc report about these memories was read. Raises NotGranted unless the grant covers all of these, or
    if one of them was redacted."""
    with grants.in_force(agent, number, person) as (row, grant):
        if not grant.scope.covers_memories(numbers) or redactions.whole(row.pk, numbers):  # SQL may have put back a row
            raise errors.NotGranted("The grant does not cover all memories that the report may quote.")
        _record(row, grant, person, {"gc_report": report})


def _record(agent: Agent, grant: Request, person: Person, what: dict[str, Any]) -> None:
    """Record the read. The first read under a grant also adds a notice for the agent. Raises NotGranted if the grant
    has expired meanwhile, because an entry may have to wait."""
    operation, actor, detail = Operation.CONTENT_READ, Actor.person(person.address), {"request": grant.number} | what
    if not notices.reads(agent, grant.number).exists():
        operations.notify(agent, notices.first_text(grant), operation=operation, actor=actor, detail=detail)
    else:
        with edits.begin(agent, operation, actor, is_notice=True) as edit:
            edit.detail = detail
            edit.finish(always=True)
    grants.require_active(agent, grant)
