"""What refinement asks of a language model, whoever serves it.

One protocol: `Model.complete(request) -> Reply`. Adapters translate it to a provider's wire format; they
raise only the errors below, whose messages carry neither content nor credentials (30-refinement, Models).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic_core import from_json

from config.errors import MODEL, USAGE, DomainError


class ModelError(DomainError):
    """A model call that gave no usable reply.

    `usage` is what it cost all the same (tokens), if the server said; `calls` is how many HTTP calls were made
    for it, retries included (0: none was). `status` is the server's, 0 where it gave none; `said` its own words, where
    the request allows that they are kept.
    """

    code = "model_error"
    exit_code = MODEL

    def __init__(
        self, message: str, usage: Usage | None = None, calls: int = 0, *, status: int = 0, said: str = ""
    ) -> None:
        super().__init__(message)
        self.usage = usage or Usage()
        self.calls = calls
        self.status, self.said = status, said


class ModelUnavailable(ModelError):
    """The server could not be reached, timed out, cut the connection, or kept answering 429 or 5xx."""

    code = "model_unavailable"


class ModelTimedOut(ModelUnavailable):
    """The server did not answer within `Request.seconds`."""


class ModelRefused(ModelError):
    """The server understood and said no: 401, 403, 404 or another 4xx that a retry would not change."""

    code = "model_refused"


class ModelReplyInvalid(ModelError):
    """The server answered, but not in the form its protocol promises."""

    code = "model_reply_invalid"


class ModelNotConfigured(ModelError):
    """Unknown provider, or its API key or address is not set. Found before any call is made."""

    code = "model_not_configured"
    exit_code = USAGE


@dataclass(frozen=True, slots=True, repr=False)
class ToolCall:
    """One call a model asks for. `arguments` is None when what it sent was not a JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool a model may call: `schema` is the JSON Schema of its arguments (an object)."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """One turn of a conversation.

    `role` system: instructions; user: text; assistant: text and the tool calls it asked for; tool: the answer
    to the call `tool_call_id`, with `failed` set when the call changed nothing because it was refused.
    `stable` marks the end of a prefix that stays byte-identical from call to call, so that a provider's prompt
    cache can serve it.
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    failed: bool = False
    stable: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call as the provider counted them; `cached` is the part of `prompt` its cache served."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.prompt + other.prompt, self.cached + other.cached, self.completion + other.completion)

    @property
    def total(self) -> int:
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True, repr=False)
class LongText:
    """A text too long to hold, sent piece by piece in the place of `mark`, which is some message's whole text.

    `pieces` are its bytes, UTF-8 or not, from the start each time it is called; `size` is how many there are.
    """

    mark: str
    size: int
    pieces: Callable[[], Iterable[bytes]]


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """One call. `model` is the provider's own name for the model; `seconds` bounds the call, retries included.

    `is_cut_short`: they are fewer than a call is given; that nobody answered within them says nothing of the server.
    `waits`: until a provider that everybody leaves alone is called again, as long as there is time; a call that does
    not is made whatever others met, and tells nobody what it met. `quotes`: what the server says of a call that failed
    is kept; it may repeat what was sent. `counts`: a reply without the tokens that its protocol promises is none.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_output_tokens: int = 4096
    temperature: float | None = None
    seconds: float = 120.0
    is_cut_short: bool = False
    retries: int = 3
    waits: bool = True
    quotes: bool = False
    counts: bool = True
    long: LongText | None = None


StopReason = Literal["tool_calls", "end", "length", "other"]


@dataclass(frozen=True, slots=True, repr=False)
class Reply:
    """What the model said: free text, tool calls in order (possibly none), usage, and why it stopped.

    `calls` is how many HTTP calls it took, retries included: a storm of retries shows in the figures.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    stop: StopReason = "end"
    calls: int = 1


class Model(Protocol):
    """Anything that can answer a request. Raises `ModelError` and nothing else."""

    def complete(self, request: Request) -> Reply: ...


# --- what adapters owe the types above ------------------------------------------------------------------------


def json_value(text: bytes | str) -> Any:
    """Parsed JSON, or None. Stricter than `json`: no NaN, no half surrogate pairs, bounded depth and digits."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return None


def arguments_of(value: Any) -> dict[str, Any] | None:
    """A tool call's arguments, sent as an object or as its text; None if they are not a JSON object."""
    if isinstance(value, str):
        value = json_value(value)
    if not isinstance(value, dict):
        return None
    try:
        # 1e999 is read as infinity, which cannot be written back when the conversation is sent again.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value


def tool_calls(asked: Iterable[tuple[str | None, str, Any]], request: Request) -> tuple[ToolCall, ...]:
    """Tool calls in order, from (id, name, arguments).

    Every id is unique in the conversation. A call that came without one, or with one that is taken, gets an id made
    from its place, the same every time.
    """
    taken = {call.id for message in request.messages for call in message.tool_calls}
    calls = []
    for place, (given, name, arguments) in enumerate(asked):
        own = given if given and given not in taken else _free_id(f"call_{len(request.messages)}_{place}", taken)
        taken.add(own)
        calls.append(ToolCall(own, name, arguments_of(arguments)))
    return tuple(calls)


def _free_id(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    return wanted


def tool_name(name: str) -> str:
    """A name that a provider accepts in a conversation's history, whatever the model called its tool."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def reply(
    text: str,
    calls: tuple[ToolCall, ...],
    reason: str | None,
    reasons: Mapping[str, StopReason],
    usage: Usage,
    made: int,
) -> Reply:
    """A reply whose stop reason agrees with it: servers are found to say "stop" beside tool calls."""
    stop = reasons.get(reason or "", "other")
    if calls and stop != "length":
        stop = "tool_calls"
    elif not calls and stop == "tool_calls":
        stop = "other"
    return Reply(text, calls, usage, stop, made)
