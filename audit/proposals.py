"""Proposals to change an agent's settings. The agent's side decides on them. The audit trail determines their state.

Each step is an entry, which `memory.consent.proposals` writes. If an entry about changed settings names a proposal,
this proposal is accepted.
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
LAPSED, REPLACED = "lapsed", "replaced"  # why the service closes a proposal


class ProposalState(TextChoices):
    """State of a proposal: open → accepted | declined | lapsed | replaced (by a later proposal)."""

    OPEN = "open"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    LAPSED = "lapsed"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal, as read from the trail. `number` is the number of the proposal's entry. `settled_by` is the number of
    the entry that closed the proposal."""

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
        """The state at this moment. After the time limit, a proposal lapses, even if no entry says so."""
        is_over = self.state == ProposalState.OPEN and now >= self.decide_until
        return ProposalState.LAPSED if is_over else self.state


def proposals(agent_id: int, since: int = 1) -> dict[int, Proposal]:
    """The proposals in an agent's trail, in order, beginning with entry `since`. The keys are their numbers."""
    operations = (Operation.CHANGE_PROPOSED, Operation.CHANGE_DECLINED, Operation.AGENT_CHANGED)
    entries = AuditEntry.objects.filter(CONSENT, agent_id=agent_id, seq__gte=since, operation__in=operations)
    found: dict[int, Proposal] = {}
    for entry in entries.order_by("seq"):
        with ill_formed():  # such an entry is ignored here, and verify_audit reports it
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
        (typed.boolean if name == "is_steward_only" else typed.text)(value)
    return Proposal(entry.seq, entry.actor_kind, entry.actor_label, proposed, entry.at)


def _after(before: Proposal, entry: AuditEntry) -> Proposal:
    """The proposal with its state after this entry. A closed proposal does not change."""
    if before.state != ProposalState.OPEN:
        return before
    state = ProposalState.ACCEPTED
    if entry.operation == Operation.CHANGE_DECLINED:
        state = ProposalState(entry.detail.get("why", ProposalState.DECLINED))
    decided_by = "" if state in (ProposalState.LAPSED, ProposalState.REPLACED) else entry.actor_kind
    return replace(before, state=state, decided_at=entry.at, decided_by=decided_by, settled_by=entry.seq)
