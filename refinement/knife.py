"""The Knife: the tool calls of a refinement session. They change only the memories of the session's agent.

Each call is one transaction, which locks the agent's row. First, the Knife checks that the session is open and within
its limits, and that the arguments are valid. Then it calls the tool's function (`refinement.effects`). A refused call
changes only the session's counts. Its result says what to do instead.

The service drives a session with `Knife` (`refinement.loop`). The agent's own runtime drives a session over the API,
with `briefing`, `call` and `abort`. The first briefing divides the ledger into batches and stores the memory
numbers of each batch. So a repeated briefing shows the same batch.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from config.errors import DomainError
from memory import errors
from memory.models import Agent
from memory.policy import switches
from memory.search import cache
from memory.silo.silo import Silo
from memory.writing import edits
from refinement import ledger, limits, prompts, schedule, tools
from refinement import session as sessions
from refinement.effects import EFFECTS, CallContext, explain
from refinement.errors import FloorReached, LimitReached, SessionEnded, UnknownSession
from refinement.llm.base import Message, Tool
from refinement.models import Driver, Outcome, RefinementSession, SessionStep


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The result of one call. `answer` is for the model. `is_over` is true if the session has ended."""

    code: str
    answer: dict[str, Any]
    is_over: bool = False
    is_batch_done: bool = False

    @property
    def ok(self) -> bool:
        return self.code == "ok"

    @property
    def text(self) -> str:
        """The answer as JSON."""
        return ledger.one_line(self.answer)


# --- a session that the service drives


class Knife:
    """The tools of one session, for the worker that has the session's lease. Each method is one transaction."""

    def __init__(self, session: RefinementSession) -> None:
        self._session = session

    def show(self, batch: int, batches: int, entries: Sequence[ledger.Entry]) -> RefinementSession:
        """Record the memories of a batch. After this, the agent may edit them. Returns the session's row."""
        with self._locked() as (agent, row):
            _show(agent, row, batch, batches, entries)
            return row

    def begin_step(self) -> None:
        """Count one reply of the model. Raises LimitReached, SessionEnded."""
        with self._locked() as (_, row):
            row.require_time()
            row.count_step()
            row.save(update_fields=["steps", "lease_until"])

    def call(self, name: str, arguments: Mapping[str, Any] | None) -> Result:
        """Make one call. If the call is refused, the result says why. Raises no domain error."""
        try:
            with self._locked() as (agent, row):
                return _carry_out(agent, row, name, arguments)
        except cache.Behind as behind:
            with cache.reader(behind.args[0]):  # updates the index
                pass
            return self.call(name, arguments)
        except (SessionEnded, errors.MemoryDisabled) as ended:
            reason = schedule.MODEL_CHANGED if isinstance(ended, SessionEnded) else ended.code
            sessions.close(self._session, Outcome.INCOMPLETE, reason)  # if it is still open
            return Result(ended.code, _refusal(ended) | _ENDED, is_over=True)

    @contextmanager
    def _locked(self) -> Iterator[tuple[Agent, RefinementSession]]:
        """Open the transaction of one call. Yields the locked agent and the session's current row. Raises SessionEnded,
        MemoryDisabled."""
        with edits.locked(self._session.agent) as agent:
            switches.require_on(agent)
            row = sessions.row_of(self._session).get()
            row.agent = agent
            mine = Outcome.OPEN, self._session.lease_token, self._session.model
            if (row.outcome, row.lease_token, agent.model) != mine:
                raise SessionEnded("This refinement session has ended. Nothing was changed.")
            yield agent, row


# --- a session that the agent's runtime drives


