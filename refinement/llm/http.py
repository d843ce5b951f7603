"""The HTTP transport of all protocols. A protocol is a subclass of `HttpModel` and translates requests and replies.

`Request.seconds` limits a call as a whole: connecting, sending, waiting, reading and every retry. Only the DNS lookup
has its own time limits. A request is retried after a failed connection, a timeout, and the status 408, 429 or 5xx, but
at most `Request.retries` times. The next attempt waits as long as `Retry-After` says. If the call has less time left,
it fails at once. After any other 4xx status or an invalid reply, there is no retry.
"""

from __future__ import annotations

import codecs
import http.client
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import httpx
import stamina
import structlog
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from django.utils.http import parse_http_date_safe
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from refinement.llm.base import (
    NO_SUCH_MODEL,
    ContextOverflow,
    LongText,
    ModelError,
    ModelNotConfigured,
    ModelRefused,
    ModelReplyInvalid,
    ModelTimedOut,
    ModelUnavailable,
    Reply,
    Request,
    StopReason,
    Usage,
    json_value,
    tool_calls,
)
from refinement.llm.connections import client_for, set_deadline
from refinement.providers import Availability

CONNECT_SECONDS = 10.0
MAX_ERROR_BYTES, MAX_ERROR_CHARACTERS = 64 * 1024, 500
PLAIN_OUTPUT_TOKENS = 4_096  # of a reply; every model allows so many
BYTES_PER_TOKEN = 4  # an estimate
# How servers say that a request is larger than the model's context. The groups are the size of the context.
_OVERFLOW = re.compile(
    r"(?:maximum context|context[ _](?:length|size|window)|n_ctx)\D{0,40}(\d{3,8})?"
    r"|prompt is too long(?:\D{0,20}\d+ tokens > (\d{3,8}))?|input length exceeds",
    re.IGNORECASE,
)
RECHECK_SECONDS = 5.0  # while the provider is closed
PAUSES = {"wait_initial": 0.5, "wait_max": 8.0, "wait_jitter": 0.5}  # between retries, without a Retry-After

log = structlog.get_logger("palimpsest.models")


def _log_retry(details: stamina.instrumentation.RetryDetails) -> None:
    log.info("model call is tried again", attempt=details.retry_num + 1, wait_seconds=round(details.wait_for, 1))


stamina.instrumentation.set_on_retry_hooks([_log_retry])  # instead of stamina's own hook, which quotes the cause


# --- a reply

Count = Annotated[int, Field(ge=0, le=10**12)]
Part = TypeVar("Part")
# The first wrong item ends a check: a reply can have a million, and each of their errors needs a kilobyte.
Few = Annotated[list[Part], Field(fail_fast=True, max_length=20_000)]


class Wire(BaseModel):
    """The base class for the parts of a reply. Types are checked strictly. Unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


class Cost(Wire):
    """The part of a reply that has the token counts of the call. This part is read even if other parts are invalid."""

    @abstractmethod
    def spent(self) -> Usage:
        """The tokens of the call."""


class Content(NamedTuple):
    """The content of a reply. `calls` has the id, the name and the arguments of each tool call. `stop` is the
    provider's word for the reason why the model stopped."""

    text: str
    calls: Iterable[tuple[str | None, str, Any]]
    stop: str | None


# --- a model


class HttpModel(ABC):
    """A model on an HTTP server. Errors use `who` as the name of the server. `settings` has the names of the settings
    with its key and its address. `answer` is the type of a reply. `cost` is the type of the part of a reply that has
    the token counts."""

    who: ClassVar[str]
    settings: ClassVar[tuple[str, str]]
    path: ClassVar[str]
    cost: ClassVar[type[Cost]]
    answer: ClassVar[type[Cost]]
    stops: ClassVar[Mapping[str, StopReason]]
    what = "model"  # the agent's setting with its name
    is_plain = False  # the server has refused a request with options, so it gets only those that every server knows

    def __init__(self, base_url: str, headers: Mapping[str, str], availability: Availability | None = None) -> None:
        self.base_url = checked_address(base_url, self.who)
        self.headers = {**headers, "Content-Type": "application/json"}
        self.availability = availability

    @abstractmethod
    def body(self, request: Request) -> dict[str, Any]:
        """The request in the provider's format."""

    @abstractmethod
    def read(self, answer: Any) -> Content:
        """The content of a reply of the type `answer`. Raises ModelReplyInvalid."""

    def complete(self, request: Request) -> Reply:
        """Send the request and return the reply. Raises ModelError."""
        if self.is_plain:
            output = min(request.max_output_tokens, PLAIN_OUTPUT_TOKENS)
            request = replace(request, must_call=False, max_output_tokens=output)
        call = Call(self, request)
        try:
            return self._reply(call.response(), request, call)
        except ModelError as error:
            error.calls = call.made
            error.__cause__ = error.__context__ = None  # they refer to the request, which has the key and the prompt
            if not request.must_call or error.status not in (400, 422) or isinstance(error, ContextOverflow):
                raise
        self.is_plain = True
        return self.complete(request)

    def _reply(self, body: bytes, request: Request, call: Call) -> Reply:
        value = json_value(body)
        try:
            answer = self.answer.model_validate(value)
        except ValidationError:
            usage = Usage()
            with suppress(ValidationError):
                usage = self.cost.model_validate(value).spent()
            problem = f"{self.who} sent a reply that does not follow its protocol: check {self.settings[1]}."
            raise ModelReplyInvalid(problem, usage) from None
        content = self.read(answer)
        calls = tool_calls(content.calls, request)
        stop = self.stops.get(content.stop or "", "other")
        if calls and stop != "length":
            stop = "tool_calls"  # some servers say "stop" beside tool calls
        elif not calls and stop == "tool_calls":
            stop = "other"
        return Reply(content.text, calls, answer.spent(), stop, call.made)


