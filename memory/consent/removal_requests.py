"""Requests to remove content for good: asked for by a tenant's owner with a reason, agreed to by the agent's side.

A request is an entry of the agent's trail, and so is what became of it (`audit.removals`). The one who asks never
agrees, nor does anybody else on the agent's behalf. Its steward, where it has one, is mailed a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from audit.consent import same_address
from audit.models import ActorKind, Operation
from audit.removals import Removal, RemovalState, removals
from audit.trail import Actor
from memory import errors
from memory.consent import steps
from memory.mail import letters
from memory.models import Agent
from memory.policy.validation import checked_words
from memory.writing import edits

REASON_CHARACTERS = 500
MOST_MEMORIES = 1_000  # of one request: the database looks each change up among them
_ASKED = (Operation.REDACTION_REQUESTED, Operation.ERASURE_REQUESTED)
_ASKS_FOR = {
    Operation.REDACTION_REQUESTED.value: ("a redaction", "redact"),
    Operation.ERASURE_REQUESTED.value: ("an erasure", "erase_agent"),
}


def ask_redaction(agent: Agent, numbers: Sequence[int], actor: Actor, *, reason: str, asked_by: str = "") -> Removal:
    """Ask for the removal of what these memories say. `reason` is kept for ever: it must not repeat it.

    Raises Invalid, UnknownMemory, DuplicateNumbers, Redacted, ConsentRequired, MailNotSent, TooManyRequests, Erased.
    """
    if not numbers:
        raise errors.Invalid("id", "must name one memory or more")
    if len(numbers) > MOST_MEMORIES:
        raise errors.Invalid("id", f"names more than {MOST_MEMORIES:,} memories: ask in parts")
    with edits.locked(agent) as row:
        gone = [memory.number for memory in edits.fetch(row, numbers) if memory.redacted_at]
        if gone:
            raise errors.Redacted(gone)
        return _ask(row, Operation.REDACTION_REQUESTED, sorted(numbers), actor, reason, asked_by)


def ask_erasure(agent: Agent, actor: Actor, *, reason: str, asked_by: str = "") -> Removal:
    """Ask for the destruction of the agent's data key.

    Raises Invalid, ConsentRequired, MailNotSent, TooManyRequests, Erased.
    """
    with edits.locked(agent) as row:
        return _ask(row, Operation.ERASURE_REQUESTED, [], actor, reason, asked_by)


def _ask(agent: Agent, operation: str, numbers: list[int], actor: Actor, reason: str, asked_by: str) -> Removal:
    reason = _one_line(reason, "reason")
    asked_by = _one_line(asked_by, "asked_by") if asked_by else actor.label
    edits.require_key(agent)
    if agent.is_steward_only:
        if _is_by(actor.label, asked_by, agent.steward):
            raise errors.ConsentRequired("Only this agent's steward can agree, and not to their own request.")
        letters.require_sent(agent)
    if actor.kind == ActorKind.PERSON:  # an operator answers for how often a command is run
        steps.require_room(agent, actor)
    detail: dict[str, Any] = {"reason": reason, "asked_by": asked_by}
    number = steps.write(agent, operation, actor, detail | ({"memories": numbers} if numbers else {}))
    if not letters.are_printed():
        steps.ask_steward(agent, number)
    return find(agent, number)


def _one_line(text: str, field: str) -> str:
    told = checked_words(text, field)
    if len(told) > REASON_CHARACTERS:
        raise errors.Invalid(field, f"is longer than {REASON_CHARACTERS} characters")
    return told


def waiting(agent: Agent) -> list[Removal]:
    """The open requests, oldest first."""
    return [each for each in removals(agent.pk).values() if each.state == RemovalState.OPEN]


def to_settle(agent: Agent, number: int, actor: Actor, *operations: str) -> Removal:
    """The open request, of one of these operations, that the agent's side is about to settle. The caller holds the
    agent's row locked. Raises ConsentRequired, RequestNotFound.
    """
    steps.require_side(agent, actor, is_stewards_alone=agent.is_steward_only)
    asked = open_request(agent, number, *operations)
    if actor.kind == ActorKind.STEWARD and _is_by(asked.asker, asked.asked_by, actor.label):
        raise errors.ConsentRequired("Nobody agrees to what they asked.")
    if steps.is_altered(agent, number):
        raise errors.RequestNotFound("The agent's trail is not as it was written since this was asked.")
    return asked


def _is_by(asker: str, asked_by: str, address: str) -> bool:
    return any(same_address(each, address) for each in letters.askers(asker, asked_by))


def open_request(agent: Agent, number: int, *operations: str) -> Removal:
    """The open request of this number, of one of these operations. Raises RequestNotFound."""
    asked = removals(agent.pk, number).get(number)
    if asked is None or asked.state != RemovalState.OPEN:
        raise errors.RequestNotFound(f"No such request, {number}, is open.")
    if asked.operation not in operations:
        what, command = _ASKS_FOR[asked.operation]
        raise errors.RequestNotFound(f"Request {number} asks for {what}: see '{command}'.")
    return asked


def find(agent: Agent, number: int) -> Removal:
    """The request of this number, whatever became of it. Raises NotFound."""
    asked = removals(agent.pk, number).get(number)
    if asked is None:
        raise errors.NotFound("There is no such request.")
    return asked


def decline(agent: Agent, number: int, actor: Actor) -> Removal:
    """Decline a request, on the agent's side, or withdraw it, as the requester. Raises ConsentRequired,
    RequestNotFound."""
    with edits.locked(agent) as row:
        asked = open_request(row, number, *_ASKED)
        if (actor.kind, actor.label) != (asked.asker_kind, asked.asker):
            to_settle(row, number, actor, *_ASKED)
        steps.write(row, Operation.REQUEST_DECLINED, actor, {"request": number})
        return find(row, number)
