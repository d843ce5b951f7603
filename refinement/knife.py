"""The Knife: the tool calls of a refinement session. They change only the memories of the session's agent.

Each call is one transaction, which locks the agent's row. First, the Knife checks that the session is open and within
its limits, and that the arguments are valid. Then it calls the tool's function (`refinement.effects`). A refused call
changes only the session's counts. Its result says what to do instead.

The service drives a session with `Knife` (`refinement.loop`). The agent's own runtime drives a session over the API,
with `briefing`, `call` and `abort`. The first briefing divides the ledger into batches and stores the memory
numbers of each batch. So a repeated briefing shows the same batch, with the memories that the session has made since.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from django.db import transaction

from audit import redactions
from config.errors import DomainError
from memory import errors
from memory.models import Agent
from memory.policy import switches
from memory.search import cache
from memory.silo.silo import Silo
from memory.writing import edits
from refinement import ledger, limits, prompts, schedule, timeline, tools
from refinement import session as sessions
from refinement.effects import EFFECTS, CallContext, explain
from refinement.errors import FloorReached, LimitReached, ResultNotKept, SessionEnded, UnknownSession
from refinement.llm.base import Message, Tool, arguments_of
from refinement.models import Driver, Outcome, RefinementSession

Given = Mapping[str, Any] | None  # the arguments of a call; None if the model did not send a JSON object


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
        self._session, self._began = session, _ends_with(session.agent)

    def show(self, batch: int, batches: int, entries: Sequence[ledger.Entry]) -> RefinementSession:
        """Record the memories of a batch. After this, the agent may edit them. Returns the session's row."""
        with self._locked() as (agent, row):
            _show(agent, row, batch, batches, entries)
            return row

    def begin_step(self) -> None:
        """Count one reply of the model. Raises LimitReached, SessionEnded."""
        with self._locked() as (_, row):
            row.require_time()
            is_shown = bool(row.pending)
            row.count_step()
            row.save(update_fields=["steps", "lease_until", *(("shown", "pending") if is_shown else ())])

    def require_open(self, agent: Agent) -> None:
        """Raise an error if the session has ended, for example with a redaction. `agent` is the proven present row.
        Raises SessionEnded, MemoryDisabled, CategoryDisabled."""
        self._require_mine(agent, sessions.row_of(self._session).get())
        switches.require_same(agent, self._session.agent)

    def call(self, name: str, given: Given, *, is_last: bool = True) -> Result:
        """Make one call. If the call is refused, the result says why. If it is the last call of the reply, the result
        has the session's figures. Raises no domain error."""
        try:
            with self._locked() as (agent, row):
                return _carry_out(agent, row, name, given, with_figures=is_last)
        except cache.Behind as behind:
            with cache.reader(behind.args[0]):  # updates the index
                pass
            return self.call(name, given, is_last=is_last)
        except (SessionEnded, errors.MemoryDisabled) as ended:
            reason = schedule.MODEL_CHANGED if isinstance(ended, SessionEnded) else ended.code
            sessions.close(self._session, Outcome.INCOMPLETE, reason)  # if it is still open
            return Result(ended.code, _refusal(ended) | {"session_ended": True}, is_over=True)

    @contextmanager
    def _locked(self) -> Iterator[tuple[Agent, RefinementSession]]:
        """Open the transaction of one call. Yields the locked agent and the session's current row. Raises SessionEnded,
        MemoryDisabled."""
        with edits.locked(self._session.agent) as agent:
            row = sessions.row_of(self._session).get()
            row.agent = agent
            self._require_mine(agent, row)
            yield agent, row

    def _require_mine(self, agent: Agent, row: RefinementSession) -> None:
        switches.require_on(agent)
        mine = Outcome.OPEN, self._session.lease_token, self._session.model
        is_mine = (row.outcome, row.lease_token, agent.model) == mine
        if not is_mine or not agent.wrapped_key or _ends_with(agent) != self._began:
            raise SessionEnded("This refinement session has ended. Nothing was changed.")


def _ends_with(agent: Agent) -> tuple[Any, ...]:
    """The last redaction and claim. Each ends all sessions, but SQL can open a session again."""
    return redactions.last(agent), agent.claimed_at


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
        batches = () if row.plan else ledger.batches(ledger.read(agent), agent.context_tokens)
        plan = row.plan or [[each.memory.number for each in batch] for batch in batches] or [[]]
        batch = min(row.batch, len(plan) - 1)
        # If the batch was shown before, it includes what the session has found and made since.
        entries = ledger.read(agent, sorted({*plan[batch], *map(int, row.shown), *map(int, row.pending)}))
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


