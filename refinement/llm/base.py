"""The interface to a language model: `Model.complete(request) -> Reply`. It is the same for all providers.

An adapter translates a request to the format of its provider. It raises only the errors below. The messages of these
errors contain neither content nor credentials.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic_core import from_json

from config.errors import MODEL, USAGE, DomainError

MAX_ARGUMENTS = 100_000  # characters of one call, as JSON
NO_SUCH_MODEL = "no such model"  # in the message of an error


class ModelError(DomainError):
    """A model call has failed, or its reply is not usable.

    `usage` has the tokens of the call, if the server reports them. `calls` is the number of HTTP requests, with
    retries. `status` is the HTTP status, or 0 without a response. `server_message` is a more exact reason. The server's
    own error message is kept here only if `Request.quotes` is true.
    """

    code = "model_error"
    exit_code = MODEL

    def __init__(self, message: str, usage: Usage | None = None, *, status: int = 0, server_message: str = "") -> None:
        super().__init__(message)
        self.usage = usage or Usage()
        self.calls = 0
        self.status, self.server_message = status, server_message

    @property
    def is_configuration(self) -> bool:
        """Whether the operator or the agent's settings must correct a key, an address or a name."""
        return isinstance(self, ModelNotConfigured) or self.status in (401, 403, 404)


class ModelUnavailable(ModelError):
    """The server was unreachable, closed the connection, did not answer in time, or sent the HTTP status 408, 429 or
    5xx.

    `retry_after` is the number of seconds after which the server allows a retry. `is_unreachable` is true if the
    connection failed.
    """

    code = "model_unavailable"
    retry_after: float | None = None
    is_unreachable = False


class ModelTimedOut(ModelUnavailable):
    """The server did not answer within `Request.seconds`."""


class ModelRefused(ModelError):
    """The server refused the request, and a retry would not help. The HTTP status was below 500 (for example 404), but
    not 408 or 429."""

    code = "model_refused"


class ContextOverflow(ModelRefused):
    """The request is larger than the model's context. `limit` is the size of the context in tokens, or 0 if the server
    does not name it."""

    code = "context_overflow"
    limit = 0


class ModelReplyInvalid(ModelError):
    """The server's reply does not follow its protocol."""

    code = "model_reply_invalid"


class ModelNotConfigured(ModelError):
    """The provider is unknown, or its API key or address is not set. Raised before any call."""

    code = "model_not_configured"
    exit_code = USAGE
    field = "model"  # of the request that has the wrong name


class NoModel(ModelNotConfigured):
    """After a claim, no model is called until the agent's side has named one."""

    def __init__(self) -> None:
        super().__init__("No model is set. The agent's side must set one: PATCH /api/v1/agent, or accept a proposal.")


@dataclass(frozen=True, slots=True, repr=False)
class ToolCall:
    """One tool call that a model requests. `arguments` is None if the model did not send a JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call. `schema` is the JSON Schema of the object with the tool's arguments."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """One message of a conversation.

    A system message has instructions. A user message has text. An assistant message has text and tool calls. A tool
    message has the result of the tool call `tool_call_id`. `failed` is true if this call was refused. `stable` is true
    if all messages up to this one are the same in every model call. Then a prompt cache can serve them.
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    failed: bool = False
    stable: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call, counted by the provider. `cached` is the part of `prompt` that the provider's cache
    served."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.prompt + other.prompt, self.cached + other.cached, self.completion + other.completion)

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    @property
    def charged(self) -> int:
        """The tokens that count for limits and allowances. A cached token counts one tenth."""
        cached = min(self.cached, self.prompt)
        return self.total - cached + -(-cached // 10)


@dataclass(frozen=True, slots=True, repr=False)
class LongText:
    """A text that is too long to keep in memory. One message contains `mark` instead of this text. In the HTTP request,
    the text replaces the mark, in pieces.

    Each call of `pieces` returns all bytes of the text. `size` is the number of these bytes. Bytes that are not UTF-8
    are replaced.
    """

    mark: str
    size: int
    pieces: Callable[[], Iterable[bytes]]


MAX_REPLY_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """One call. `model` is the provider's name for the model. `seconds` is the time limit of the call, including
    retries.

    `is_cut_short` is true if `seconds` is less than the usual limit. Then a timeout is not a failure of the server.
    If `quotes` is true, errors include the server's own message. This message may repeat content. If `must_call` is
    true, the reply must have a tool call, if the server supports that. `reply_bytes` is the size limit of a reply.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    max_output_tokens: int = 4_096
    temperature: float | None = None
    seconds: float = 120.0
    is_cut_short: bool = False
    retries: int = 3
    quotes: bool = False
    must_call: bool = False
    long: LongText | None = None
    reply_bytes: int = MAX_REPLY_BYTES


StopReason = Literal["tool_calls", "end", "length", "other"]


@dataclass(frozen=True, slots=True, repr=False)
class Reply:
    """A model's reply. `stop` is the reason why the model stopped. `calls` is the number of HTTP requests, with
    retries."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    stop: StopReason = "end"
    calls: int = 1


class Model(Protocol):
    """Answers a request. Raises only `ModelError`."""

    def complete(self, request: Request) -> Reply: ...


# --- what every adapter must ensure


def json_value(text: bytes | str) -> Any:
    """The parsed JSON, or None if the text is not valid. This is stricter than Python's `json`: NaN and lone surrogates
    are not valid. The depth of nesting is limited, and so is the number of digits."""
    with suppress(ValueError):
        return from_json(text, allow_inf_nan=False)
    return None


def tool_calls(wanted: Iterable[tuple[str | None, str, Any]], request: Request) -> tuple[ToolCall, ...]:
    """The tool calls of a reply, in order. `wanted` has the id, the name and the arguments of each call.

    Every id is unique in the conversation. If a call has no id, or the same id as an earlier call, it gets a new id.
    The new id is made from its position.
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
    """The arguments of a tool call. `value` is an object, or the JSON text of an object. The result is None for any
    other value, and for a very large object: all arguments are sent back in later requests."""
    if isinstance(value, str):
        value = json_value(value)
    if not isinstance(value, dict):
        return None
    with suppress(ValueError, RecursionError):
        text = json.dumps(value, allow_nan=False)  # 1e999 is read as infinity, and could not be sent back
        return value if len(text) <= MAX_ARGUMENTS else None
    return None
