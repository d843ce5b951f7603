"""Select the entries that a rollback undoes, and compute which entries are already undone.

The undone entries are computed from the rollbacks in the trail. Undone entries have no mark, because an entry never
changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Literal

from django.db.models import Max, Q, QuerySet

from audit.models import AuditEntry, Operation
from memory import errors
from memory.models import Agent

Part = Literal["entry", "session", "session_from", "import", "since_entry", "moment"]


@dataclass(frozen=True, slots=True)
class What:
    """The part of the trail that a rollback undoes.

    `at` is the number of the entry or session, or a moment. An import or a migration has the number of its first entry.
    `session_from` selects entry `at` and the later entries of its session.
    `since_entry` selects all entries after entry `at`. With 0, all entries are selected. `moment` selects all entries
    after this moment.
    """

    kind: Part
    at: int | datetime


def entries_of(agent: Agent, what: What) -> tuple[Sequence[int], Sequence[int]]:
    """Return two lists of entries. Both lists are in order. The rollback undoes the entries of the first list. The
    second list decides which states are restored. Each memory gets the state that it had before its first change in
    this list.

    For a session or an import, the second list also has the entries that are already undone. Without these entries, a
    memory could get a state from the middle of the session or import. If the rollback undoes everything since an entry
    or a moment, both lists are equal. In this case, no later entry exists, so there is no conflict.

    Raises UnknownEntry, SessionRunning, AlreadyUndone.
    """
    at, entries = what.at, AuditEntry.objects.filter(agent_id=agent.pk).order_by("seq")
    if isinstance(at, datetime):
        last: int = entries.filter(at__lte=at).aggregate(last=Max("seq", default=0))["last"]
        since = range(last + 1, agent.audit_seq + 1)
        return since, since
    if what.kind in ("entry", "since_entry") and not (1 if what.kind == "entry" else 0) <= at <= agent.audit_seq:
        raise errors.UnknownEntry(f"Entry {at} does not exist. The last entry is {agent.audit_seq}.")
    if what.kind == "since_entry":
        since = range(at + 1, agent.audit_seq + 1)
        return since, since
    if what.kind in ("session", "session_from"):
        name, seqs = _of_session(entries, what.kind, at)
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
        rollbacks = ", ".join(map(str, sorted(set(undone.values()))))
        raise errors.AlreadyUndone(f"{name} was already undone, by entry {rollbacks}. You can roll back that entry.")
    return left, seqs


def _of_session(entries: QuerySet[AuditEntry], kind: Part, at: int) -> tuple[str, list[int]]:
    """The name and the changes of a session, or of its part from an entry on. Raises UnknownEntry, SessionRunning."""
    number, first, name = at, 0, f"Session {at}"
    if kind == "session_from":
        found = entries.filter(seq=at).exclude(session=None).values_list("session", flat=True).first()
        if found is None:
            raise errors.UnknownEntry(f"Entry {at} does not exist, or belongs to no session.")
        number, first, name = found, at, f"Session {found} from entry {at}"
    rows = list(entries.filter(session=number).values_list("seq", "operation", "changes"))
    if not rows:
        raise errors.UnknownEntry(f"The trail has no session {number}.")
    if not any(operation == Operation.SESSION_CLOSED for _, operation, _ in rows):
        raise errors.SessionRunning(f"Session {number} has not ended yet.")
    return name, [seq for seq, _, changes in rows if changes > 0 and seq >= first]


class Undone:
    """Finds which entries are undone, and which rollback undid each of them.

    `rollbacks` lists the rollbacks, newest first. Each item has the number of the rollback, and the ranges (first,
    last) of the entries that it undid. A rollback that is itself undone is ignored. If several rollbacks undid an
    entry, the newest rollback is used. A redaction is never undone.
    """

    def __init__(
        self, rollbacks: Iterable[tuple[int, Iterable[Sequence[int]]]], redactions: Collection[int] = ()
    ) -> None:
        self._redactions = redactions
        self._runs: list[tuple[int, int, int]] = []  # first entry, last entry, rollback; sorted, without overlaps
        for seq, undid in rollbacks:
            if self.by(seq) is None:
                for first, last in undid:
                    self._add(first, last, seq)

    @classmethod
    def of(cls, agent: Agent) -> Undone:
        """Read the rollbacks from an agent's trail."""
        entries = AuditEntry.objects.filter(
            Q(operation=Operation.ROLLED_BACK.value) | Q(operation=Operation.REDACTED.value), agent_id=agent.pk
        )
        found = list(entries.order_by("-seq").values_list("seq", "operation", "detail__entries"))
        redactions = {seq for seq, operation, _ in found if operation == Operation.REDACTED}
        return cls(((seq, undid) for seq, _, undid in found if seq not in redactions), redactions)

    def by(self, entry: int) -> int | None:
        """Return the number of the rollback that undid this entry, or None."""
        place = _runs_until(self._runs, entry) - 1
        is_undone = place >= 0 and entry <= self._runs[place][1] and entry not in self._redactions
        return self._runs[place][2] if is_undone else None

    def _add(self, first: int, last: int, seq: int) -> None:
        """Add a range of undone entries. Entries that a newer rollback undid are left out."""
        start, stop = max(0, _runs_until(self._runs, first) - 1), _runs_until(self._runs, last)
        overlapping = self._runs[start:stop]
        fresh = []
        for begun, ended, _ in overlapping:
            if first < begun:
                fresh.append((first, begun - 1, seq))
            first = max(first, ended + 1)
        if first <= last:
            fresh.append((first, last, seq))
        self._runs[start:stop] = sorted(overlapping + fresh)


_runs_until = partial(bisect_right, key=itemgetter(0))  # counts the ranges that begin at an entry or before it


def runs_of(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of consecutive numbers: [3, 4, 5, 9] gives (3, 5) and (9, 9)."""
    if isinstance(seqs, range):
        if seqs:
            yield seqs[0], seqs[-1]
        return
    for _, run in groupby(enumerate(seqs), key=lambda pair: pair[1] - pair[0]):
        numbers = [seq for _, seq in run]
        yield numbers[0], numbers[-1]
