"""Requests to remove content for good: asked for by a tenant's owner with a reason, agreed to by the agent's side.

A request is an entry of the agent's trail, and so is what became of it: open is a request that no later entry carries
out or declines. The one who asks never agrees, nor does anybody else on the agent's behalf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from audit.models import ActorKind, AuditEntry, Operation
from audit.trail import Actor
from memory import editing, errors
from memory.intake import checked_content
from memory.models import Agent

REASON_CHARACTERS = 500
MOST_MEMORIES = 1_000  # of one request: the database looks each change up among them
_ASKED = (Operation.REDACTION_REQUESTED, Operation.ERASURE_REQUESTED)
_ASKS_FOR = {
    Operation.REDACTION_REQUESTED.value: ("a redaction", "redact"),
    Operation.ERASURE_REQUESTED.value: ("an erasure", "erase_agent"),
}
_SETTLED = (Operation.REDACTED, Operation.ERASED, Operation.REQUEST_DECLINED)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked. `number` is that of its entry; `memories` is empty for an erasure."""

    number: int
    operation: str
    at: datetime
    asked_by: str
    reason: str
    memories: tuple[int, ...]


def ask_redaction(agent: Agent, numbers: Sequence[int], actor: Actor, *, reason: str, asked_by: str = "") -> Request:
    """Ask for the removal of what these memories say. `reason` is kept for ever: it must not repeat it.

    Raises Invalid, UnknownMemory, Repeated, Redacted.
    """
    if not numbers:
        raise errors.Invalid("id", "must name one memory or more")
    if len(numbers) > MOST_MEMORIES:
        raise errors.Invalid("id", f"names more than {MOST_MEMORIES:,} memories: ask in parts")
    with editing.locked(agent) as row:
        gone = [memory.number for memory in editing.fetch(row, numbers) if memory.redacted_at]
        if gone:
            raise errors.Redacted(gone)
        return _ask(row, Operation.REDACTION_REQUESTED, sorted(numbers), actor, reason, asked_by)


def ask_erasure(agent: Agent, actor: Actor, *, reason: str, asked_by: str = "") -> Request:
    """Ask for the destruction of the agent's data key. Raises Invalid, Erased."""
    with editing.locked(agent) as row:
        return _ask(row, Operation.ERASURE_REQUESTED, [], actor, reason, asked_by)


def _ask(agent: Agent, operation: str, numbers: list[int], actor: Actor, reason: str, asked_by: str) -> Request:
    reason = _one_line(reason, "reason")
    asked_by = _one_line(asked_by, "asked_by") if asked_by else actor.label
    editing.require_key(agent)
    with editing.begin(agent, operation, actor, is_notice=True) as edit:
        edit.detail = {"reason": reason, "asked_by": asked_by} | ({"memories": numbers} if numbers else {})
        edit.finish(always=True)
        return Request(edit.seq, operation, edit.at, asked_by, reason, tuple(numbers))


def _one_line(text: str, field: str) -> str:
    told = " ".join(checked_content(text, field).split())
    if len(told) > REASON_CHARACTERS:
        raise errors.Invalid(field, f"is longer than {REASON_CHARACTERS} characters")
    return told


def waiting(agent: Agent) -> list[Request]:
    """The open requests, oldest first. One whose every memory another redaction covered is settled by that."""
    entries = AuditEntry.objects.filter(agent_id=agent.pk, operation__in=(*_ASKED, *_SETTLED)).order_by("seq")
    asked: dict[int, Request] = {}
    gone: set[int] = set()
    for entry in entries:
        if entry.operation in _ASKED:
            asked[entry.seq] = _request(entry)
        else:
            asked.pop(entry.detail["request"], None)
            gone.update(map(int, entry.detail.get("redacted", ())))
        if entry.operation == Operation.ERASED:  # as every other one asked
            asked = {seq: each for seq, each in asked.items() if each.operation != Operation.ERASURE_REQUESTED}
    return [request for request in asked.values() if not request.memories or set(request.memories) - gone]


def _request(entry: AuditEntry) -> Request:
    detail = entry.detail
    memories = tuple(detail.get("memories", ()))
    return Request(entry.seq, entry.operation, entry.at, detail["asked_by"], detail["reason"], memories)


def to_settle(agent: Agent, number: int, actor: Actor, *operations: str) -> Request:
    """The open request, of one of these operations, that the agent's side is about to settle. The caller holds the
    agent's row locked. Raises ConsentNeeded, NoRequest.
    """
    if actor.kind != ActorKind.AGENT:
        raise errors.ConsentNeeded("The agent's side alone agrees to a request, or declines it.")
    if agent.is_steward_only:
        raise errors.ConsentNeeded("For this agent its steward alone agrees to a request, or declines it.")
    return open_request(agent, number, *operations)


def open_request(agent: Agent, number: int, *operations: str) -> Request:
    """The open request of this number, of one of these operations. Raises NoRequest."""
    for request in waiting(agent):
        if request.number == number:
            if request.operation in operations:
                return request
            what, command = _ASKS_FOR[request.operation]
            raise errors.NoRequest(f"Request {number} asks for {what}: see '{command}'.")
    raise errors.NoRequest(f"No such request, {number}, is open.")


def decline(agent: Agent, number: int, actor: Actor) -> Request:
    """Say no to a request, on the agent's side. Raises ConsentNeeded, NoRequest."""
    with editing.locked(agent) as row:
        request = to_settle(row, number, actor, *_ASKED)
        with editing.begin(row, Operation.REQUEST_DECLINED, actor, is_notice=True) as edit:
            edit.detail = {"request": number}
            edit.finish(always=True)
        return request
