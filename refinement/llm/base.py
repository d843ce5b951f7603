"""The interface to a language model: `Model.complete(request) -> Reply`, whichever provider serves it.

An adapter translates a request to the format of its provider. It raises only the errors below, and their messages
contain neither content nor credentials.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic_core import from_json

from config.errors import MODEL, USAGE, DomainError


class ModelError(DomainError):
    """A model call without a usable reply.

    `usage`: the tokens it cost, if the server reports them. `calls`: the HTTP requests, retries included. `status`: the
    HTTP status, 0 without a response. `server_message`: the server's own message, if the request allows it.
    """

    code = "model_error"
    exit_code = MODEL

    def __init__(self, message: str, usage: Usage | None = None, *, status: int = 0, server_message: str = "") -> None:
        super().__init__(message)
        self.usage = usage or Usage()
        self.calls = 0
        self.status, self.server_message = status, server_message


class ModelUnavailable(ModelError):
    """The server could not be reached, timed out, closed the connection, or answered 408, 429 or 5xx.

    `retry_after`: the seconds after which it allows a retry. `is_unreachable`: there was no response at all.
    """

    code = "model_unavailable"
    retry_after: float | None = None
    is_unreachable = False


class ModelTimedOut(ModelUnavailable):
    """The server did not answer within `Request.seconds`."""


class ModelRefused(ModelError):
    """The server refused the request: 401, 403, 404 or another 4xx that a retry would not change."""

    code = "model_refused"


class ModelReplyInvalid(ModelError):
    """The server's reply does not follow its protocol."""

    code = "model_reply_invalid"


class ModelNotConfigured(ModelError):
    """The provider is unknown, or its API key or address is not set. Raised before any call."""

    code = "model_not_configured"
    exit_code = USAGE


@dataclass(frozen=True, slots=True, repr=False)
class ToolCall:
    """One call that a model requests. `arguments` is None if the model did not send a JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call. `schema` is the JSON Schema of its arguments (an object)."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """One message of a conversation.

    system: instructions. user: text. assistant: text and tool calls. tool: the result of the call `tool_call_id`, with
    `failed` if it was refused. `stable` ends a prefix that is the same in every call, which a prompt cache can serve.
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    failed: bool = False
    stable: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call, as the provider counted them. `cached` is the part of `prompt` that its cache served."""

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
    """A text too long for memory. It is sent in pieces in place of `mark`, which is the whole text of one message.

    Each call of `pieces` returns its bytes from the start. Bytes that are not UTF-8 are replaced. `size` counts them.
    """

    mark: str
    size: int
    pieces: Callable[[], Iterable[bytes]]


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """One call. `model` is the provider's name for the model; `seconds` limits the call, retries included.

    `is_cut_short`: `seconds` is less than a call usually gets, so a timeout does not count as a failure of the server.
    `is_shared`: wait while the provider is closed for all processes, and share the result with them.
    `quotes`: keep the server's error message, which may repeat content.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_output_tokens: int = 4096
    temperature: float | None = None
    seconds: float = 120.0
    is_cut_short: bool = False
    retries: int = 3
    is_shared: bool = True
    quotes: bool = False
    long: LongText | None = None


StopReason = Literal["tool_calls", "end", "length", "other"]


@dataclass(frozen=True, slots=True, repr=False)
class Reply:
    """A model's reply: text, tool calls in order, usage, and why it stopped. `calls`: HTTP requests, with retries."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    stop: StopReason = "end"
    calls: int = 1


class Model(Protocol):
    """Answers a request. Raises `ModelError` and nothing else."""

    def complete(self, request: Request) -> Reply: ...


# --- what every adapter must ensure


def json_value(text: bytes | str) -> Any:
    """Parsed JSON, or None. Stricter than `json`: no NaN, no lone surrogates, limited depth and digits."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return None


def tool_calls(wanted: Iterable[tuple[str | None, str, Any]], request: Request) -> tuple[ToolCall, ...]:
    """Tool calls in order, from (id, name, arguments).

    Every id is unique in the conversation. A missing or repeated id is replaced by one made from its position.
    """
    taken = {call.id for message in request.messages for call in message.tool_calls}
    calls = []
    for position, (id, name, arguments) in enumerate(wanted):
        if not id or id in taken:
            id = f"call_{len(request.messages)}_{position}"
        while id in taken:
            id += "_"
        taken.add(id)
        calls.append(ToolCall(id, name, arguments_of(arguments)))
    return tuple(calls)


def arguments_of(value: Any) -> dict[str, Any] | None:
    """A tool call's arguments, sent as an object or as its text; None if they are not a JSON object."""
    if isinstance(value, str):
        value = json_value(value)
    if not isinstance(value, dict):
        return None
    try:
        json.dumps(value, allow_nan=False)  # 1e999 is read as infinity, and could not be sent back
    except (ValueError, RecursionError):
        return None
    return value
