"""Proposed changes of what an agent's side decides: what was proposed, what became of it.

Worked out from the agent's trail alone, where each step is an entry that `memory.consent.proposals` writes: accepted is
a proposal that an entry of the change itself names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import TextChoices

from audit import typed
from audit.consent import LAPSES
from audit.models import CONSENT, AuditEntry, Operation
from audit.verify import ill_formed

PROPOSABLE = ("model", "steward", "is_steward_only", "memory_path", "vault_path")
LAPSED, REPLACED = "lapsed", "replaced"  # why the service itself closes one


class ProposalState(TextChoices):
    """open → accepted | declined | lapsed | replaced, by a later one."""

    OPEN = "open"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    LAPSED = "lapsed"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal as the trail has it. `number` is that of the entry that proposed, `settled_by` of the one that ended
    it."""

    number: int
    proposer_kind: str
    proposer: str
    proposed: dict[str, Any]
    asked_at: datetime
    state: ProposalState = ProposalState.OPEN
    decided_at: datetime | None = None
    decided_by: str = ""
    settled_by: int = 0

    @property
    def decide_until(self) -> datetime:
        return self.asked_at + LAPSES

    def at(self, now: datetime) -> ProposalState:
        """Its state at this moment: a clock ends it without an entry."""
        is_over = self.state == ProposalState.OPEN and now >= self.decide_until
        return ProposalState.LAPSED if is_over else self.state


def proposals(agent_id: int, since: int = 1) -> dict[int, Proposal]:
    """Every proposal of an agent's trail from an entry on, by number, in order."""
    operations = (Operation.CHANGE_PROPOSED, Operation.CHANGE_DECLINED, Operation.AGENT_CHANGED)
    entries = AuditEntry.objects.filter(CONSENT, agent_id=agent_id, seq__gte=since, operation__in=operations)
    found: dict[int, Proposal] = {}
    for entry in entries.order_by("seq"):
        with ill_formed():  # as SQL can write it: it counts for nothing, and verifying tells of it
            if entry.operation == Operation.CHANGE_PROPOSED:
                found[entry.seq] = _proposed(entry)
            elif (before := found.get(entry.detail.get("proposal", 0))) is not None:
                found[before.number] = _after(before, entry)
    return found


def _proposed(entry: AuditEntry) -> Proposal:
    proposed = entry.detail["proposed"]
    if not proposed or set(proposed) - set(PROPOSABLE):
        raise ValueError
    for name, value in proposed.items():
        (typed.yes_or_no if name == "is_steward_only" else typed.text)(value)
    return Proposal(entry.seq, entry.actor_kind, entry.actor_label, proposed, entry.at)


def _after(before: Proposal, entry: AuditEntry) -> Proposal:
    """What an entry makes of a proposal; nothing where it was settled before."""
    if before.state != ProposalState.OPEN:
        return before
    state = ProposalState.ACCEPTED
    if entry.operation == Operation.CHANGE_DECLINED:
        state = ProposalState(entry.detail.get("why", ProposalState.DECLINED))
    decided_by = "" if state in (ProposalState.LAPSED, ProposalState.REPLACED) else entry.actor_kind
    return replace(before, state=state, decided_at=entry.at, decided_by=decided_by, settled_by=entry.seq)
