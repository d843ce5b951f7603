"""A server-driven session from start to end: open, brief, work, close (30-refinement, A session).

No transaction is open while a model is called. Whatever happens between, the session's edits are whole and
audited, because each was its own transaction; what ends here is only the conversation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from django.conf import settings
from django.utils import timezone

from config.errors import DomainError
from config.queue import Stopped, start_anew
from memory.errors import MemoryDisabled
from memory.models import Agent
from memory.policy import tokens
from memory.policy.validation import MAX_CONTENT
from memory.silo.silo import Silo
from refinement import ledger, limits, prompts, tools
from refinement import session as sessions
from refinement.errors import LimitReached, SessionEnded
from refinement.knife import Knife, Result
from refinement.llm.base import Message, Model, ModelError, Reply, Request, Usage
from refinement.llm.catalog import open_model
from refinement.models import Mode, Outcome, RefinementSession
from refinement.schedule import WORKER_STOPPED

log = structlog.get_logger("palimpsest.refinement")

Report = Callable[[str], None]


def refine(
    agent: Agent,
    *,
    trigger: str,
    mode: str = Mode.FULL,
    report: Report = lambda _: None,
    failed: Callable[[DomainError], None] = lambda _: None,
) -> RefinementSession:
    """Open a session and run it. Raises SessionOpen, MemoryDisabled."""
    return drive(sessions.open_session(agent, trigger=trigger, mode=mode), report=report, failed=failed)


def drive(
    session: RefinementSession,
    *,
    report: Report = lambda _: None,
    failed: Callable[[DomainError], None] = lambda _: None,
) -> RefinementSession:
    """Run an open session with the agent's own model, in the foreground. Returns it closed, whatever its outcome.

    `report` is told, in words without content, what goes on; `failed` what made it fail, of which the session keeps
    the code alone.
    """
    report(
        f"session {session.number}: {session.tokens_before:,} tokens, {session.duplicates_removed} duplicates removed"
    )
    try:
        _work(session, report, failed)
    except Stopped:
        start_anew()
        with suppress(Exception):
            sessions.close(session, Outcome.INCOMPLETE, WORKER_STOPPED)
        raise
    except BaseException:  # stopped from outside, or a fault of the program: the agent is not kept waiting for it
        with suppress(Exception):
            sessions.close(session, Outcome.FAILED, sessions.INTERRUPTED)
        raise
    session.refresh_from_db()
    return session


def _work(session: RefinementSession, report: Report, failed: Callable[[DomainError], None]) -> None:
    try:
        model, name = open_model(session.model)
        _Run(session, model, name, report).work()
    except LimitReached as reached:
        sessions.close(session, Outcome.INCOMPLETE, f"limit_{reached.limit}")
    except MemoryDisabled as off:
        sessions.close(session, Outcome.INCOMPLETE, off.code)
    except SessionEnded:
        pass  # closed by the Knife, or by somebody who took the session for lost
    except DomainError as failure:  # the model's, or a memory whose seal is broken
        failed(failure)
        sessions.close(session, Outcome.FAILED, failure.code)


@dataclass(slots=True)
class _Run:
    """One driver's view of a session."""

    session: RefinementSession
    model: Model
    model_name: str
    report: Report
    knife: Knife = field(init=False)
    spent: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self.knife = Knife(self.session)

    def work(self) -> None:
        """Every batch in its own conversation, until the session is over."""
        agent = self.session.agent
        batches = ledger.batches(ledger.read(agent, Silo.for_agent(agent))) or [[]]
        for place, entries in enumerate(batches):
            if place:
                entries = ledger.still_there(agent, [entry.memory.number for entry in entries])
            session = self.knife.show(place, len(batches), entries)
            if self._converse(prompts.opening(agent, session, entries, place + 1, len(batches))):
                return

    def _converse(self, messages: list[Message]) -> bool:
        """One batch. True when the session is over, False when the next batch is due."""
        nudged = False
        while True:
            self.knife.begin_step()
            reply = self._ask(messages)
            messages.append(Message("assistant", reply.text[:MAX_CONTENT], reply.tool_calls))
            if not reply.tool_calls:
                if nudged:
                    sessions.close(self.session, Outcome.INCOMPLETE, "no_tool_call")
                    return True
                nudged = True
                messages.append(prompts.nudge())
                continue
            last = self._carry_out(reply, messages)
            if last.is_over or last.is_batch_done:
                return last.is_over

    def _carry_out(self, reply: Reply, messages: list[Message]) -> Result:
        """The calls of one reply, in order, until one ends the batch. Returns the last result."""
        result = Result(False, "")
        for place, call in enumerate(reply.tool_calls):
            if place >= limits.MAX_CALLS_PER_REPLY:
                raise LimitReached("calls_per_reply", limits.MAX_CALLS_PER_REPLY)
            result = self.knife.call(call.name, call.arguments)
            self.report(f"{call.name if call.name in tools.TOOLS else 'unknown tool'}: {result.code}")
            messages.append(Message("tool", result.text, tool_call_id=call.id, failed=not result.ok))
            if result.is_over or result.is_batch_done:
                break
        return result

    def _ask(self, messages: Sequence[Message]) -> Reply:
        """One call of the model, its cost counted whether it succeeds or not."""
        if self.spent.total >= self.session.max_model_tokens:
            raise LimitReached("model_tokens", self.session.max_model_tokens)
        left = self._seconds_left()
        request = Request(
            model=self.model_name,
            messages=tuple(messages),
            tools=tools.schemas(self.session.mode),
            seconds=max(0.1, min(settings.MODEL_CALL_SECONDS, left)),
            is_cut_short=left < settings.MODEL_CALL_SECONDS,
        )
        started = time.perf_counter()
        try:
            reply = self.model.complete(request)
        except ModelError as failure:
            self._count(failure.usage, failure.calls, started)
            if self._seconds_left() <= 0:  # it was the session's time that cut the call off
                raise LimitReached("seconds", self.session.max_seconds) from None
            raise
        usage = reply.usage if reply.usage.total or not reply.calls else _estimated(messages, reply)
        self._count(usage, reply.calls, started)
        return reply

    def _seconds_left(self) -> float:
        return self.session.max_seconds - (timezone.now() - self.session.opened_at).total_seconds()

    def _count(self, usage: Usage, calls: int, started: float) -> None:
        self.spent += usage
        sessions.count_model_calls(self.session, usage, calls, round((time.perf_counter() - started) * 1_000))


def _estimated(messages: Sequence[Message], reply: Reply) -> Usage:
    """What a call cost where the server does not say: compatible servers may not, and the limit holds all the same."""
    said = json.dumps([call.arguments for call in reply.tool_calls], default=str)
    prompt = sum(tokens.heuristic(message.text) for message in messages)
    return Usage(prompt=prompt, completion=tokens.heuristic(reply.text + said))
