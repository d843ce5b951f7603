"""Changes that wait for the agent's side: its model, its steward and its memory file, which decide who can read.

A person, or a program of the tenant, may propose one; the agent's side alone accepts it, its runtime or its steward,
and never who proposed it. Each step is an entry of the agent's trail (`audit.proposals`); what is accepted is changed
by the verb that the agent's side itself changes it by (`agents.change`), so that the steward is told of it.
"""

from __future__ import annotations

from typing import Any

from audit.consent import same_address
from audit.models import ActorKind, Operation
from audit.proposals import LAPSED, PROPOSABLE, REPLACED, Proposal, ProposalState, proposals
from audit.trail import Actor
from memory import errors
from memory.agents import lifecycle
from memory.consent import steps
from memory.consent.steps import SYSTEM, clock
from memory.mail import letters
from memory.models import Agent
from memory.run_log import runs
from memory.vault import base
from memory.writing import edits

_PROPOSERS = (ActorKind.PERSON, ActorKind.OPERATOR)


def propose(agent: Agent, actor: Actor, **settings: Any) -> Proposal:
    """Propose other values of what is `PROPOSABLE`, in the place of what was proposed before.

    That there is such a model is for the edge to see to. The agent's steward, where it has one, is mailed a link.
    Raises AgentConsentRequired, Invalid, ConsentRequired, TooManyRequests, MailNotSent, Erased.
    """
    if actor.kind not in _PROPOSERS:
        raise errors.AgentConsentRequired("The agent's side proposes nothing: it changes these itself.")
    _require_proposable(settings)
    with edits.locked(agent) as row:
        edits.require_key(row)
        if settings.get("memory_path", row.memory_path) != row.memory_path:
            settings["memory_path"] = runs.path_in_tenant(row.tenant.slug, settings["memory_path"])
        if settings.get("vault_path", row.vault_path) != row.vault_path:
            settings["vault_path"] = _vault(row, settings["vault_path"], actor)
        lifecycle.check(row, **settings)
        proposed = {name: value for name, value in sorted(settings.items()) if getattr(row, name) != value}
        if not proposed:
            raise errors.Invalid("proposal", f"changes nothing: give another {', '.join(PROPOSABLE)}")
        if _is_stewards_alone(row) and same_address(row.steward, actor.label):
            raise errors.ConsentRequired(
                "Its steward alone accepts for this agent, and nobody accepts what they proposed."
            )
        steps.require_room(row, actor)
        letters.require_sent(row)
        _close(row)
        number = steps.write(row, Operation.CHANGE_PROPOSED, actor, {"proposed": proposed})
        steps.ask_steward(row, number)
        return find(row, number)


def _vault(row: Agent, given: str, actor: Actor) -> str:
    """A vault's folder: an operator's wherever vaults may be, another's in its tenant's. Raises Invalid."""
    allowed = base.roots()
    if actor.kind != ActorKind.OPERATOR:
        allowed = tuple(root / row.tenant.slug for root in allowed)
        if given.startswith("~"):
            raise errors.Invalid("vault_path", "must not begin with ~")
    return base.resolved(given, allowed[0], allowed)


def _require_proposable(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if name not in PROPOSABLE:
            raise errors.Invalid(name, f"cannot be proposed: {', '.join(PROPOSABLE)} can")
        kind, what = (bool, "true or false") if name == "is_steward_only" else (str, "text")
        if not isinstance(value, kind):
            raise errors.Invalid(name, f"must be {what}")


def _close(row: Agent) -> None:
    """End the proposal that is open, for another takes its place."""
    now = clock(row)
    for before in proposals(row.pk).values():
        if before.state == ProposalState.OPEN:
            why = LAPSED if before.at(now) == ProposalState.LAPSED else REPLACED
            steps.write(row, Operation.CHANGE_DECLINED, SYSTEM, {"proposal": before.number, "why": why})


def accept(agent: Agent, number: int, actor: Actor) -> Proposal:
    """Make the change, on the agent's side. Raises ConsentRequired, NotOpen, Invalid, Erased."""
    with edits.locked(agent) as row:
        edits.require_key(row)
        proposal = require_open(row, number)
        require_side(row, actor)
        if same_address(actor.label, proposal.proposer):
            raise errors.ConsentRequired("Nobody accepts what they proposed.")
        if steps.is_altered(row, number):
            raise errors.NotOpen("The agent's trail is not as it was written since this was proposed.")
        lifecycle.change(row, actor, proposal=number, **proposal.proposed)
        return find(row, number)


def decline(agent: Agent, number: int, actor: Actor) -> Proposal:
    """Say no, on the agent's side; or take it back, as who proposed it. Raises ConsentRequired, NotOpen, Erased."""
    with edits.locked(agent) as row:
        edits.require_key(row)
        proposal = require_open(row, number)
        if not is_own(proposal, actor):
            require_side(row, actor)
        steps.write(row, Operation.CHANGE_DECLINED, actor, {"proposal": number})
        return find(row, number)


def is_own(proposal: Proposal, actor: Actor) -> bool:
    """Whether this is who proposed it, and so may take it back."""
    return (actor.kind, actor.label) == (proposal.proposer_kind, proposal.proposer)


def require_side(agent: Agent, actor: Actor) -> None:
    """Raise ConsentRequired unless this is the agent's side. Without a steward its runtime alone is."""
    steps.require_side(agent, actor, is_stewards_alone=_is_stewards_alone(agent))


def _is_stewards_alone(agent: Agent) -> bool:
    return bool(agent.is_steward_only and agent.steward)


def find(agent: Agent, number: int) -> Proposal:
    """The proposal of this number, whatever became of it. Raises NotFound."""
    found = proposals(agent.pk, number).get(number)
    if found is None:
        raise errors.NotFound("There is no such proposal.")
    return found


def require_open(agent: Agent, number: int) -> Proposal:
    """The proposal of this number, while nobody has decided about it. Raises NotOpen."""
    found = proposals(agent.pk, number).get(number)
    if found is None or found.at(clock(agent)) != ProposalState.OPEN:
        raise errors.NotOpen(f"There is no open proposal {number}.")
    return found


def open_one(agent: Agent) -> Proposal | None:
    """What is proposed just now."""
    now = clock(agent)
    found = [each for each in proposals(agent.pk).values() if each.at(now) == ProposalState.OPEN]
    return found[-1] if found else None
