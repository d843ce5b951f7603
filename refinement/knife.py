"""The Knife: what a refinement session may do to its own agent's memories, and nothing else.

Each call is one transaction with the agent's row locked: the session is checked to be live, the call is checked
against what the agent was shown, the specifics, the limits and the circuit breaker, and only then made. A refused
call changes nothing and is answered with an error the model can act on. Whoever drives the session, a worker or
the agent's runtime, comes through here.
"""

from __future__ import annotations

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
from memory.writing import edits
from refinement import ledger, limits, tools
from refinement import session as sessions
from refinement.effects import EFFECTS, Cut, present
from refinement.errors import FloorReached, LimitReached, SessionEnded
from refinement.models import Outcome, RefinementSession, SessionStep


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The answer to one call: `text` is JSON for the model; `is_over` once the session takes no more calls."""

    ok: bool
    text: str
    code: str = "ok"
    is_over: bool = False
    is_batch_done: bool = False


class Knife:
    """One session's tools, for the holder of its lease. Each method is a transaction of its own."""

    def __init__(self, session: RefinementSession) -> None:
        self._session = session

    def show(self, batch: int, batches: int, entries: Sequence[ledger.Entry]) -> RefinementSession:
        """Note what the agent is shown in a batch: these memories, at these versions, it may edit. Returns the
        session as it stands."""
        with self._locked() as (agent, row):
            show(agent, row, batch, batches, entries)
            return row

    def begin_step(self) -> None:
        """Count one reply of the model. Raises LimitReached, SessionEnded."""
        with self._locked() as (_, row):
            count_step(row)
            row.save(update_fields=["steps", "lease_until"])

    def call(self, name: str, arguments: Mapping[str, Any] | None) -> Result:
        """Make one call. Never raises a domain error: the result says why a call is refused."""
        try:
            with self._locked() as (agent, row):
                return carry_out(agent, row, name, arguments)
        except SessionEnded as ended:
            return refusal(ended, over=True)
        except errors.MemoryDisabled as off:
            sessions.close(self._session, Outcome.INCOMPLETE, off.code)
            return refusal(off, over=True)

    @contextmanager
    def _locked(self) -> Iterator[tuple[Agent, RefinementSession]]:
        """The transaction of one call: the agent's row locked, the session live. Raises SessionEnded."""
        with edits.locked(self._session.agent) as agent:
            yield agent, sessions.live(self._session, agent)


# The caller of these holds the agent's row locked, and its live session.


def show(agent: Agent, row: RefinementSession, batch: int, batches: int, entries: Sequence[ledger.Entry]) -> None:
    row.batch, row.batches = batch, batches
    row.shown = {str(entry.memory.number): entry.memory.version for entry in entries}
    row.shown_at = agent.audit_seq
    row.save(update_fields=["batch", "batches", "shown", "shown_at", "lease_until"])


def count_step(row: RefinementSession) -> None:
    """Count one reply of the model and renew the lease. The caller saves the row. Raises LimitReached."""
    limits.within(row, "steps")
    limits.in_time(row)
    row.steps += 1
    row.lease_until = sessions.lease_end()


def carry_out(agent: Agent, row: RefinementSession, name: str, arguments: Mapping[str, Any] | None) -> Result:
    """Make one call and save the session's counts. A refused call counts, and nothing else of it is written."""
    started = time.perf_counter()
    tool = name if name in tools.TOOLS else "unknown"
    try:
        cut = Cut(agent, copy(row))
        limits.in_time(row)
        call = tools.parse(row.mode, name, arguments)
        EFFECTS[name](cut, call)
    except LimitReached as reached:
        _record(Cut(agent, row), tool, reached.code, started)
        sessions.end(agent, row, Outcome.INCOMPLETE, f"limit_{reached.limit}")
        return refusal(reached, over=True)
    except DomainError as refused:
        return _refused(Cut(agent, row), refused, tool, started)
    return _done(cut, tool, started)


def _done(cut: Cut, tool: str, started: float) -> Result:
    agent, row = cut.agent, cut.session
    row.floor_refusals = 0 if cut.memories else row.floor_refusals
    _record(cut, tool, "ok", started)
    reason = _why_over(row)
    if reason and not cut.ends:
        cut.ends = (Outcome.INCOMPLETE, reason, "")
    if cut.ends:
        sessions.end(agent, row, *cut.ends)
        answer = {"session": row.outcome, "session_ended": True, **sessions.figures(row)}
    else:
        answer = cut.answer | _standing(cut)
    is_over = cut.ends is not None
    text = ledger.one_line({"ok": True, **answer})
    return Result(True, text, is_over=is_over, is_batch_done=cut.is_batch_done and not is_over)


def _refused(cut: Cut, refused: DomainError, tool: str, started: float) -> Result:
    """Count a refused call; too many, or three at the floor in a row, end the session."""
    shown = present(cut, refused)
    cut.session.failed_calls += 1
    cut.session.floor_refusals += isinstance(refused, FloorReached)
    _record(cut, tool, refused.code, started)
    reason = _why_over(cut.session)
    if reason:
        sessions.end(cut.agent, cut.session, Outcome.INCOMPLETE, reason)
    return refusal(refused, over=bool(reason), **shown, **({} if reason else _standing(cut)))


def _why_over(row: RefinementSession) -> str:
    if row.floor_refusals >= limits.MAX_FLOOR_REFUSALS:
        return "floor"
    return "limit_failed_calls" if row.failed_calls > row.max_failed_calls else ""


def _record(cut: Cut, tool: str, result: str, started: float) -> None:
    """Save the session's counts and one line of its timeline."""
    row = cut.session
    row.tokens_after, row.memories_after = cut.agent.core_tokens, cut.agent.core_count
    taken = round((time.perf_counter() - started) * 1_000_000)
    row.own_microseconds += taken
    # What the agent was shown is by far the largest of these, and most calls add nothing to it.
    row.save(update_fields=(*_COUNTED, "shown") if cut.saw_more else _COUNTED)
    SessionStep.objects.create(
        session_id=row.pk,
        agent_id=row.agent_id,
        at=timezone.now(),
        tool=tool,
        result=result,
        memories=cut.memories,
        core_tokens=row.tokens_after,
        microseconds=taken,
    )


_COUNTED = (
    "summaries",
    "lost_tokens",
    "changes",
    "searches",
    "failed_calls",
    "floor_refusals",
    "merged",
    "updated",
    "deleted",
    "protected",
    "promoted",
    "tokens_after",
    "memories_after",
    "own_microseconds",
    "batch",
    "steps",
    "last_reply",
    "reply_calls",
    "lease_until",
)


def _standing(cut: Cut) -> dict[str, Any]:
    """Where the session stands: what every result tells the agent."""
    row = cut.session
    return {
        "tokens": {"core": row.tokens_after, "target": row.target_tokens, "floor": row.floor_tokens},
        "left": {
            "changes": row.max_changes - row.changes,
            "tokens_to_cut": max(0, cut.mass - row.floor_tokens),
            "steps": row.max_steps - row.steps,
            "searches": row.max_searches - row.searches,
            "failed_calls": row.max_failed_calls - row.failed_calls,
        },
    }


def refusal(refused: DomainError, *, over: bool, **more: Any) -> Result:
    """The answer to a call that changed nothing."""
    answer = {"ok": False, "code": refused.code, "error": str(refused), **more}
    text = ledger.one_line(answer | ({"session_ended": True} if over else {}))
    return Result(False, text, refused.code, is_over=over)