@dataclass(frozen=True, slots=True, repr=False)
class Briefing:
    """The messages and tools that the model gets for one batch. The first batch has the number 1."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    batch: int
    batches: int


def find(agent: Agent, number: int) -> RefinementSession:
    """Raises UnknownSession."""
    row = RefinementSession.objects.filter(agent_id=agent.pk, number=number).first()
    if row is None:
        raise UnknownSession(f"Session {number} does not exist.")
    row.agent = agent
    return row


def briefing(agent: Agent, number: int) -> Briefing:
    """The briefing for the session's current batch, with the memories as they are now. Raises UnknownSession,
    SessionEnded, MemoryDisabled.

    The memories are read and written out without a lock, because this takes long, and writers must not wait.
    """
    while True:
        row = _driven(agent, number)
        known = row.plan, row.batch
        plan = row.plan or [[e.memory.number for e in batch] for batch in ledger.batches(ledger.read(agent))] or [[]]
        batch = min(row.batch, len(plan) - 1)
        entries = ledger.read(agent, plan[batch])
        with edits.locked(agent) as locked:
            row = _driven(locked, number)
            switches.require_on(locked)
            if known == (row.plan, row.batch):  # if not, another request has stored a plan or ended the batch
                row.plan = plan
                row.renew_lease()
                _show(locked, row, batch, len(plan), entries)
                break
    messages = prompts.opening(locked, row, entries, batch + 1, len(plan))
    return Briefing(tuple(messages), tools.schemas(row.mode), batch + 1, len(plan))


def call(agent: Agent, number: int, tool: str, arguments: Mapping[str, Any] | None, *, reply: str = "") -> Result:
    """Make one call, in one transaction. Consecutive calls with the same `reply` count as one step. More than
    MAX_CALLS_PER_REPLY such calls end the session. Without `reply`, each call counts as a step.

    If the call is refused, the result says why. Raises UnknownSession, SessionEnded, MemoryDisabled. MemoryDisabled
    also ends the session.
    """
    try:
        with edits.locked(agent) as locked:
            row = _driven(locked, number)
            if locked.memory_enabled:
                # A runtime chooses the reply's name, and the name may quote the reply.
                digest = Silo.for_agent(locked).digest(reply, "reply").hex() if reply else ""
                return _carry_out(locked, row, tool, arguments, digest)
            sessions.end(locked, row, Outcome.INCOMPLETE, errors.MemoryDisabled.code)
    except cache.Behind as behind:
        with cache.reader(behind.args[0]):  # updates the index
            pass
        return call(agent, number, tool, arguments, reply=reply)
    raise errors.MemoryDisabled  # outside the transaction, which has ended the session


def abort(agent: Agent, number: int, reason: str = "") -> RefinementSession:
    """End the session early. Its edits stay. Raises UnknownSession, SessionEnded."""
    with edits.locked(agent) as locked:
        row = _driven(locked, number)
        sessions.end(locked, row, Outcome.INCOMPLETE, "aborted", " ".join(reason.split()))
        return row


def _driven(agent: Agent, number: int) -> RefinementSession:
    """The current row of an open session that the runtime drives. Raises UnknownSession. Raises SessionEnded for other
    sessions."""
    row = find(agent, number)
    if row.outcome != Outcome.OPEN:
        raise SessionEnded(f"Session {row.number} has ended. Nothing was changed.")
    if row.driver != Driver.RUNTIME:
        raise SessionEnded(f"Session {row.number} is driven by the service.")
    return row


# --- in the transaction: the agent's row is locked, and the session's row is current


def _show(agent: Agent, row: RefinementSession, batch: int, batches: int, entries: Sequence[ledger.Entry]) -> None:
    row.batch, row.batches = batch, batches
    row.shown = {str(entry.memory.number): entry.memory.version for entry in entries}
    row.shown_at = agent.audit_seq
    row.save(update_fields=["plan", "batch", "batches", "shown", "shown_at", "lease_until"])


def _carry_out(
    agent: Agent, row: RefinementSession, name: str, arguments: Mapping[str, Any] | None, reply: str | None = None
) -> Result:
    """Make one call and save the session's counts. If `reply` is None, the caller has already counted the step.

    A refused call changes only the counts. The session ends after too many refused calls. It also ends after three
    calls that were refused because of the floor, if no edit succeeded between them.
    """
    started = time.perf_counter()
    code = "ok"
    try:
        if reply is not None:
            row.count_step(reply)
        row.require_time()
        checked = tools.parse(row.mode, name, arguments)
        call = CallContext(agent, copy(row))
        EFFECTS[name](call, checked)
    except LimitReached as reached:
        code, call = reached.code, CallContext(agent, row, answer=_refusal(reached))
        call.ends = Outcome.INCOMPLETE, f"limit_{reached.limit}", ""
    except DomainError as refused:
        code, call = refused.code, CallContext(agent, row)
        call.answer = _refusal(refused) | explain(call, refused)
        row.failed_calls += 1
        row.floor_refusals += isinstance(refused, FloorReached)
    row = call.session
    if call.memories:
        row.floor_refusals = 0
    _record(call, name, code, started)
    if call.ends is None and row.floor_refusals >= limits.MAX_FLOOR_REFUSALS:
        call.ends = Outcome.INCOMPLETE, "floor", ""
    elif call.ends is None and row.failed_calls > row.max_failed_calls:
        call.ends = Outcome.INCOMPLETE, "limit_failed_calls", ""
    if call.ends is None:
        return Result(code, {"ok": True} | call.answer | _progress(call), is_batch_done=call.is_batch_done)
    sessions.end(agent, row, *call.ends)
    answer = call.answer if code != "ok" else {"ok": True, "session": row.outcome, **sessions.figures(row)}
    return Result(code, answer | _ENDED, is_over=True)


_ENDED = {"session_ended": True}


def _refusal(error: DomainError) -> dict[str, Any]:
    return {"ok": False, "code": error.code, "error": str(error)}


def _record(call: CallContext, name: str, result: str, started: float) -> None:
    """Save the session's counts and one line of its timeline."""
    row = call.session
    row.tokens_after, row.memories_after = call.agent.core_tokens, call.agent.core_count
    taken = round((time.perf_counter() - started) * 1_000_000)
    row.own_microseconds += taken
    # `shown` is by far the largest of these fields, and most calls do not change it.
    row.save(update_fields=(*_COUNTED, "shown") if call.shown_changed else _COUNTED)
    SessionStep.objects.create(
        session_id=row.pk,
        agent_id=row.agent_id,
        at=timezone.now(),
        tool=name if name in tools.TOOLS else "unknown",
        result=result,
        memories=call.memories,
        core_tokens=row.tokens_after,
        microseconds=taken,
    )


_COUNTED = (
    *("summaries", "lost_tokens", "changes", "searches", "failed_calls", "floor_refusals", "merged", "updated"),
    *("deleted", "protected", "promoted", "tokens_after", "memories_after", "own_microseconds", "batch", "steps"),
    *("last_reply", "reply_calls", "lease_until"),
)


def _progress(call: CallContext) -> dict[str, Any]:
    """The session's figures. Every result contains these figures until the session ends."""
    row = call.session
    return {
        "tokens": {"core": row.tokens_after, "target": row.target_tokens, "floor": row.floor_tokens},
        "left": {
            "changes": row.max_changes - row.changes,
            "tokens_to_cut": max(0, call.mass - row.floor_tokens),
            "steps": row.max_steps - row.steps,
            "searches": row.max_searches - row.searches,
            "failed_calls": row.max_failed_calls - row.failed_calls,
        },
    }
