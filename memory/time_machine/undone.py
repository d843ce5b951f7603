"""What is undone now, derived from the rollbacks in the trail: no row of it ever changes."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from itertools import groupby
from operator import itemgetter, or_
from typing import Any

from django.db.models import Exists, OuterRef, Q

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


def runs_of(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """[3, 4, 5, 9] → (3, 5), (9, 9)."""
    if isinstance(seqs, range):
        if seqs:
            yield seqs[0], seqs[-1]
        return
    for _, run in groupby(enumerate(seqs), key=lambda pair: pair[1] - pair[0]):
        numbers = [seq for _, seq in run]
        yield numbers[0], numbers[-1]


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


Session = tuple[int, int]  # its agent's id, and its number


def sessions_undone(sessions: Iterable[Session], since: datetime) -> dict[Session, int]:
    """Of these sessions those of which no change stands, and the newest of the rollbacks that took them back. None of
    them opened before `since`: no earlier rollback can have undone them."""
    rollbacks: dict[int, list[tuple[int, Iterable[Sequence[int]]]]] = defaultdict(list)
    changed: dict[Session, list[int]] = defaultdict(list)
    for agent, seq, session, undid in _rollbacks_and_changes(sessions, since):
        if session is None:
            rollbacks[agent].append((seq, undid))
        else:
            changed[agent, session].append(seq)
    runs = {agent: Runs(sorted(them, reverse=True)) for agent, them in rollbacks.items()}
    by = {session: {runs[session[0]].by(seq) for seq in seqs} for session, seqs in changed.items()}
    return {session: max(filter(None, found)) for session, found in by.items() if None not in found}


def _rollbacks_and_changes(sessions: Iterable[Session], since: datetime) -> Iterable[tuple[int, int, int | None, Any]]:
    """By one query: their agents' rollbacks since then and, where there are any, the entries by which these sessions
    changed memories. Of each its agent, its number, its session (of a rollback none), and what a rollback undid."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for agent, number in sessions:
        numbers[agent].append(number)
    rollbacks = AuditEntry.objects.filter(agent_id__in=[*numbers], operation=Operation.ROLLED_BACK, at__gte=since)
    theirs = reduce(or_, (Q(agent_id=agent, session__in=them) for agent, them in numbers.items()), Q())
    changes = AuditEntry.objects.filter(theirs, Exists(rollbacks.filter(agent_id=OuterRef("agent_id"))), changes__gt=0)
    columns = ("agent_id", "seq", "session", "detail__entries")
    return rollbacks.values_list(*columns).union(changes.values_list(*columns), all=True)


def told_of_reads(agent: Agent) -> list[int]:
    """The notices by which the agent was told that a person reads: no rollback takes them back, or whoever read could
    have the agent not know."""
    reads = AuditEntry.objects.filter(READS, agent_id=agent.pk, changes__gt=0)
    told = Change.objects.filter(agent_id=agent.pk, seq__in=reads.values("seq"))
    return list(told.values_list("number", flat=True))


def file_trimmed(agent: Agent, entries: Iterable[int]) -> bool:
    """Whether one of these entries trimmed the agent's memory file, which is no part of the silo."""
    trims = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.TRIMMED, changes=0)
    return trims.filter(seq__among=list(entries)).exists()
