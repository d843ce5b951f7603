"""Requests to remove content permanently. The audit trail determines their state.

Each step is an entry. The modules `removal_requests`, `redaction` and `erasure` in `memory.consent` write these
entries. A request is open until it is carried out or declined, or until other requests have removed all the content
that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import TextChoices

from audit import typed
from audit.models import CONSENT, AuditEntry, Operation
from audit.verify import ill_formed

_REQUESTED = (Operation.REDACTION_REQUESTED, Operation.ERASURE_REQUESTED)
_CLOSED = (Operation.REDACTED, Operation.ERASED, Operation.REQUEST_DECLINED)


class RemovalState(TextChoices):
    """State of a request: open → carried_out | declined | settled (other requests removed the content)."""

    OPEN = "open"
    CARRIED_OUT = "carried_out"
    DECLINED = "declined"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Removal:
    """A request, as read from the trail. `number` is the number of the request's entry. `memories` is empty for an
    erasure.

    `asker` made the request. `asked_by` names the person for whom the asker acts. By default, this is the asker.
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
    left: tuple[int, ...] = ()  # those of the memories that are not redacted yet

    @property
    def is_erasure(self) -> bool:
        return self.operation == Operation.ERASURE_REQUESTED

    @property
    def removes(self) -> str:
        return "silo" if self.is_erasure else "memories"

    def at(self, _: datetime) -> RemovalState:
        """The state at this moment. The request never expires, because the law may require a decision."""
        return self.state


def removals(agent_id: int, since: int = 1) -> dict[int, Removal]:
    """The requests in an agent's trail, in order, beginning with entry `since`. The keys are their numbers."""
    entries = AuditEntry.objects.filter(CONSENT, agent_id=agent_id, seq__gte=since)
    entries = entries.filter(operation__in=(*_REQUESTED, *_CLOSED))
    found: dict[int, Removal] = {}
    waiting: dict[int, Removal] = {}  # the open ones
    for entry in entries.order_by("seq"):
        with ill_formed():  # such an entry is ignored here, and verify_audit reports it
            if entry.operation in _REQUESTED:
                found[entry.seq] = waiting[entry.seq] = _request(entry)
                continue
            for each in list(_after(waiting.values(), entry)):
                found[each.number] = waiting[each.number] = each
                if each.state != RemovalState.OPEN:
                    del waiting[each.number]
    return found


def _request(entry: AuditEntry) -> Removal:
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
    """The open requests that this entry changes, in their new state."""
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