def checked_address(base_url: str, who: str) -> str:
    """`base_url` without a slash at the end. Raises `ModelNotConfigured` if the address is not valid. The message of
    this error does not contain the address."""
    address = base_url.strip().rstrip("/")
    match = re.fullmatch(r"https?://([\w.-]+|\[[\da-fA-F:.]+\])(:(?P<port>\d{1,5}))?(/[^\s?#@]*)?", address)
    if match is None or not 0 < int(match["port"] or 1) < 65536:
        raise ModelNotConfigured(f"{who}'s address must be http:// or https:// and a host, without credentials.")
    return address


def checked_key(key: str, who: str) -> str:
    """`key` without white space around it. Raises `ModelNotConfigured` if an HTTP header cannot contain the key."""
    key = key.strip()
    if not re.fullmatch(r"[\x21-\x7e]*", key):
        raise ModelNotConfigured(f"{who}'s API key has characters that cannot be sent.")
    return key


# --- a call


class Call:
    """The state of one call of `HttpModel.complete`. `made` is the number of HTTP requests so far."""

    def __init__(self, model: HttpModel, request: Request) -> None:
        self.model = model
        self.request = request
        self.content = _encoded(model.body(request))
        self.availability = model.availability
        self.is_cut_short = request.is_cut_short
        self.deadline = time.monotonic() + request.seconds
        self.made = 0

    def response(self) -> bytes:
        """The body of a successful response. Raises ModelError."""
        for attempt in stamina.retry_context(self._pause, attempts=self.request.retries + 1, timeout=None, **PAUSES):
            with attempt:
                return self._attempt()
        raise AssertionError("the retry library (stamina) ended without a result")

    def _pause(self, error: Exception) -> float | bool:
        """The wait before the next attempt. A number is the wait in seconds. True means the default wait of stamina.
        False means that there is no next attempt."""
        if not isinstance(error, ModelUnavailable):
            return False
        if error.retry_after is None:
            longest: float = PAUSES["wait_initial"] * 2 ** (self.made - 1) + PAUSES["wait_jitter"]
            return min(longest, PAUSES["wait_max"]) < self._seconds_left()
        return error.retry_after if error.retry_after < self._seconds_left() else False

    def _seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def _attempt(self) -> bytes:
        self._wait_until_available()
        if self._seconds_left() <= 0:
            raise ModelTimedOut(f"No time was left to call {self.model.who}.")
        self.made += 1
        try:
            body = self._exchange()
        except ModelError as error:
            self._report(error)
            raise
        self._report(None)
        return body

    def _wait_until_available(self) -> None:
        while self.availability and (wait := self.availability.wait()):
            if wait >= self._seconds_left():
                until = f" before {timezone.now() + timedelta(seconds=wait):%H:%M:%S} UTC" if wait < 3_600 else " now"
                error = ModelUnavailable(f"{self.model.who} does not respond. It is not called{until}.")
                error.retry_after = wait
                raise error
            time.sleep(min(wait, RECHECK_SECONDS))
            self.is_cut_short = True

    def _report(self, error: ModelError | None) -> None:
        if self.availability is None:
            return
        if not isinstance(error, ModelUnavailable):
            self.availability.answered(is_reply=error is None)
        elif not (self.is_cut_short and isinstance(error, ModelTimedOut)):
            self.availability.failed(error.retry_after, is_unreachable=error.is_unreachable, reason=str(error))

    def _exchange(self) -> bytes:
        set_deadline(self.deadline)
        left = self._seconds_left()
        timeout = httpx.Timeout(left, connect=min(left, CONNECT_SECONDS))
        content = _with_long_text(self.content, self.request.long) if self.request.long else self.content
        model, url = self.model, self.model.base_url + self.model.path
        try:
            client = client_for(model.base_url)
            with client.stream("POST", url, content=content, headers=model.headers, timeout=timeout) as response:
                return self._read(response)
        except httpx.TimeoutException:
            raise ModelTimedOut(f"{model.who} did not answer in time.") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as problem:
            message = f"{model.who} could not be reached, or it closed the connection: check {model.settings[1]}."
            error = ModelUnavailable(message, server_message=_system_error(problem))
            error.is_unreachable = True
            raise error from None

    def _read(self, response: httpx.Response) -> bytes:
        who, status = self.model.who, response.status_code
        if response.is_success:
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                # Compression was not requested, and a small compressed reply can unpack to any size.
                raise ModelReplyInvalid(f"{who} sent a compressed reply, which Palimpsest does not accept.")
            most = self.request.reply_bytes
            body = _first_bytes(response, most)
            if len(body) > most:
                raise ModelReplyInvalid(f"{who} sent more than {filesizeformat(most)}.")
            return body
        content = _first_bytes(response, MAX_ERROR_BYTES)
        message = _error_message(status, content) if self.request.quotes else ""
        start = content[:MAX_ERROR_CHARACTERS].decode("utf-8", "replace")
        if status in (400, 413, 422, 500) and (overflow := _OVERFLOW.search(start)):
            raise self._overflow(status, int(overflow[1] or overflow[2] or 0), message)
        if status not in (408, 429) and status < 500:
            reason = _reason(status, type(self.model))
            raise ModelRefused(f"{who} answered {status}: {reason}.", status=status, server_message=message)
        why = ": too many requests, or the quota is used up" if status == 429 else ""
        error = ModelUnavailable(f"{who} answered {status}{why}.", status=status, server_message=message)
        error.retry_after = retry_after(response.headers.get("Retry-After", ""))
        raise error

    def _overflow(self, status: int, limit: int, message: str) -> ContextOverflow:
        size, output = len(self.content) // BYTES_PER_TOKEN, self.request.max_output_tokens
        context = f"has {limit:,} tokens" if limit else "is smaller"
        error = ContextOverflow(
            f"{self.model.who} answered {status}: the request has about {size:,} tokens and asks for up to {output:,} "
            f"more, but the model's context {context}. Use another model, or lower BATCH_TOKENS or the agent's "
            "context_tokens.",
            status=status,
            server_message=message,
        )
        error.limit = limit
        return error


