"""Proposals to change the settings that decide who can read: model, steward and files.

A person or a program of the tenant proposes a change. The agent's side accepts or declines it. Nobody accepts their own
proposal. Each step is an entry of the agent's audit trail (`audit.proposals`). An accepted change is made with
`agents.lifecycle.change`, which also notifies the steward.
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
    """Propose new values for settings in `PROPOSABLE`. The new proposal replaces an open one.

    The caller checks that the model exists. If the agent has a steward, the steward receives a link by mail.
    Raises AgentConsentRequired, Invalid, ConsentRequired, TooManyRequests, MailNotSent, Erased.
    """
    if actor.kind not in _PROPOSERS:
        raise errors.AgentConsentRequired(
            "The agent's side cannot propose a change. It changes these settings directly."
        )
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
            raise errors.Invalid("proposal", f"changes nothing. Set a new value for one of: {', '.join(PROPOSABLE)}")
        if _is_steward_only(row) and same_address(row.steward, actor.label):
            raise errors.ConsentRequired(
                "Only the agent's steward can accept, and you are the steward. Nobody accepts their own proposal."
            )
        steps.require_room(row, actor)
        letters.require_mail(row)
        _close(row)
        number = steps.write(row, Operation.CHANGE_PROPOSED, actor, {"proposed": proposed})
        steps.ask_steward(row, number)
        return find(row, number)


def _vault(row: Agent, path: str, actor: Actor) -> str:
    """The resolved path of a vault. Operators may use every vault root. Others may use only their tenant's folder.

    Raises Invalid.
    """
    allowed = base.roots()
    if actor.kind != ActorKind.OPERATOR:
        allowed = tuple(root / row.tenant.slug for root in allowed)
        if path.startswith("~"):
            raise errors.Invalid("vault_path", "must not begin with ~")
    return base.resolve_path(path, allowed[0], allowed)


def _require_proposable(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if name not in PROPOSABLE:
            raise errors.Invalid(name, f"cannot be proposed. You can propose: {', '.join(PROPOSABLE)}")
        kind, what = (bool, "true or false") if name == "is_steward_only" else (str, "text")
        if not isinstance(value, kind):
            raise errors.Invalid(name, f"must be {what}")


def _close(row: Agent) -> None:
    """Close the open proposal, because a new one replaces it."""
    now = clock(row)
    for before in proposals(row.pk).values():
        if before.state == ProposalState.OPEN:
            why = LAPSED if before.at(now) == ProposalState.LAPSED else REPLACED
            steps.write(row, Operation.CHANGE_DECLINED, SYSTEM, {"proposal": before.number, "why": why})


def accept(agent: Agent, number: int, actor: Actor) -> Proposal:
    """Accept a proposal in the name of the agent's side, and make the change.

    Raises ConsentRequired, NotOpen, Invalid, Erased.
    """
    with edits.locked(agent) as row:
        edits.require_key(row)
        proposal = require_open(row, number)
        require_side(row, actor)
        if same_address(actor.label, proposal.proposer):
            raise errors.ConsentRequired("Nobody accepts their own proposal.")
        if steps.is_altered(row, number):
            raise errors.NotOpen("The agent's audit trail was altered after this proposal.")
        lifecycle.change(row, actor, proposal=number, **proposal.proposed)
        return find(row, number)


def decline(agent: Agent, number: int, actor: Actor) -> Proposal:
    """Decline a proposal in the name of the agent's side, or withdraw the actor's own proposal.

    Raises ConsentRequired, NotOpen, Erased.
    """
    with edits.locked(agent) as row:
        edits.require_key(row)
        proposal = require_open(row, number)
        if not is_own(proposal, actor):
            require_side(row, actor)
        steps.write(row, Operation.CHANGE_DECLINED, actor, {"proposal": number})
        return find(row, number)


def is_own(proposal: Proposal, actor: Actor) -> bool:
    """Whether the actor made the proposal. The proposer may withdraw it."""
    return (actor.kind, actor.label) == (proposal.proposer_kind, proposal.proposer)


def require_side(agent: Agent, actor: Actor) -> None:
    """Raise ConsentRequired unless the actor may decide for the agent's side.

    If the agent has no steward, the runtime may decide even if `is_steward_only` is set.
    """
    steps.require_side(agent, actor, is_steward_only=_is_steward_only(agent))


def _is_steward_only(agent: Agent) -> bool:
    return bool(agent.is_steward_only and agent.steward)


def find(agent: Agent, number: int) -> Proposal:
    """The proposal with this number, in any state. Raises NotFound."""
    found = proposals(agent.pk, number).get(number)
    if found is None:
        raise errors.NotFound("No such proposal.")
    return found


def require_open(agent: Agent, number: int) -> Proposal:
    """The open proposal with this number. Raises NotOpen."""
    found = proposals(agent.pk, number).get(number)
    if found is None or found.at(clock(agent)) != ProposalState.OPEN:
        raise errors.NotOpen(f"There is no open proposal {number}.")
    return found


def open_one(agent: Agent) -> Proposal | None:
    """The open proposal, if there is one."""
    now = clock(agent)
    found = [each for each in proposals(agent.pk).values() if each.at(now) == ProposalState.OPEN]
    return found[-1] if found else None
