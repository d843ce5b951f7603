"""Finds out from the trail which sessions were rolled back. A rollback does not change the rows of sessions."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import reduce
from operator import or_

from django.db.models import Exists, OuterRef, Q

from audit.models import AuditEntry, Operation
from memory.time_machine.selection import Undone
from refinement.models import Outcome, RefinementSession

Session = tuple[int, int]  # its agent's id, and its number


def mark(sessions: Collection[RefinementSession]) -> None:
    """Set `undone_by` of each session. An open session cannot be undone. This makes at most one query."""
    ended = [session for session in sessions if session.outcome != Outcome.OPEN]
    keys = [(session.agent_id, session.number) for session in ended]
    found = sessions_undone(keys, min(session.opened_at for session in ended)) if ended else {}
    for session in sessions:
        session.undone_by = found.get((session.agent_id, session.number))


def sessions_undone(sessions: Iterable[Session], since: datetime) -> dict[Session, int]:
    """The sessions whose changes are all undone. The value of a session is the number of the newest rollback entry that
    undid one of its changes.

    All these sessions were opened at or after `since`, so earlier rollbacks are not read. One query reads the rollbacks
    and those entries of the sessions that changed memories.
    """
    numbers: dict[int, list[int]] = defaultdict(list)
    for agent, number in sessions:
        numbers[agent].append(number)
    made = AuditEntry.objects.filter(agent_id__in=[*numbers], operation=Operation.ROLLED_BACK, at__gte=since)
    theirs = reduce(or_, (Q(agent_id=agent, session__in=them) for agent, them in numbers.items()), Q())
    changes = AuditEntry.objects.filter(theirs, Exists(made.filter(agent_id=OuterRef("agent_id"))), changes__gt=0)
    columns = ("agent_id", "seq", "session", "detail__entries")
    rollbacks: dict[int, list[tuple[int, Iterable[Sequence[int]]]]] = defaultdict(list)
    changed: dict[Session, list[int]] = defaultdict(list)
    for agent, seq, session, undid in made.values_list(*columns).union(changes.values_list(*columns), all=True):
        if session is None:
            rollbacks[agent].append((seq, undid))
        else:
            changed[agent, session].append(seq)
    undone = {agent: Undone(sorted(them, reverse=True)) for agent, them in rollbacks.items()}
    by = {session: {undone[session[0]].by(seq) for seq in seqs} for session, seqs in changed.items()}
    return {session: max(filter(None, found)) for session, found in by.items() if None not in found}
