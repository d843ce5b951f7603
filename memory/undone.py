"""What is undone now, derived from the rollbacks in the trail: no row of it ever changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from audit.models import READS, AuditEntry, Change, Operation
from memory.models import Agent


class Runs:
    """Which entries are undone, and by which rollback, worked out from the rollbacks, newest first: of each its number
    and the runs of entries that it undid, first and last, all before it.

    A rollback that was itself undone undoes nothing; of those that stand, the newest tells.
    """

    def __init__(self, rollbacks: Iterable[tuple[int, Iterable[Sequence[int]]]]) -> None:
        self._runs: list[tuple[int, int, int]] = []  # first entry, last entry, rollback; in order, and apart
        for seq, undid in rollbacks:
            if self.by(seq) is None:
                for first, last in undid:
                    self._add(first, last, seq)

    def by(self, entry: int) -> int | None:
        place = self._place(entry)
        return self._runs[place][2] if place >= 0 and entry <= self._runs[place][1] else None

    def _add(self, first: int, last: int, seq: int) -> None:
        """Take in what no newer rollback undid of a run."""
        start, stop = max(0, self._place(first)), self._place(last) + 1
        there = self._runs[start:stop]
        fresh = []
        for begun, ended, _ in there:
            if first < begun:
                fresh.append((first, begun - 1, seq))
            first = max(first, ended + 1)
        if first <= last:
            fresh.append((first, last, seq))
        self._runs[start:stop] = sorted(there + fresh)

    def _place(self, entry: int) -> int:
        """Of the last run that does not begin after it; -1 for none."""
        return bisect_right(self._runs, entry, key=itemgetter(0)) - 1


class Undone:
    """Which of an agent's entries are undone now, and by which rollback. Nothing undoes a redaction."""

    def __init__(self, agent: Agent) -> None:
        entries = AuditEntry.objects.filter(agent_id=agent.pk)
        redactions = entries.filter(operation=Operation.REDACTED)
        rollbacks = entries.filter(operation=Operation.ROLLED_BACK).order_by("-seq").values_list("seq", "detail")
        self._redactions = frozenset(redactions.values_list("seq", flat=True))
        self._runs = Runs((seq, detail["entries"]) for seq, detail in rollbacks)

    def by(self, entry: int) -> int | None:
        """The rollback that undid it."""
        return None if entry in self._redactions else self._runs.by(entry)


def told_of_reads(agent: Agent) -> list[int]:
    """The notices by which the agent was told that a person reads: no rollback takes them back, or whoever read could
    have the agent not know."""
    reads = AuditEntry.objects.filter(READS, agent_id=agent.pk, changes__gt=0)
    told = Change.objects.filter(agent_id=agent.pk, seq__in=reads.values("seq"))
    return list(told.values_list("number", flat=True))
