"""A session that the agent's own runtime drives: briefing, tool calls, completion (30-refinement, Who drives).

The same Knife, limits and lease as in the service's own loop; each call renews the lease. The batches are worked out
with the first briefing and kept by number, so that each is the same however often it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import F

from memory.models import Agent
from memory.silo.silo import Silo
from memory.writing import edits
from refinement import ledger, limits, prompts, tools
from refinement import session as sessions
from refinement.errors import LimitReached, SessionEnded, UnknownSession
from refinement.knife import Knife, Result, refusal
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


def briefing(session: RefinementSession) -> Briefing:
    """The batch that is due, as it stands now; what is shown may be edited. Raises SessionEnded."""
    agent = session.agent
    plan = _driven(session, agent).plan or _worked_out(agent)
    with edits.locked(agent) as locked:
        row = _driven(session, locked)
        if not row.plan:
            row.plan = plan
            row.save(update_fields=["plan"])
        batch = min(row.batch, len(row.plan) - 1)
        entries = ledger.still_there(locked, row.plan[batch])
        shown = Knife(row).show(batch, len(row.plan), entries)
        sessions.renew(row)
        messages = prompts.opening(locked, shown, entries, batch + 1, len(row.plan))
        return Briefing(tuple(messages), tools.schemas(row.mode), batch + 1, len(row.plan))


def _worked_out(agent: Agent) -> list[list[int]]:
    """The memories of each batch. The agent's row is not locked: of a large silo it takes long, and writers wait."""
    worked = ledger.batches(ledger.read(agent, Silo.for_agent(agent))) or [[]]
    return [[entry.memory.number for entry in entries] for entries in worked]


def call(session: RefinementSession, tool: str, arguments: Mapping[str, Any] | None, *, reply: str = "") -> Result:
    """Carry out one call. Calls of one `reply` of the model count as one step, and of one reply there are only so many
    (`limits`); without it, each counts.

    What is refused is told in the result; raises SessionEnded for a session that is over.
    """
    with edits.locked(session.agent) as agent:
        row = _driven(session, agent)
        reply = reply and Silo.for_agent(agent).digest(f"reply/{reply}").hex()  # a runtime may call it what it likes
    knife = Knife(row)
    try:
        _count(row, knife, reply)
    except LimitReached as reached:
        sessions.close(row, Outcome.INCOMPLETE, f"limit_{reached.limit}")
        return refusal(reached, over=True)
    result = knife.call(tool, arguments)
    if result.is_batch_done:
        sessions.row_of(row).filter(batch=row.batch).update(batch=row.batch + 1)
    return result


def _count(row: RefinementSession, knife: Knife, reply: str) -> None:
    """A reply's first call is a step; the others renew the lease alone. Raises LimitReached, SessionEnded."""
    counted = sessions.row_of(row)
    if not reply or reply != row.last_reply:
        knife.begin_step()
        counted.update(last_reply=reply, reply_calls=1)
        return
    if not counted.filter(reply_calls__lt=limits.MAX_CALLS_PER_REPLY).update(reply_calls=F("reply_calls") + 1):
        raise LimitReached("calls_per_reply", limits.MAX_CALLS_PER_REPLY)
    sessions.renew(row)


def abort(session: RefinementSession, reason: str = "") -> RefinementSession:
    """End the session early. What was done stays. Raises SessionEnded."""
    with edits.locked(session.agent) as agent:
        return sessions.close(_driven(session, agent), Outcome.INCOMPLETE, "aborted", " ".join(reason.split()))


def _driven(session: RefinementSession, agent: Agent) -> RefinementSession:
    """The session as it stands, if the runtime drives it and it is open."""
    row = sessions.row_of(session).get()
    row.agent = agent
    if row.outcome != Outcome.OPEN:
        raise SessionEnded(f"Session {row.number} has ended. Nothing was changed.")
    if row.driver != Driver.RUNTIME:
        raise SessionEnded(f"Session {row.number} is driven by the service.")
    return row