class Kept(Protocol):
    """The stored result of a request that has an Idempotency-Key."""

    def find(self, agent: Agent) -> list[Any] | None: ...

    def store(self, agent: Agent, made: list[Any]) -> None: ...


def call(
    agent: Agent,
    number: int,
    tool: str,
    given: Given,
    *,
    reply: str = "",
    is_last: bool = True,
    kept: Kept | None = None,
) -> Result:
    """Make one call, in one transaction. Consecutive calls with the same `reply` count as one step. More than
    MAX_CALLS_PER_REPLY such calls end the session. Without `reply`, each call counts as a step. If
    `is_last` is true, the result has the session's figures.

    With `kept`, the result is stored, sealed, unless the call only reads. If a result is already stored, it is
    returned, and nothing is called. If the call is refused, the result says why. Raises UnknownSession, SessionEnded,
    ResultNotKept, MemoryDisabled. MemoryDisabled also ends the session.
    """
    try:
        with edits.locked(agent) as locked:
            # After a redaction, or if a category is switched on or off, earlier results cannot be opened.
            place = f"call/{redactions.last(locked)}/{','.join(sorted(switches.closed(locked)))}" if kept else ""
            if locked.memory_enabled and kept and (made := kept.find(locked)):
                with suppress(errors.SealBroken):
                    return Result(*json.loads(Silo.for_agent(locked).open_text(place, number, bytes.fromhex(made[0]))))
                raise ResultNotKept
            row = _driven(locked, number)
            if locked.memory_enabled:
                silo = Silo.for_agent(locked)
                # A runtime chooses the reply's name, and the name may quote the reply.
                digest = silo.digest(reply, "reply").hex() if reply else ""
                result = _carry_out(locked, row, tool, given, reply=digest, with_figures=is_last)
                if kept and tool.removeprefix(tools.PREFIX) not in tools.READING:
                    text = silo.seal_text(place, number, json.dumps(astuple(result))).hex()
                    kept.store(locked, [text if len(text) <= MOST_KEPT else ""])
                return result
            sessions.end(locked, row, Outcome.INCOMPLETE, errors.MemoryDisabled.code)
    except cache.Behind as behind:
        with cache.reader(behind.args[0]):  # updates the index
            pass
        return call(agent, number, tool, given, reply=reply, is_last=is_last, kept=kept)
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
    row.shown_at, row.pending = agent.audit_seq, {}
    row.save(update_fields=["plan", "batch", "batches", "shown", "shown_at", "pending", "lease_until"])


def _carry_out(
    agent: Agent,
    row: RefinementSession,
    name: str,
    given: Given,
    *,
    reply: str | None = None,
    with_figures: bool,
) -> Result:
    """Make one call and save the session's counts. If `reply` is None, the caller has already counted the step.

    The session ends after too many refused calls. It also ends after three calls that were refused because of the
    floor, if no edit succeeded between them.
    """
    is_shown = reply is not None and bool(row.pending)
    call = _make(agent, row, name.removeprefix(tools.PREFIX), given, reply=reply)
    row = call.session
    sizes = ledger.size(agent, row.store) if row.store else (agent.core_tokens, agent.core_count)
    row.tokens_after, row.memories_after = sizes
    # `shown` is by far the largest of these fields, and most calls do not change it.
    if call.is_batch_done:  # the next batch shows its own memories
        row.shown, row.pending = {}, {}
    row.save(update_fields=(*_COUNTED, "shown") if is_shown or call.is_batch_done else _COUNTED)
    if call.ends is None and row.floor_refusals >= limits.MAX_FLOOR_REFUSALS:
        call.ends = Outcome.INCOMPLETE, "floor", ""
    elif call.ends is None and row.failed_calls > row.max_failed_calls:
        call.ends = Outcome.INCOMPLETE, "limit_failed_calls", ""
    if call.ends is None:
        figures = _progress(call) if with_figures else {}
        return Result(call.code, call.answer | figures, is_batch_done=call.is_batch_done)
    sessions.end(agent, row, *call.ends)
    figures = {"session": row.outcome, **sessions.figures(row)} if call.code == "ok" else {}
    return Result(call.code, call.answer | figures | {"session_ended": True}, is_over=True)


