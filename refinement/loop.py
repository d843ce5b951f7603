"""Opens a session and runs it with the agent's own model until the session ends.

No transaction is open during a model call. Each edit has its own transaction. So if a session is interrupted, all its
edits are complete and in the audit trail.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from config.errors import DomainError
from config.queue import Stopped, reconnect, until_answered
from memory.errors import MemoryDisabled
from memory.models import Agent
from memory.policy import tokens
from memory.policy.validation import MAX_CONTENT
from refinement import ledger, limits, probe, prompts, tools
from refinement import session as sessions
from refinement.errors import LimitReached, SessionEnded
from refinement.knife import Knife, Result
from refinement.llm.base import MAX_OUTPUT_TOKENS, Message, Model, ModelError, Reply, Request, Usage
from refinement.llm.catalog import open_model
from refinement.models import Mode, Outcome, RefinementSession
from refinement.schedule import DATABASE_FAILED, MODEL_CHANGED, NOT_CONFIGURED, WORKER_STOPPED

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
    """Run an open session until it has ended. Returns the ended session.

    `report` gets lines about the progress, without content. `failed` gets the error that ended the session. The session
    stores only the code of this error.
    """
    report(
        f"session {session.number}: {session.tokens_before:,} tokens without {session.duplicates_removed} duplicates"
    )
    try:
        _work(session, report, failed)
    except Stopped:
        reconnect()
        with suppress(Exception):
            sessions.close(session, Outcome.INCOMPLETE, WORKER_STOPPED)
        raise
    except (OperationalError, InterfaceError):
        reconnect()
        until_answered(lambda: sessions.close(session, Outcome.INCOMPLETE, DATABASE_FAILED))
        raise
    except BaseException:  # interrupted, or a bug: the agent must not wait for the lease
        with suppress(Exception):
            sessions.close(session, Outcome.FAILED, sessions.INTERRUPTED)
        raise
    session.refresh_from_db()
    return session


def _work(session: RefinementSession, report: Report, failed: Callable[[DomainError], None]) -> None:
    try:
        model, name = open_model(session.model, session.agent)
        _Run(session, model, name, report, Knife(session)).work()
    except LimitReached as reached:
        sessions.close(session, Outcome.INCOMPLETE, f"limit_{reached.limit}")
    except MemoryDisabled as off:
        sessions.close(session, Outcome.INCOMPLETE, off.code)
    except SessionEnded:
        sessions.close(session, Outcome.INCOMPLETE, MODEL_CHANGED)  # if it is still open
    except DomainError as failure:  # an error of the model, or a broken seal
        failed(failure)
        is_configuration = isinstance(failure, ModelError) and failure.is_configuration
        # The test shows whether all requests fail, or only those of this session.
        code = NOT_CONFIGURED if is_configuration and probe.trouble(session.agent) else failure.code
        sessions.close(session, Outcome.FAILED, code)


@dataclass(slots=True)
class _Run:
    """The state of a running session. The session has one conversation with the model for each batch."""

    session: RefinementSession
    model: Model
    model_name: str
    report: Report
    knife: Knife
    spent: Usage = field(default_factory=Usage)
    last: Usage = field(default_factory=Usage)  # of the last call

    def work(self) -> None:
        """Process the batches in order, until the session has ended."""
        agent = self.session.agent
        batches = ledger.batches(ledger.read(agent)) or [[]]
        for place, entries in enumerate(batches):
            if place:
                entries = ledger.read(agent, [entry.memory.number for entry in entries])
            session = self.knife.show(place, len(batches), entries)
            if self._converse(prompts.opening(agent, session, entries, place + 1, len(batches))):
                return

    def _converse(self, messages: list[Message]) -> bool:
        """Process one batch. Returns True if the session has ended, False if the next batch follows."""
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
        """Carry out the tool calls of one reply in order, until a call ends the batch. Returns the last result."""
        result = Result("", {})
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
        """Call the model. Its tokens are counted even if the call fails. Raises LimitReached if the call may exceed the
        session's limit: the last call and its reply are part of the next prompt."""
        prompt = max(_prompt_tokens(messages), self.last.total)
        tokens_left = self.session.max_model_tokens - self.spent.total - prompt
        if tokens_left <= 0:
            raise LimitReached("model_tokens", self.session.max_model_tokens)
        left = self._seconds_left()
        request = Request(
            model=self.model_name,
            messages=tuple(messages),
            tools=tools.schemas(self.session.mode),
            max_output_tokens=min(MAX_OUTPUT_TOKENS, tokens_left),
            seconds=max(0.1, min(settings.MODEL_CALL_SECONDS, left)),
            is_cut_short=left < settings.MODEL_CALL_SECONDS,
        )
        started = time.perf_counter()
        try:
            reply = self.model.complete(request)
        except ModelError as failure:
            self._count(failure.usage, failure.calls, started)
            if self._seconds_left() <= 0:  # the session's time ended the call
                raise LimitReached("seconds", self.session.max_seconds) from None
            raise
        usage = reply.usage if reply.usage.total or not reply.calls else _estimated(messages, reply)
        self._count(usage, reply.calls, started)
        return reply

    def _seconds_left(self) -> float:
        return self.session.max_seconds - (timezone.now() - self.session.opened_at).total_seconds()

    def _count(self, usage: Usage, calls: int, started: float) -> None:
        self.last, self.spent = usage, self.spent + usage
        sessions.count_model_calls(self.session, usage, calls, round((time.perf_counter() - started) * 1_000))


def _estimated(messages: Sequence[Message], reply: Reply) -> Usage:
    """An estimate of a call's tokens. It is needed for servers that do not report the tokens, so that the session's
    limit also applies there."""
    arguments = json.dumps([call.arguments for call in reply.tool_calls], default=str)
    return Usage(prompt=_prompt_tokens(messages), completion=tokens.count(reply.text + arguments))


def _prompt_tokens(messages: Sequence[Message]) -> int:
    return sum(tokens.count(message.text) for message in messages)
