"""Requests to remove content for good: what was asked, what became of it.

Worked out from the agent's trail alone, where each step is an entry that `memory.consent.removal_requests`,
`memory.consent.redaction` and `memory.consent.erasure` write: open is a request that no later entry carries out,
declines, or leaves nothing of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import TextChoices

from audit import typed
from audit.models import CONSENT, AuditEntry, Operation
from audit.verify import ill_formed

_ASKED = (Operation.REDACTION_REQUESTED, Operation.ERASURE_REQUESTED)
_SETTLED = (Operation.REDACTED, Operation.ERASED, Operation.REQUEST_DECLINED)


class RemovalState(TextChoices):
    """open → carried_out | declined | settled, when another left nothing of it."""

    OPEN = "open"
    CARRIED_OUT = "carried_out"
    DECLINED = "declined"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Removal:
    """A request as the trail has it. `number` is that of the entry that asked; `memories` is empty for an erasure.

    `asker` wrote the entry; `asked_by` is who they say it is for, or themselves.
    """

    number: int
    operation: str
    asked_at: datetime
    asker_kind: str
    asker: str
    asked_by: str
    reason: str
    memories: tuple[int, ...]
    state: RemovalState = RemovalState.OPEN
    decided_at: datetime | None = None
    decided_by: str = ""
    left: tuple[int, ...] = ()  # of the memories, those that nothing redacted since

    @property
    def is_erasure(self) -> bool:
        return self.operation == Operation.ERASURE_REQUESTED

    @property
    def removes(self) -> str:
        return "silo" if self.is_erasure else "memories"

    def at(self, _: datetime) -> RemovalState:
        """Its state at this moment: no clock ends it, for it may have to be answered by law."""
        return self.state


def removals(agent_id: int, since: int = 1) -> dict[int, Removal]:
    """Every request of an agent's trail from an entry on, by number, in order."""
    entries = AuditEntry.objects.filter(CONSENT, agent_id=agent_id, seq__gte=since)
    entries = entries.filter(operation__in=(*_ASKED, *_SETTLED))
    found: dict[int, Removal] = {}
    waiting: dict[int, Removal] = {}  # of those, what is open: what was settled long ago is not gone through again
    for entry in entries.order_by("seq"):
        with ill_formed():  # as SQL can write it: it counts for nothing, and verifying tells of it
            if entry.operation in _ASKED:
                found[entry.seq] = waiting[entry.seq] = _asked(entry)
                continue
            for each in list(_after(waiting.values(), entry)):
                found[each.number] = waiting[each.number] = each
                if each.state != RemovalState.OPEN:
                    del waiting[each.number]
    return found


def _asked(entry: AuditEntry) -> Removal:
    detail = entry.detail
    memories = tuple(map(typed.number, detail.get("memories", ())))
    return Removal(
        entry.seq,
        entry.operation,
        entry.at,
        entry.actor_kind,
        entry.actor_label,
        typed.text(detail["asked_by"]),
        typed.text(detail["reason"]),
        memories,
        left=memories,
    )


def _after(waiting: Iterable[Removal], entry: AuditEntry) -> Iterator[Removal]:
    """What an entry makes of the requests that are open."""
    gone = set(map(int, entry.detail.get("redacted", ())))
    is_declined = entry.operation == Operation.REQUEST_DECLINED
    for each in waiting:
        if each.number == entry.detail["request"]:
            state = RemovalState.DECLINED if is_declined else RemovalState.CARRIED_OUT
            yield replace(each, state=state, decided_at=entry.at, decided_by=entry.actor_kind)
        elif each.is_erasure and entry.operation == Operation.ERASED:
            yield replace(each, state=RemovalState.SETTLED, decided_at=entry.at)
        elif gone and not gone.isdisjoint(each.left):
            left = tuple(number for number in each.left if number not in gone)
            state, over = (RemovalState.OPEN, None) if left else (RemovalState.SETTLED, entry.at)
            yield replace(each, left=left, state=state, decided_at=over)
