"""`gc`: a model looks at an agent's log for patterns, and the newest entries alone are left of it (seed 001).

One call an agent, without tools and without a second try. A memory file belongs to whoever can read it, and so does
what a model says of it; of a silo it is content, shown to the agent or under a grant alone, and else kept sealed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from django.conf import settings
from django.utils import timezone

from audit.trail import Actor
from config.errors import DomainError
from memory.errors import FileElsewhere, FileFault, MemoryDisabled
from memory.models import Agent
from memory.run_log.log_file import CHUNK
from memory.writing import edits
from refinement import allowance, gc_reports
from refinement.gc_logs import Log, Text, log_of
from refinement.gc_prompt import PROMPT
from refinement.llm import catalog
from refinement.llm.base import (
    LongText,
    Message,
    ModelError,
    ModelNotConfigured,
    ModelReplyInvalid,
    ModelTimedOut,
    Request,
)

FAILED, CONFIGURATION, MODEL = 1, 2, 3  # exit codes (seed 001, 3.6)
TEMPERATURE, MOST_TOKENS = 0.3, 4_096
_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}

# The class of an error by HTTP status. Every other status, and a failed connection, is `server`; no answer in time is
# `timeout`. `bad_request` is exit code 1, all others are 3.
ERROR_CLASSES: dict[str, dict[int, str]] = {
    "anthropic": {400: "bad_request", 401: "auth", 429: "rate_limit", 529: "overloaded"},
    "openai": {400: "bad_request", 401: "auth", 403: "auth", 404: "bad_request", 429: "rate_limit"},
    "ollama": {400: "bad_request", 404: "bad_request"},
}


class GcFailed(DomainError):
    """One agent's log was not collected; `exit` is the command's exit code. Nothing was trimmed."""

    code = "gc_failed"

    def __init__(self, message: str, exit: int) -> None:
        super().__init__(message)
        self.exit = exit


class Output(Protocol):
    """Where results and remarks go."""

    def tell(self, text: str) -> None: ...

    def warn(self, line: str) -> None: ...

    def flush(self) -> None:
        """Raises OSError if what was told could not be written out."""


_OFF = 'Warning: agent "{}" does not have memory enabled. Skipping.'


@dataclass(frozen=True, slots=True)
class Asked:
    """How an agent's log is to be collected.

    `may_choose`: whether another model may be sent this silo's content. `may_read`: called with a silo's log and the
    report's number before the report is shown, whether it may be.
    """

    actor: Actor
    dry_run: bool = False
    model: str = ""
    may_choose: Callable[[Agent], bool] = lambda _: False
    may_read: Callable[[Agent, Log, int], bool] = lambda *_: False


def collect(agent: Agent, name: str, asked: Asked, to: Output) -> None:
    """The flow of section 3.3. `name` is how the agent is called in what is told. Raises GcFailed, Erased."""
    agent = Agent.objects.select_related("tenant").get(pk=agent.pk)  # as it stands: others were collected before it
    if not agent.memory_enabled:
        to.warn(_OFF.format(name))
        return
    edits.require_key(agent)
    logged = _log(agent, asked.actor)
    if logged.is_empty:
        to.tell(f'No memory entries for agent "{name}". Nothing to do.')
        return
    to.tell(f"Agent: {name}")
    to.tell(f"Entries: {logged.entries}")
    model = asked.model or agent.model
    _require_model(agent, logged, model, asked)
    text = logged.text(agent.context_tokens)
    if text.left_out:
        room = f"{agent.context_tokens} tokens"
        to.warn(f"The oldest {text.left_out} of {logged.entries} entries do not fit into {room} and are not analysed.")
    said = _analysis(agent, model, text, quotes=logged.is_file)
    try:
        _tell_analysis(agent, logged, model, said, text, asked, to)
    except MemoryDisabled:  # while the model was at it
        to.warn(_OFF.format(name))
        return
    if asked.dry_run:
        to.tell("Dry run: no entries trimmed.")
        return
    _trim(agent, logged, to)


def _log(agent: Agent, actor: Actor) -> Log:
    try:
        return log_of(agent, actor)
    except FileFault as fault:
        raise GcFailed(str(fault), CONFIGURATION if isinstance(fault, FileElsewhere) else FAILED) from None


# --- the model


def _require_model(agent: Agent, logged: Log, model: str, asked: Asked) -> None:
    """That it has the form of one, can analyse, may be sent this log, and has its key."""
    provider, slash, name = model.partition("/")
    if not slash or not model.isprintable():
        raise GcFailed(f'invalid model format "{model}": expected provider/model-name', FAILED)
    if not provider or not name:
        missing = "empty provider" if not provider else "empty model name"
        raise GcFailed(f'invalid model format "{model}": {missing}', FAILED)
    if provider not in catalog.PROVIDERS:
        raise GcFailed(f'unsupported provider "{provider}": supported providers are anthropic, openai, ollama', FAILED)
    if provider == "builtin":
        raise GcFailed(
            f"{model} cannot analyse a log: models of openai, anthropic and ollama can (--model, or the agent's own)",
            MODEL,
        )
    key = _KEYS.get(provider)
    if key and not getattr(settings, key):
        raise GcFailed(f'API key for provider "{provider}" is not configured (set {key})', MODEL)
    if asked.model and not logged.is_file and not asked.may_choose(agent):
        raise GcFailed(
            "--model sends a silo's content to another model: set PALIMPSEST_AGENT_KEY to the agent's key",
            CONFIGURATION,
        )


def _analysis(agent: Agent, model: str, text: Text, *, quotes: bool) -> str:
    try:
        opened, name = catalog.open_model(model)
        reply = opened.complete(_request(name, text, quotes=quotes))
        allowance.add(agent.tenant_id, reply.usage.total, timezone.now())
        return reply.text
    except ModelNotConfigured as problem:
        raise GcFailed(str(problem), MODEL) from None
    except ModelError as failure:
        allowance.add(agent.tenant_id, failure.usage.total, timezone.now())
        kind = _error_class(failure, model.partition("/")[0])
        exit = FAILED if kind == "bad_request" else MODEL
        raise GcFailed(f"{kind}: {_quoted(failure) if quotes else failure}", exit) from None
    except FileFault as fault:
        raise GcFailed(str(fault), FAILED) from None


def _request(name: str, text: Text, *, quotes: bool) -> Request:
    long = None
    if text.size > CHUNK:
        long = LongText(secrets.token_hex(16), text.size, text.pieces)
    user = long.mark if long else b"".join(text.pieces()).decode("utf-8", "replace")
    return Request(
        model=name,
        messages=(Message("system", PROMPT), Message("user", user)),
        max_output_tokens=MOST_TOKENS,
        temperature=TEMPERATURE,
        seconds=settings.MODEL_CALL_SECONDS,
        retries=0,
        waits=False,
        quotes=quotes,
        counts=False,
        long=long,
    )


def _error_class(failure: ModelError, provider: str) -> str:
    if isinstance(failure, ModelTimedOut):
        return "timeout"
    return ERROR_CLASSES[provider].get(failure.status, "server")


def _quoted(failure: ModelError) -> str:
    """What the provider says of its failure, which may repeat what it was sent."""
    if isinstance(failure, ModelReplyInvalid):
        return failure.said or f"failed to parse response: {failure}"
    return failure.said if failure.status or failure.said else str(failure)


# --- what comes of it


def _tell_analysis(agent: Agent, logged: Log, model: str, said: str, text: Text, asked: Asked, to: Output) -> None:
    report = gc_reports.keep(agent, said, model=model, entries=logged.entries, left_out=text.left_out, since=logged.seq)
    to.tell("--- Analysis ---")
    if report.withdrawn_at is not None:
        to.tell("Withdrawn: what it may quote was redacted meanwhile.")
    elif logged.is_file or asked.may_read(agent, logged, report.number):
        to.tell(said)
    else:
        to.tell(f"Kept for its agent alone: GET /api/v1/gc-reports/{report.number}")
    try:
        to.flush()
    except OSError as failure:
        lost = f"the analysis could not be written out ({failure.strerror}); nothing was trimmed"
        raise GcFailed(lost, FAILED) from None


def _trim(agent: Agent, logged: Log, to: Output) -> None:
    keep = agent.last_n or agent.max_entries
    if not keep:
        to.tell("No trim target configured (last_n and max_entries are both 0). Skipping trim.")
        return
    try:
        removed, kept = logged.trim(keep)
    except FileFault as fault:
        to.warn(f"Error: {fault}")
        raise GcFailed(str(fault), FAILED) from None
    if removed:
        to.tell(f"Trimmed: {removed} entries removed, {kept} entries kept.")
    else:
        to.tell(f"No trimming needed: {kept} entries within limit ({keep}).")
