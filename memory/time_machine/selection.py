"""What is to be undone (an entry, a session, an import, everything since a moment or an entry), and which entries that
is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Max

from audit.models import AuditEntry, Operation
from memory import errors
from memory.models import Agent
from memory.time_machine.undone import Undone


@dataclass(frozen=True, slots=True)
class What:
    """What is to be undone."""

    kind: str  # entry | session | import | since_entry | moment
    at: int | datetime

    @classmethod
    def entry(cls, seq: int) -> What:
        return cls("entry", seq)

    @classmethod
    def session(cls, number: int) -> What:
        return cls("session", number)

    @classmethod
    def imported(cls, first: int) -> What:
        """An import or a migration, by the first of its entries."""
        return cls("import", first)

    @classmethod
    def since_entry(cls, seq: int) -> What:
        """Everything after this entry; 0 is before the first."""
        return cls("since_entry", seq)

    @classmethod
    def moment(cls, at: datetime) -> What:
        """Everything after this moment."""
        return cls("moment", at)

    @property
    def is_suffix(self) -> bool:
        """Whether nothing comes after what is undone, so that nothing can conflict."""
        return self.kind in ("since_entry", "moment")

    def named(self) -> dict[str, Any]:
        return {self.kind: self.at.isoformat() if isinstance(self.at, datetime) else self.at}


def entries_of(agent: Agent, what: What) -> tuple[Sequence[int], Sequence[int]]:
    """The numbers of the entries to undo, in order, and those before the first of which each memory is put back: the
    same, but of a session or an import all, also those undone already, or what is put back would be a state from its
    midst.

    Raises what keeps them from being undone.
    """
    if what.kind == "session" and isinstance(what.at, int):
        return _of_session(agent, what.at)
    if what.kind == "import" and isinstance(what.at, int):
        return _of_import(agent, what.at)
    entries = _of_one_kind(agent, what)
    return entries, entries


def _of_one_kind(agent: Agent, what: What) -> Sequence[int]:
    if isinstance(what.at, datetime):
        last = AuditEntry.objects.filter(agent_id=agent.pk, at__lte=what.at).aggregate(last=Max("seq"))["last"] or 0
        return range(last + 1, agent.audit_seq + 1)
    is_suffix = what.kind == "since_entry"
    if not (0 if is_suffix else 1) <= what.at <= agent.audit_seq:
        raise errors.UnknownEntry(f"There is no entry {what.at}; the last is {agent.audit_seq}.")
    if is_suffix:
        return range(what.at + 1, agent.audit_seq + 1)
    by = Undone(agent).by(what.at)
    if by is not None:
        raise errors.AlreadyUndone(f"Entry {what.at} was undone by entry {by}, which can be rolled back itself.")
    return [what.at]


def _of_session(agent: Agent, number: int) -> tuple[list[int], list[int]]:
    """The session's entries that changed memories: those not undone yet, and all."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk, session=number).order_by("seq")
    told = list(entries.values_list("seq", "operation", "changes"))
    if not told:
        raise errors.UnknownEntry(f"There is no session {number} in the trail.")
    if not any(operation == Operation.SESSION_CLOSED for _, operation, _ in told):
        raise errors.NotOver(f"Session {number} is not over.")
    return _left(agent, f"Session {number}", [seq for seq, _, changes in told if changes > 0])


def _of_import(agent: Agent, first: int) -> tuple[list[int], list[int]]:
    """The entries of an import: those not undone yet, and all. They name the first of them."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk, seq__gte=first, detail__import=first)
    seqs = list(entries.order_by("seq").values_list("seq", flat=True))
    if not seqs:
        raise errors.UnknownEntry(f"No import or migration begins with entry {first}.")
    return _left(agent, f"The import of entry {first}", seqs)


def _left(agent: Agent, what: str, seqs: list[int]) -> tuple[list[int], list[int]]:
    """Of these entries those not undone yet, and all. Raises AlreadyUndone."""
    already = Undone(agent)
    undone = {seq: by for seq in seqs if (by := already.by(seq)) is not None}
    left = [seq for seq in seqs if seq not in undone]
    if seqs and not left:
        them = ", ".join(map(str, sorted(set(undone.values()))))
        raise errors.AlreadyUndone(f"{what} was undone by entry {them}, which can be rolled back itself.")
    return left, seqs
