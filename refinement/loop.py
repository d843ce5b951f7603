"""Opens a session and runs it with the agent's own model until the session ends.

No transaction is open during a model call. Each edit has its own transaction. So if a session is interrupted, all its
edits are complete and in the audit trail.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from config.errors import DomainError
from config.queue import Stopped, reconnect, until_answered
from memory.errors import CategoryDisabled, MemoryDisabled
from memory.models import Agent
from memory.policy import tokens
from memory.policy.validation import MAX_CONTENT
from refinement import ledger, limits, probe, prompts, tools
from refinement import session as sessions
from refinement.errors import LimitReached, SessionEnded
from refinement.knife import Knife, Result
from refinement.llm.base import ContextOverflow, Message, Model, ModelError, Reply, Request, ToolCall, Usage, tool_calls
from refinement.llm.catalog import open_model
from refinement.llm.text_calls import calls_in
from refinement.models import Mode, Outcome, RefinementSession
from refinement.schedule import DATABASE_FAILED, MODEL_CHANGED, NOT_CONFIGURED, WORKER_STOPPED

log = structlog.get_logger("palimpsest.refinement")

Report = Callable[[str], None]
Failed = Callable[[DomainError], None]

LEAST_OUTPUT = 256  # tokens of one reply
NO_CALL = "The model answered in text instead of calling tools."
REPEATED = "This call was refused before. Work with other memories, or call complete_refinement."
CUT_OFF = "The model's replies are longer than the limit, and have no complete tool call. Increase MAX_OUTPUT_TOKENS."


def refine(
    agent: Agent,
    *,
    trigger: str,
    mode: str = Mode.FULL,
    report: Report = lambda _: None,
    failed: Failed = lambda _: None,
) -> RefinementSession:
    """Open a session and run it. Raises SessionOpen, MemoryDisabled."""
    return drive(sessions.open_session(agent, trigger=trigger, mode=mode), report=report, failed=failed)


def drive(
    session: RefinementSession, *, report: Report = lambda _: None, failed: Failed = lambda _: None
) -> RefinementSession:
    """Run an open session until it has ended. Returns the ended session.

    `report` gets lines about the progress, without content. `failed` gets the error that ended the session. The session
    stores only the code of this error.
    """
    duplicates = f"{session.duplicates_removed} duplicates"
    report(f"session {session.number}: {session.tokens_before:,} tokens without {duplicates}")
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


def _work(session: RefinementSession, report: Report, failed: Failed) -> None:
    try:
        knife = Knife(session)
        model, name = open_model(session.model, session.agent, knife.require_open)
        _Run(session, model, name, report, knife).work()
    except LimitReached as reached:
        sessions.close(session, Outcome.INCOMPLETE, f"limit_{reached.limit}", problem=str(reached))
    except (MemoryDisabled, CategoryDisabled) as off:
        sessions.close(session, Outcome.INCOMPLETE, off.code)
    except SessionEnded:
        sessions.close(session, Outcome.INCOMPLETE, MODEL_CHANGED)  # if it is still open
    except DomainError as failure:  # an error of the model, or a broken seal
        failed(failure)
        is_configuration = isinstance(failure, ModelError) and failure.is_configuration
        # The test shows whether all requests fail, or only those of this session.
        code = NOT_CONFIGURED if is_configuration and probe.trouble(session.agent) else failure.code
        sessions.close(session, Outcome.FAILED, code, problem=str(failure))


@dataclass(slots=True)
class _Run:
    """The state of a running session. The session has one conversation with the model for each batch."""

    session: RefinementSession
    model: Model
    model_name: str
    report: Report
    knife: Knife
    max_output: int = LEAST_OUTPUT
    spent: Usage = field(default_factory=Usage)
    last: Usage = field(default_factory=Usage)  # of the last call
    refused: set[tuple[str, str]] = field(default_factory=set)  # calls and their arguments

    def work(self) -> None:
        """Process the batches in order, until the session has ended."""
        agent, done = self.session.agent, 0
        context: int = agent.context_tokens or 4 * settings.MAX_OUTPUT_TOKENS
        self.max_output = max(LEAST_OUTPUT, min(settings.MAX_OUTPUT_TOKENS, context // 4))
        store = self.session.store
        waiting = ledger.batches(ledger.read(agent, store=store), agent.context_tokens) or [[]]
        while waiting:
            entries = ledger.read(agent, [entry.memory.number for entry in waiting.pop(0)], store=store)
            batches = done + 1 + len(waiting)
            session = self.knife.show(done, batches, entries)
            try:
                if self._converse(prompts.opening(agent, session, entries, done + 1, batches)):
                    return
                done += 1
            except ContextOverflow as overflow:
                waiting = self._halved(entries, overflow) + waiting

    def _halved(self, entries: list[ledger.Entry], overflow: ContextOverflow) -> list[list[ledger.Entry]]:
        """A batch that was too large for the model, in two halves. The next replies must be shorter, too. Raises the
        error if nothing can become smaller."""
        before, half = self.max_output, -(-len(entries) // 2)
        shorter = min(before, overflow.limit // 4) if overflow.limit else before // 2
        self.max_output = max(LEAST_OUTPUT, shorter)
        if len(entries) < 2 and self.max_output == before:
            raise overflow
        self.report("the batch is too large for the model; it is halved")
        return [part for part in (entries[:half], entries[half:]) if part] or [[]]

    def _converse(self, messages: list[Message]) -> bool:
        """Process one batch. Returns True if the session has ended, False if the next batch follows."""
        has_called = True
        while True:
            self.knife.begin_step()
            reply = self._ask(messages)
            messages.append(Message("assistant", reply.text[:MAX_CONTENT], reply.tool_calls))
            if reply.tool_calls:
                last = self._carry_out(reply, messages)
                if last.is_over or last.is_batch_done:
                    return last.is_over
            elif not has_called:
                problem = CUT_OFF if reply.stop == "length" else NO_CALL
                sessions.close(self.session, Outcome.INCOMPLETE, "no_tool_call", problem=problem)
                return True
            has_called = bool(reply.tool_calls)
            if reply.stop == "length" or not has_called:
                messages.append(prompts.remark("cut_off" if reply.stop == "length" else "nudge"))

    def _carry_out(self, reply: Reply, messages: list[Message]) -> Result:
        """Carry out the tool calls of one reply in order, until a call ends the batch. Returns the last result."""
        result = Result("", {})
        for place, call in enumerate(reply.tool_calls):
            if place >= limits.MAX_CALLS_PER_REPLY:
                raise LimitReached("calls_per_reply", limits.MAX_CALLS_PER_REPLY)
            result = self.knife.call(call.name, call.arguments, is_last=place + 1 == len(reply.tool_calls))
            if not result.ok:
                result = self._with_advice(call, result)
            name = call.name.removeprefix(tools.PREFIX)
            self.report(f"{name if name in tools.TOOLS else 'unknown tool'}: {result.code}")
            messages.append(Message("tool", result.text, tool_call_id=call.id, failed=not result.ok))
            if result.is_over or result.is_batch_done:
                break
        return result

    def _with_advice(self, call: ToolCall, refused: Result) -> Result:
        """Tell the model if it has made this refused call before. Small models repeat such calls."""
        made = (call.name, json.dumps(call.arguments, sort_keys=True, default=str))
        if made in self.refused:
            refused = replace(refused, answer=refused.answer | {"advice": REPEATED})
        self.refused.add(made)
        return refused

    def _ask(self, messages: Sequence[Message]) -> Reply:
        """Call the model. Its tokens are counted even if the call fails. Raises LimitReached if the call may exceed the
        session's limit: the last call and its reply are part of the next prompt."""
        prompt = max(_prompt_tokens(messages), self.last.total)
        tokens_left = self.session.max_model_tokens - self.spent.charged - prompt
        if tokens_left <= 0:
            raise LimitReached("model_tokens", self.session.max_model_tokens)
        left = self._seconds_left()
        request = Request(
            model=self.model_name,
            messages=tuple(messages),
            tools=tools.schemas(self.session.mode),
            max_output_tokens=min(self.max_output, tokens_left),
            must_call=True,
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
        return _with_calls(reply, request)

    def _seconds_left(self) -> float:
        return self.session.max_seconds - (timezone.now() - self.session.opened_at).total_seconds()

    def _count(self, usage: Usage, calls: int, started: float) -> None:
        self.last, self.spent = usage, self.spent + usage
        sessions.count_model_calls(self.session, usage, calls, round((time.perf_counter() - started) * 1_000))


def _with_calls(reply: Reply, request: Request) -> Reply:
    """The reply with its complete calls. If it has no calls, those that the model wrote as text are taken."""
    is_cut = reply.stop == "length"
    if is_cut:
        reply = replace(reply, tool_calls=tuple(call for call in reply.tool_calls if call.arguments is not None))
    if reply.tool_calls:
        return reply
    written = calls_in(reply.text, {tool.name for tool in request.tools}, is_cut=is_cut)
    return replace(reply, text="", tool_calls=tool_calls(written, request)) if written else reply


def _estimated(messages: Sequence[Message], reply: Reply) -> Usage:
    """An estimate of a call's tokens. It is needed for servers that do not report the tokens, so that the session's
    limit also applies there."""
    return Usage(prompt=_prompt_tokens(messages), completion=tokens.count(reply.text + _written(reply.tool_calls)))


def _prompt_tokens(messages: Sequence[Message]) -> int:
    return sum(tokens.count(message.text + _written(message.tool_calls)) for message in messages)


def _written(calls: Sequence[ToolCall]) -> str:
    return json.dumps([[call.id, call.name, call.arguments] for call in calls], default=str) if calls else ""
