"""`gc`: a model looks for patterns in an agent's log. Then the log is trimmed to its newest entries.

`gc` makes one model call for each agent, without tools and without a retry. The report about a memory file is printed,
because the caller can read the file. The report about a silo is content, so it is stored sealed. It is printed only
with the agent's key or under a grant.
"""

import secrets
from collections.abc import Callable
from typing import NamedTuple, Protocol

from django.conf import settings
from django.utils import timezone

from audit import redactions
from audit.trail import Actor
from config.errors import FAILED, MODEL, USAGE, DomainError
from memory.access import authority
from memory.errors import FileFault, FileOutsideRoots, MemoryDisabled
from memory.models import Agent
from memory.policy import switches
from memory.run_log.log_file import CHUNK
from memory.writing import edits
from refinement import allowance, gc_reports
from refinement.gc_logs import Log, Text, log_of
from refinement.llm import base, catalog
from refinement.llm.base import LongText, Message, ModelError, ModelNotConfigured, NoModel
from refinement.models import GcReport
from refinement.providers import require_same_model

TEMPERATURE, MAX_TOKENS = 0.3, 4_096
_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}

# HTTP status → class of the error. The class is `server` for other statuses and for a failed connection, and `timeout`
# if no answer comes in time. The exit code is 1 for the class `bad_request`, and 3 for every other class.
ERROR_CLASSES: dict[str, dict[int, str]] = {
    "anthropic": {400: "bad_request", 401: "auth", 429: "rate_limit", 529: "overloaded"},
    "openai": {400: "bad_request", 401: "auth", 403: "auth", 404: "bad_request", 429: "rate_limit"},
    "ollama": {400: "bad_request", 404: "bad_request"},
}
_PROVIDERS = ", ".join(ERROR_CLASSES)


class GcFailed(DomainError):
    """The log of one agent could not be processed. Nothing was trimmed."""

    code = "gc_failed"

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Output(Protocol):
    """The object that prints the results and warnings of `gc`."""

    def tell(self, text: str) -> None: ...

    def warn(self, line: str) -> None: ...

    def flush(self) -> None:
        """Write all results that are still in a buffer. Raises OSError if this fails."""


class Options(NamedTuple):
    """How `gc` runs.

    `may_choose_model` says whether the content of an agent's silo may be sent to a model other than the agent's own.
    `may_print` says whether a report about a silo may be printed. The last argument of this function is the report's
    number.
    """

    actor: Actor
    dry_run: bool = False
    model: str = ""
    may_choose_model: Callable[[Agent], bool] = lambda _: False
    may_print: Callable[[Agent, Log, int], bool] = lambda *_: False


def collect(agent: Agent, name: str, options: Options, output: Output) -> None:
    """Analyse and trim the log of one agent. The output uses `name` for the agent. Raises GcFailed, Erased."""
    agent = Agent.objects.select_related("tenant").get(pk=agent.pk)  # it may have changed while others were processed
    try:
        authority.require(agent)
        switches.require_on(agent)
        edits.require_key(agent)
        _collect(agent, name, options, output)
    except MemoryDisabled:  # before or during the model call
        output.warn(f'Warning: agent "{name}" does not have memory enabled. Skipping.')
    except FileFault as fault:
        raise GcFailed(str(fault), USAGE if isinstance(fault, FileOutsideRoots) else FAILED) from None


def _collect(agent: Agent, name: str, options: Options, output: Output) -> None:
    agent_log = log_of(agent, options.actor)
    if agent_log.is_empty:
        output.tell(f'No memory entries for agent "{name}". Nothing to do.')
        return
    output.tell(f"Agent: {name}")
    output.tell(f"Entries: {agent_log.entries}")
    model, entries = options.model or agent.model, agent_log.entries
    _require_model(agent, agent_log, model, options)
    text = agent_log.text(agent.context_tokens)
    if text.left_out:
        oldest = f"The oldest {text.left_out} of {entries} entries"
        output.warn(f"{oldest} do not fit into {agent.context_tokens} tokens and are not analysed.")
    analysis = _analysis(agent, agent_log, model, text, options)
    left_out, since = text.left_out, agent_log.seq
    report = gc_reports.keep(agent, analysis, model=model, entries=entries, left_out=left_out, since=since)
    output.tell("--- Analysis ---")
    output.tell(_printable(agent, agent_log, report, analysis, options))
    try:
        output.flush()
    except OSError as failure:
        problem = f"the analysis could not be written ({failure.strerror}); nothing was trimmed"
        raise GcFailed(problem, FAILED) from None
    if options.dry_run:
        output.tell("Dry run: no entries trimmed.")
    else:
        _trim(agent, agent_log, output)


# --- the model


