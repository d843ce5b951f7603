"""A session that the agent's own runtime drives: briefing, tool calls, completion (30-refinement, Who drives).

The same Knife, limits and lease as in the service's own loop; each call renews the lease. The batches are worked out
with the first briefing and kept by number, so that each is the same however often it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memory.errors import MemoryDisabled
from memory.models import Agent
from memory.silo.silo import Silo
from memory.writing import edits
from refinement import knife, ledger, limits, prompts, tools
from refinement import session as sessions
from refinement.errors import LimitReached, SessionEnded, UnknownSession
from refinement.knife import Result, refusal
from refinement.llm.base import Message, Tool
from refinement.models import Driver, Mode, Outcome, RefinementSession


@dataclass(frozen=True, slots=True, repr=False)
class Briefing:
    """What a model is given to work a batch with. `batch` counts from 1."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    batch: int
    batches: int


def begin(agent: Agent, *, mode: str = Mode.FULL) -> RefinementSession:
    """Open a session for the runtime to drive. Raises SessionOpen, MemoryDisabled, Erased."""
    return sessions.open_session(agent, trigger="agent", mode=mode, driver=Driver.RUNTIME)


def find(agent: Agent, number: int) -> RefinementSession:
    """Raises UnknownSession."""
    row = RefinementSession.objects.filter(agent_id=agent.pk, number=number).first()
    if row is None:
        raise UnknownSession(f"There is no session {number}.")
    row.agent = agent
    return row


def briefing(agent: Agent, number: int) -> Briefing:
    """The batch that is due, as it stands now; what is shown may be edited. Raises UnknownSession, SessionEnded."""
    plan = _driven(agent, number).plan or _worked_out(agent)
    with edits.locked(agent) as locked:
        row = _driven(locked, number)
        if not locked.memory_enabled:
            raise MemoryDisabled
        if not row.plan:
            row.plan = plan
            row.save(update_fields=["plan"])
        batch = min(row.batch, len(row.plan) - 1)
        entries = ledger.read(locked, row.plan[batch])
        row.lease_until = sessions.lease_end()
        knife.show(locked, row, batch, len(row.plan), entries)
        messages = prompts.opening(locked, row, entries, batch + 1, len(row.plan))
        return Briefing(tuple(messages), tools.schemas(row.mode), batch + 1, len(row.plan))


def _worked_out(agent: Agent) -> list[list[int]]:
    """The memories of each batch. The agent's row is not locked: of a large silo it takes long, and writers wait."""
    worked = ledger.batches(ledger.read(agent)) or [[]]
    return [[entry.memory.number for entry in entries] for entries in worked]


def call(agent: Agent, number: int, tool: str, arguments: Mapping[str, Any] | None, *, reply: str = "") -> Result:
    """Carry out one call, in one transaction. Calls of one `reply` of the model count as one step, and of one reply
    there are only so many (`limits`); without it, each counts.

    The result says why a call is refused. Raises UnknownSession, SessionEnded for a session that is over, and
    MemoryDisabled, after which the session is over.
    """
    with edits.locked(agent) as locked:
        row = _driven(locked, number)
        if locked.memory_enabled:
            return _carry_out(locked, row, tool, arguments, reply)
        sessions.end(locked, row, Outcome.INCOMPLETE, MemoryDisabled.code)
    raise MemoryDisabled  # outside the transaction, which has ended the session


def _carry_out(
    agent: Agent, row: RefinementSession, tool: str, arguments: Mapping[str, Any] | None, reply: str
) -> Result:
    """The first call of a reply is a step; the others only renew the lease."""
    reply = reply and Silo.for_agent(agent).digest(f"reply/{reply}").hex()  # a runtime may name a reply as it likes
    try:
        if not reply or reply != row.last_reply:
            knife.count_step(row)
            row.last_reply, row.reply_calls = reply, 1
        elif row.reply_calls >= limits.MAX_CALLS_PER_REPLY:
            raise LimitReached("calls_per_reply", limits.MAX_CALLS_PER_REPLY)
        else:
            row.reply_calls += 1
            row.lease_until = sessions.lease_end()
    except LimitReached as reached:
        sessions.end(agent, row, Outcome.INCOMPLETE, f"limit_{reached.limit}")
        return refusal(reached, over=True)
    return knife.carry_out(agent, row, tool, arguments)


def abort(agent: Agent, number: int, reason: str = "") -> RefinementSession:
    """End the session early. What was done stays. Raises UnknownSession, SessionEnded."""
    with edits.locked(agent) as locked:
        row = _driven(locked, number)
        sessions.end(locked, row, Outcome.INCOMPLETE, "aborted", " ".join(reason.split()))
        return row


def _driven(agent: Agent, number: int) -> RefinementSession:
    """The session as it stands, if the runtime drives it and it is open. Raises UnknownSession, SessionEnded."""
    row = find(agent, number)
    if row.outcome != Outcome.OPEN:
        raise SessionEnded(f"Session {row.number} has ended. Nothing was changed.")
    if row.driver != Driver.RUNTIME:
        raise SessionEnded(f"Session {row.number} is driven by the service.")
    return row
