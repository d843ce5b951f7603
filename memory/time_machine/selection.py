"""Which entries a rollback undoes, and which entries are undone already.

What is undone is derived from the rollbacks in the trail: no row of the trail ever changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter

from django.db.models import Max, Q

from audit.models import AuditEntry, Operation
from memory import errors
from memory.models import Agent


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


def entries_of(agent: Agent, what: What) -> tuple[Sequence[int], Sequence[int]]:
    """The numbers of the entries to undo, in order, and of those before the first of which each memory is put back.

    Of a session or an import, the second are all its entries, also those that are undone already: otherwise a memory
    would be put back to a state from the midst of it. Of everything since an entry or a moment, both are a range, and
    no later entry can conflict.

    Raises UnknownEntry, SessionRunning, AlreadyUndone.
    """
    at, entries = what.at, AuditEntry.objects.filter(agent_id=agent.pk).order_by("seq")
    if isinstance(at, datetime):
        last: int = entries.filter(at__lte=at).aggregate(last=Max("seq", default=0))["last"]
        since = range(last + 1, agent.audit_seq + 1)
        return since, since
    if what.kind in ("entry", "since_entry") and not (1 if what.kind == "entry" else 0) <= at <= agent.audit_seq:
        raise errors.UnknownEntry(f"There is no entry {at}; the last is {agent.audit_seq}.")
    if what.kind == "since_entry":
        since = range(at + 1, agent.audit_seq + 1)
        return since, since
    if what.kind == "session":
        name = f"Session {at}"
        found = list(entries.filter(session=at).values_list("seq", "operation", "changes"))
        if not found:
            raise errors.UnknownEntry(f"There is no session {at} in the trail.")
        if not any(operation == Operation.SESSION_CLOSED for _, operation, _ in found):
            raise errors.SessionRunning(f"Session {at} is not over.")
        seqs = [seq for seq, _, changes in found if changes > 0]
    elif what.kind == "import":
        name = f"The import of entry {at}"
        seqs = list(entries.filter(seq__gte=at, detail__import=at).values_list("seq", flat=True))
        if not seqs:
            raise errors.UnknownEntry(f"No import or migration begins with entry {at}.")
    else:
        name, seqs = f"Entry {at}", [at]
    already = Undone.of(agent)
    undone = {seq: by for seq in seqs if (by := already.by(seq)) is not None}
    left = [seq for seq in seqs if seq not in undone]
    if seqs and not left:
        them = ", ".join(map(str, sorted(set(undone.values()))))
        raise errors.AlreadyUndone(f"{name} was undone by entry {them}, which can be rolled back itself.")
    return left, seqs


class Undone:
    """Which entries are undone, and by which rollback.

    It is worked out from the rollbacks, newest first: of each its number and the runs of entries that it undid, first
    and last, all before it. A rollback that was itself undone undoes nothing; of those that stand, the newest tells.
    Nothing undoes a redaction.
    """

    def __init__(
        self, rollbacks: Iterable[tuple[int, Iterable[Sequence[int]]]], redactions: Collection[int] = ()
    ) -> None:
        self._redactions = redactions
        self._runs: list[tuple[int, int, int]] = []  # first entry, last entry, rollback; in order, and apart
        for seq, undid in rollbacks:
            if self.by(seq) is None:
                for first, last in undid:
                    self._add(first, last, seq)

    @classmethod
    def of(cls, agent: Agent) -> Undone:
        """Of an agent's entries."""
        entries = AuditEntry.objects.filter(
            Q(operation=Operation.ROLLED_BACK.value) | Q(operation=Operation.REDACTED.value), agent_id=agent.pk
        )
        found = list(entries.order_by("-seq").values_list("seq", "operation", "detail__entries"))
        redactions = {seq for seq, operation, _ in found if operation == Operation.REDACTED}
        return cls(((seq, undid) for seq, _, undid in found if seq not in redactions), redactions)

    def by(self, entry: int) -> int | None:
        """The rollback that undid it."""
        place = _runs_until(self._runs, entry) - 1
        is_undone = place >= 0 and entry <= self._runs[place][1] and entry not in self._redactions
        return self._runs[place][2] if is_undone else None

    def _add(self, first: int, last: int, seq: int) -> None:
        """Take in what no newer rollback undid of a run."""
        start, stop = max(0, _runs_until(self._runs, first) - 1), _runs_until(self._runs, last)
        there = self._runs[start:stop]
        fresh = []
        for begun, ended, _ in there:
            if first < begun:
                fresh.append((first, begun - 1, seq))
            first = max(first, ended + 1)
        if first <= last:
            fresh.append((first, last, seq))
        self._runs[start:stop] = sorted(there + fresh)


_runs_until = partial(bisect_right, key=itemgetter(0))  # how many runs begin at an entry or before it


def runs_of(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """[3, 4, 5, 9] → (3, 5), (9, 9)."""
    if isinstance(seqs, range):
        if seqs:
            yield seqs[0], seqs[-1]
        return
    for _, run in groupby(enumerate(seqs), key=lambda pair: pair[1] - pair[0]):
        numbers = [seq for _, seq in run]
        yield numbers[0], numbers[-1]