def _require_model(agent: Agent, agent_log: Log, model: str, options: Options) -> None:
    """Check the model before the call. Raises GcFailed."""
    provider, slash, name = model.partition("/")
    if not model:
        raise GcFailed(str(NoModel()), MODEL)
    if not slash or not model.isprintable():
        raise GcFailed(f'invalid model format "{model}": expected provider/model-name', FAILED)
    if not provider or not name:
        missing = "model name" if provider else "provider"
        raise GcFailed(f'invalid model format "{model}": empty {missing}', FAILED)
    if provider == "builtin":
        raise GcFailed(f"{model} cannot analyse a log: set a model of {_PROVIDERS} (or use --model)", MODEL)
    if provider not in ERROR_CLASSES:
        raise GcFailed(f'unsupported provider "{provider}": supported providers are {_PROVIDERS}', FAILED)
    if (key := _KEYS.get(provider)) and not getattr(settings, key):
        raise GcFailed(f'API key for provider "{provider}" is not configured (set {key})', MODEL)
    _require_key(agent, agent_log, options)


def _require_key(agent: Agent, agent_log: Log, options: Options) -> None:
    is_private = not agent_log.is_file or not agent.model  # no model was named since a claim
    if options.model and is_private and not options.may_choose_model(agent):
        raise GcFailed("--model sends content to another model: set PALIMPSEST_AGENT_KEY to the agent's key", USAGE)


def _require_same(agent: Agent, agent_log: Log, options: Options) -> None:
    """Raise an error if the log may not be sent any more. Making its text takes time."""
    now = require_same_model(agent)
    _require_key(now, agent_log, options)
    switches.require_on(now)
    edits.require_key(now)
    if switches.closed(now) - switches.closed(agent):
        raise GcFailed("a category was switched off meanwhile; nothing was sent to the model", FAILED)
    if agent_log.seq is not None and redactions.last(now) > agent_log.seq:
        raise GcFailed("content was redacted meanwhile; nothing was sent to the model", FAILED)


def _analysis(agent: Agent, agent_log: Log, model: str, text: Text, options: Options) -> str:
    quotes = agent_log.is_file
    try:
        opened, name = catalog.open_model(model)
        request = _request(name, text, quotes=quotes)
        _require_same(agent, agent_log, options)
        reply = opened.complete(request)
        allowance.add(agent.tenant_id, model, reply.usage.charged, timezone.now())
        return reply.text
    except ModelNotConfigured as problem:
        raise GcFailed(str(problem), MODEL) from None
    except ModelError as failure:
        allowance.add(agent.tenant_id, model, failure.usage.charged, timezone.now())
        known = ERROR_CLASSES[model.partition("/")[0]]
        kind = "timeout" if isinstance(failure, base.ModelTimedOut) else known.get(failure.status, "server")
        exit_code = FAILED if kind == "bad_request" else MODEL
        raise GcFailed(f"{kind}: {_quoted(failure) if quotes else failure}", exit_code) from None


def _request(name: str, text: Text, *, quotes: bool) -> base.Request:
    long = LongText(secrets.token_hex(16), text.size, text.pieces) if text.size > CHUNK else None
    # Django's template engine is not used, because it loads the template tags of every app (11 MB).
    system = (settings.TEMPLATES_DIR / "refinement" / "gc.txt").read_text("utf-8").strip()
    user = long.mark if long else b"".join(text.pieces()).decode("utf-8", "replace")
    return base.Request(
        model=name,
        messages=(Message("system", system), Message("user", user)),
        max_output_tokens=MAX_TOKENS,
        temperature=TEMPERATURE,
        seconds=settings.MODEL_CALL_SECONDS,
        retries=0,
        quotes=quotes,
        long=long,
    )


def _quoted(failure: ModelError) -> str:
    """The provider's own error message. It may repeat content, so it is printed only for memory files."""
    if isinstance(failure, base.ModelReplyInvalid):
        return failure.server_message or f"failed to parse response: {failure}"
    return failure.server_message if failure.status or failure.server_message else str(failure)


# --- the result


def _printable(agent: Agent, agent_log: Log, report: GcReport, analysis: str, options: Options) -> str:
    if report.withdrawn_at is not None:
        return "Withdrawn: content was redacted during the analysis, and the report may quote it."
    if agent_log.is_file or options.may_print(agent, agent_log, report.number):
        return analysis
    return f"Only the agent can read it: GET /api/v1/gc-reports/{report.number}"


def _trim(agent: Agent, agent_log: Log, output: Output) -> None:
    keep = agent.last_n or agent.max_entries
    if not keep:
        output.tell("No trim target configured (last_n and max_entries are both 0). Skipping trim.")
        return
    try:
        removed, kept = agent_log.trim(keep)
    except (FileFault, MemoryDisabled) as fault:
        output.warn(f"Error: {fault}")
        raise GcFailed(str(fault), FAILED) from None
    if removed:
        output.tell(f"Trimmed: {removed} entries removed, {kept} entries kept.")
    else:
        output.tell(f"No trimming needed: {kept} entries within limit ({keep}).")