def _make(
    agent: Agent,
    row: RefinementSession,
    name: str,
    given: Given,
    reply: str | None = None,
    *,
    is_edit: bool = False,
) -> CallContext:
    """Make one call, or one edit of `apply`, and add it to the session's timeline. A refused call changes only the
    counts of the session's row."""
    started = time.perf_counter()
    try:
        if reply is not None:
            row.count_step(reply)
        row.require_time()
        checked = tools.parse(row.mode, name, given, is_edit=is_edit)
        call = CallContext(agent, copy(row))
        with _savepoint(agent) if is_edit else nullcontext():
            if isinstance(checked, tools.Apply):
                _apply(call, checked)
            else:
                EFFECTS[name](call, checked)
    except LimitReached as reached:
        call = CallContext(agent, row, _refusal(reached), reached.code)
        call.ends = Outcome.INCOMPLETE, f"limit_{reached.limit}", ""
    except DomainError as refused:
        call = CallContext(agent, row, code=refused.code)
        call.answer = _refusal(refused) | explain(call, refused)
        row.failed_calls += 1
        row.floor_refusals += isinstance(refused, FloorReached)
    if call.memories:
        call.session.floor_refusals = 0
    call.answer = {"ok": call.code == "ok"} | call.answer
    if "edits" not in call.answer:  # the edits of `apply` are in the timeline
        timeline.add_step(call, name, started)
    return call


@contextmanager
def _savepoint(agent: Agent) -> Iterator[None]:
    """Undo an edit that is refused, in the database and in the agent's locked row."""
    before = dict(vars(agent))
    try:
        with transaction.atomic():
            yield
    except DomainError:
        vars(agent).update(before)
        raise


MOST_KEPT = 256_000  # characters of a stored result: other writers wait while it is deleted
APPLY_SECONDS = 1.5  # for the edits of one call, because the agent is locked; 100 merges take 0.8 s
_NOT_MADE = {"ok": False, "code": "not_made", "error": "This edit was not made, because time or a limit ran out."}


def _apply(call: CallContext, wanted: tools.Apply) -> None:
    """Make edits in order, each in its own savepoint, as if its tool was called alone. Together they count as at most
    one failed call and one refusal because of the floor. When a limit of the session or APPLY_SECONDS is reached, the
    other edits are not made.

    Merges and rewrites search. If the index lacks too much for that, this raises cache.Behind before the first edit.
    """
    if any(edit.tool in ("consolidate_memories", "update_memory") for edit in wanted.edits):
        with cache.reader(call.agent, keeps=True):
            pass
    until, failed, refused = time.monotonic() + APPLY_SECONDS, call.session.failed_calls, call.session.floor_refusals
    answers = []
    for edit in wanted.edits:
        if call.ends or time.monotonic() > until:
            answers.append(_NOT_MADE)
            continue
        made = _make(call.agent, call.session, edit.tool, arguments_of(edit.arguments), is_edit=True)
        call.session, call.ends = made.session, made.ends
        call.memories += made.memories
        answers.append(made.answer)
    call.session.failed_calls = min(call.session.failed_calls, failed + 1)
    call.session.floor_refusals = min(call.session.floor_refusals, refused + 1)
    call.answer = {"edits": answers}
    if not any(answer["ok"] for answer in answers):
        call.code, error = "no_edit", "No edit was made. The answer of each edit says why."
        call.answer |= {"code": call.code, "error": error}


def _refusal(error: DomainError) -> dict[str, Any]:
    return {"ok": False, "code": error.code, "error": str(error)}


_COUNTED = (
    *("summaries", "lost_tokens", "changes", "searches", "failed_calls", "floor_refusals", "merged", "updated"),
    *("deleted", "deleted_tokens", "demoted", "protected", "promoted", "left_out", "tokens_after", "memories_after"),
    *("own_microseconds", "batch", "steps", "last_reply", "reply_calls", "pending", "lease_until"),
)


def _progress(call: CallContext) -> dict[str, Any]:
    """The session's figures. The last result of each reply contains them."""
    row = call.session
    tokens = {"core": row.tokens_after, "target": row.target_tokens, "floor": row.floor_tokens}
    left = {"changes": row.max_changes - row.changes, "tokens_to_cut": max(0, call.mass - row.floor_tokens)}
    left |= {name: getattr(row, f"max_{name}") - getattr(row, name) for name in ("steps", "searches", "failed_calls")}
    return {"tokens": tokens, "left": left}
