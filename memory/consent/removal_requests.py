"""Requests to delete content permanently. A tenant's owner asks, and gives a reason.

The agent's side agrees or declines. Nobody agrees to their own request. If the agent has a steward, the steward
receives a link by mail. The request and its result are entries of the agent's audit trail (`audit.removals`).
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

MAX_REASON = 500  # characters
MAX_MEMORIES = 1_000  # memories per request
_OPERATIONS = (Operation.REDACTION_REQUESTED, Operation.ERASURE_REQUESTED)
_KINDS = {
    Operation.REDACTION_REQUESTED.value: ("a redaction", "redact"),
    Operation.ERASURE_REQUESTED.value: ("an erasure", "erase_agent"),
}


def ask_redaction(agent: Agent, numbers: Sequence[int], actor: Actor, *, reason: str, asked_by: str = "") -> Removal:
    """Request the permanent deletion of the content of these memories. `reason` is stored permanently.

    Raises Invalid, UnknownMemory, DuplicateNumbers, Redacted, ConsentRequired, MailNotSent, TooManyRequests, Erased.
    """
    if not numbers:
        raise errors.Invalid("id", "must have at least one memory number")
    if len(numbers) > MAX_MEMORIES:
        raise errors.Invalid("id", f"has more than {MAX_MEMORIES:,} memory numbers. Send several requests.")
    with edits.locked(agent) as row:
        redacted = [memory.number for memory in edits.fetch(row, numbers) if memory.redacted_at]
        if redacted:
            raise errors.Redacted(redacted)
        return _ask(row, Operation.REDACTION_REQUESTED, sorted(numbers), actor, reason, asked_by)


def ask_erasure(agent: Agent, actor: Actor, *, reason: str, asked_by: str = "") -> Removal:
    """Request the destruction of the agent's data key.

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
            raise errors.ConsentRequired("Only the agent's steward can agree. Nobody can agree to their own request.")
        letters.require_mail(agent)
    if actor.kind == ActorKind.PERSON:  # there is no limit for operators, who run commands
        steps.require_room(agent, actor)
    detail: dict[str, Any] = {"reason": reason, "asked_by": asked_by}
    number = steps.write(agent, operation, actor, detail | ({"memories": numbers} if numbers else {}))
    if not letters.are_printed():
        steps.ask_steward(agent, number)
    return find(agent, number)


def _one_line(text: str, field: str) -> str:
    text = checked_words(text, field)
    if len(text) > MAX_REASON:
        raise errors.Invalid(field, f"is longer than {MAX_REASON} characters")
    return text


def waiting(agent: Agent) -> list[Removal]:
    """The open requests, oldest first."""
    return [each for each in removals(agent.pk).values() if each.state == RemovalState.OPEN]


def require_decidable(agent: Agent, number: int, actor: Actor, *operations: str) -> Removal:
    """The open request with this number. The actor must be allowed to decide about it for the agent's side.

    The caller must have locked the agent's row. Raises ConsentRequired, RequestNotFound.
    """
    steps.require_side(agent, actor, is_steward_only=agent.is_steward_only)
    request = open_request(agent, number, *operations)
    if actor.kind == ActorKind.STEWARD and _is_by(request.asker, request.asked_by, actor.label):
        raise errors.ConsentRequired("You cannot decide about your own request.")
    if steps.is_altered(agent, number):
        raise errors.RequestNotFound("The agent's audit trail was altered after this request.")
    return request


def _is_by(asker: str, asked_by: str, address: str) -> bool:
    return any(same_address(each, address) for each in letters.requesters(asker, asked_by))


def open_request(agent: Agent, number: int, *operations: str) -> Removal:
    """The open request with this number. Its operation must be one of `operations`. Raises RequestNotFound."""
    request = removals(agent.pk, number).get(number)
    if request is None or request.state != RemovalState.OPEN:
        raise errors.RequestNotFound(f"There is no open request {number}.")
    if request.operation not in operations:
        what, command = _KINDS[request.operation]
        raise errors.RequestNotFound(f"Request {number} asks for {what}. Use the command '{command}'.")
    return request


def find(agent: Agent, number: int) -> Removal:
    """The request with this number, in any state. Raises NotFound."""
    request = removals(agent.pk, number).get(number)
    if request is None:
        raise errors.NotFound("No such request.")
    return request


def decline(agent: Agent, number: int, actor: Actor) -> Removal:
    """Decline a request in the name of the agent's side, or withdraw the actor's own request.

    Raises ConsentRequired, RequestNotFound.
    """
    with edits.locked(agent) as row:
        request = open_request(row, number, *_OPERATIONS)
        if (actor.kind, actor.label) != (request.asker_kind, request.asker):
            require_decidable(row, number, actor, *_OPERATIONS)
        steps.write(row, Operation.REQUEST_DECLINED, actor, {"request": number})
        return find(row, number)