def _encoded(body: Mapping[str, Any]) -> bytes:
    # Without "replace", a lone surrogate raises an error, and the message of this error quotes the text.
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def _with_long_text(body: bytes, long: LongText) -> Iterator[bytes]:
    """The request's body, in pieces, with the long text instead of `long.mark`. Bytes that are not UTF-8 are
    replaced."""
    before, after = body.split(long.mark.encode())
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    yield before
    for piece in chain(long.pieces(), [b""]):
        yield to_json(decoder.decode(piece, final=not piece))[1:-1]  # five times as fast as `json`
    yield after


def _first_bytes(response: httpx.Response, most: int) -> bytes:
    """The response's body, as the server sent it. If the body has more than `most` bytes, reading stops."""
    body = bytearray()
    for piece in response.iter_raw():
        body += piece
        if len(body) > most:
            break
    return bytes(body)


def _system_error(problem: BaseException | None) -> str:
    """The reason why there is no connection, in the words of the operating system, such as `connection refused`."""
    while problem is not None:
        if isinstance(problem, OSError) and problem.strerror:
            return problem.strerror.lower()
        problem = problem.__cause__ or problem.__context__
    return ""


def _error_message(status: int, body: bytes) -> str:
    """The error message in the server's response, or else the standard words for the HTTP status."""
    content = json_value(body)
    error = content.get("error") if isinstance(content, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    message = message if isinstance(message, str) else http.client.responses.get(status, "")
    return "".join(each if each.isprintable() else " " for each in message)[:MAX_ERROR_CHARACTERS]


def _reason(status: int, model: type[HttpModel]) -> str:
    if status < 400:
        return "redirects are not followed; set the address it redirects to"
    return _REASONS.get(status, "it refuses the request").format(*model.settings, what=model.what)


_REASONS = {
    400: "it does not accept this request for this model",
    401: "the API key is missing or wrong; correct {0}",
    403: "the API key may not use this model; correct the key or the agent's {what}",
    404: f"{NO_SUCH_MODEL} or address; correct the agent's {{what}} or {{1}}",
    413: "the request is too large",
}


def retry_after(value: str) -> float | None:
    """The seconds to wait, from a `Retry-After` header. The header's value is a number or an HTTP date. The result is
    None for any other value."""
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value.strip()):
        return float(value)
    moment = parse_http_date_safe(value)
    return None if moment is None else max(0.0, moment - time.time())
