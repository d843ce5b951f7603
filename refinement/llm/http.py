"""The one way to a model server, and what its adapters share.

A call is bounded as a whole: `Request.seconds` covers connecting, sending, waiting, reading and every retry,
against a server that drips as well as one that is silent. Only name resolution has the resolver's own limits.

Retried, at most `Request.retries` times: connections that fail or are cut, timeouts with time left, 408, 429 and
5xx. The server's `Retry-After` is obeyed; when it asks for more than is left, the call fails at once instead of
sleeping for nothing. No other 4xx is retried, 409 included, nor is a reply that came but makes no sense: it was paid.
Each attempt passes the provider's gate, where it waits, within its time, while nobody calls that provider.

Errors are built outside `except` blocks, so that not even `__context__` leads to a request with its key and prompt.
"""

from __future__ import annotations

import codecs
import http.client
import json
import random
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import chain
from typing import Annotated, Any, Protocol, TypeVar

import httpx
import stamina
import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from refinement.llm.base import (
    LongText,
    ModelError,
    ModelNotConfigured,
    ModelRefused,
    ModelReplyInvalid,
    ModelTimedOut,
    ModelUnavailable,
    Request,
    Usage,
    json_value,
)
from refinement.llm.connections import client_for, until

CONNECT_SECONDS = 10.0
MAX_REPLY_BYTES = 8 * 1024 * 1024
MAX_SAID_BYTES, MAX_SAID = 64 * 1024, 500  # of an error; characters of it that are kept
LISTENS = 5.0  # seconds between two looks whether a provider is called again

log = structlog.get_logger("palimpsest.models")


def _note_retry(details: stamina.instrumentation.RetryDetails) -> None:
    log.info("model call is tried again", attempt=details.retry_num + 1, wait_seconds=round(details.wait_for, 1))


stamina.instrumentation.set_on_retry_hooks([_note_retry])  # instead of its own, which quotes the cause


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds between attempts when the server names none: doubling from `first` to `longest`, jitter on top."""

    first: float = 0.5
    longest: float = 8.0
    jitter: float = 0.5

    def after(self, attempt: int) -> float:
        pause = min(self.longest, self.first * 2.0 ** (attempt - 1))
        return pause + random.uniform(0, self.jitter)  # noqa: S311 spreads load, guards nothing


class Gate(Protocol):
    """Where all callers of a provider hear of each other how it goes (`refinement.providers`)."""

    def wait(self) -> float:
        """Seconds after which to ask again, or 0: go ahead."""

    def answered(self) -> None: ...

    def failed(self, asked: float | None, *, is_gone: bool) -> None:
        """`asked`: seconds the server wants to be left alone; `is_gone`: there was none to ask."""


class Open:
    """A gate that lets everybody through, for a caller on its own."""

    def wait(self) -> float:
        return 0

    def answered(self) -> None:
        pass

    def failed(self, asked: float | None, *, is_gone: bool) -> None:
        pass


# --- configuration ----------------------------------------------------------------------------------------------


def checked_address(base_url: str, who: str) -> str:
    """`base_url` without its trailing slash. Raises `ModelNotConfigured`, quoting nothing, if it cannot be used."""
    problem = _address_problem(base_url.strip())
    if problem:
        raise ModelNotConfigured(f"{who}'s address {problem}.")
    return base_url.strip().rstrip("/")


def _address_problem(base_url: str) -> str:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        return "is not a URL"
    # The parser takes ports and hosts that only a connection would find impossible.
    if url.port is not None and not 0 < url.port < 65536:
        return "has a port that cannot be"
    if url.scheme not in ("http", "https") or not re.fullmatch(rb"[A-Za-z0-9._:-]+", url.raw_host):
        return "must be http:// or https:// and a host"
    if url.userinfo or url.query or url.fragment:
        return "must hold no credentials, query or fragment: addresses are logged"
    return ""


def checked_key(key: str, who: str) -> str:
    """`key` fit for a header. An unfit one would otherwise be quoted by the error that refuses to send it."""
    key = key.strip()
    if not re.fullmatch(r"[\x21-\x7e]*", key):
        raise ModelNotConfigured(f"{who}'s API key holds characters that cannot be sent.")
    return key


# --- a call -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """The bytes a server answered with success, and how many HTTP calls it took to get them."""

    body: bytes
    calls: int


class Server:
    """A model server: whose it is, its address, and the headers that sign in to it."""

    def __init__(
        self,
        who: str,
        base_url: str,
        headers: Mapping[str, str],
        pauses: Pauses | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.who = who
        self.base_url = checked_address(base_url, who)
        self.headers = {**headers, "Content-Type": "application/json"}
        self.pauses = pauses or Pauses()
        self.gate = gate or Open()

    def post(self, path: str, body: Mapping[str, Any], request: Request) -> Answer:
        """Send `body` and return what came back. Bounded by `request.seconds` and `request.retries`."""
        call = _Call(self, path, body, request)
        outcome = call.outcome()
        if isinstance(outcome, ModelError):
            outcome.calls = call.made
            raise outcome
        return Answer(outcome, call.made)


class _Transient(Exception):
    """An attempt that failed in a way another attempt may mend; `wait` is what the server asked for, in seconds."""

    def __init__(
        self, failure: ModelUnavailable, wait: float | None = None, *, is_late: bool = False, is_gone: bool = False
    ) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.wait = wait
        self.is_late, self.is_gone = is_late, is_gone


class _Call:
    """One `Server.post`: its deadline, and how many attempts it has made."""

    def __init__(self, server: Server, path: str, body: Mapping[str, Any], request: Request) -> None:
        self.server = server
        self.url = server.base_url + path
        self.content = _written(body)
        self.request = request
        self.gate = server.gate if request.waits else Open()
        self.attempts = max(0, request.retries) + 1
        self.deadline = time.monotonic() + request.seconds
        self.is_cut_short = request.is_cut_short
        self.made = 0

    def outcome(self) -> bytes | ModelError:
        # Returned, not raised: an error raised while another is handled would carry that one as its context.
        try:
            for attempt in stamina.retry_context(on=self._pause, attempts=self.attempts, timeout=None):
                with attempt:
                    return self._attempt()
        except _Transient as last:
            return last.failure
        raise AssertionError("stamina ended without a result")

    def _pause(self, error: Exception) -> float | bool:
        """Seconds until the next attempt, or False for none: asked by stamina after each that failed."""
        if not isinstance(error, _Transient):
            return False
        wait = self.server.pauses.after(self.made) if error.wait is None else error.wait
        return wait if wait < self._left() else False

    def _left(self) -> float:
        return self.deadline - time.monotonic()

    def _attempt(self) -> bytes | ModelError:
        while wait := self.gate.wait():
            if wait >= self._left():
                return ModelUnavailable(f"{self.server.who} does not answer anybody, and is left alone for a while.")
            time.sleep(min(wait, LISTENS))
            self.is_cut_short = True
        if self._left() <= 0:
            return ModelTimedOut(f"No time was left to call {self.server.who}.")
        self.made += 1
        with until(self.deadline):
            outcome = self._exchange()
        if isinstance(outcome, _Transient):
            if not (outcome.is_late and self.is_cut_short):
                self.gate.failed(outcome.wait, is_gone=outcome.is_gone)
            raise outcome
        self.gate.answered()
        return outcome

    def _exchange(self) -> bytes | ModelError | _Transient:
        timeout = httpx.Timeout(self._left(), connect=CONNECT_SECONDS)
        client = client_for(self.server.base_url)
        try:
            with client.stream(
                "POST", self.url, content=self._content(), headers=self.server.headers, timeout=timeout
            ) as response:
                return self._judge(response)
        except httpx.TimeoutException:
            return _Transient(ModelTimedOut(f"{self.server.who} did not answer in time."), is_late=True)
        except httpx.ConnectError as problem:
            return self._unavailable("could not be reached", said=_reason(problem), is_gone=True)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError):
            return self._unavailable("could not be reached, or cut the connection", is_gone=True)

    def _content(self) -> bytes | Iterator[bytes]:
        return self.content if self.request.long is None else _streamed(self.content, self.request.long)

    def _judge(self, response: httpx.Response) -> bytes | ModelError | _Transient:
        status = response.status_code
        if response.is_success:
            return self._read(response)
        told: dict[str, Any] = {"status": status, "said": _said(response) if self.request.quotes else ""}
        if status in (408, 429) or status >= 500:
            wait = retry_after(response.headers.get("Retry-After"))
            return _Transient(ModelUnavailable(f"{self.server.who} answered {status}.", **told), wait)
        return ModelRefused(f"{self.server.who} answered {status}: {_refusal(status)}.", **told)

    def _unavailable(self, what: str, said: str = "", **how: bool) -> _Transient:
        return _Transient(ModelUnavailable(f"{self.server.who} {what}.", said=said), **how)

    def _read(self, response: httpx.Response) -> bytes | ModelError:
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            # Not asked for, and a small compressed reply can unpack to any size.
            return ModelReplyInvalid(f"{self.server.who} compressed its reply.")
        body = bytearray()
        for piece in response.iter_raw():
            body += piece
            if len(body) > MAX_REPLY_BYTES:
                return ModelReplyInvalid(f"{self.server.who} sent more than {MAX_REPLY_BYTES >> 20} MiB.")
        return bytes(body)


def _written(body: Mapping[str, Any]) -> bytes:
    # "replace": half a surrogate pair has no UTF-8, and the error that says so quotes the text.
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def _streamed(body: bytes, long: LongText) -> Iterator[bytes]:
    """The body with the long text in its place, as JSON has it. What is no UTF-8 is replaced, as in a short one."""
    before, after = body.split(long.mark.encode())
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    yield before
    for piece in chain(long.pieces(), [b""]):
        yield to_json(decoder.decode(piece, final=not piece))[1:-1]  # five times as fast as json's
    yield after


def _reason(problem: Exception) -> str:
    """The system's word for why there is no connection: `connection refused`."""
    cause: BaseException | None = problem
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        cause = cause.__cause__ or cause.__context__
    return ""


def _said(response: httpx.Response) -> str:
    """What the server says of its refusal: the message of its error, or its status in words."""
    body = bytearray()
    for piece in response.iter_raw():
        body += piece
        if len(body) > MAX_SAID_BYTES:
            break
    error = value.get("error") if isinstance(value := json_value(bytes(body)), dict) else None
    said = error.get("message") if isinstance(error, dict) else error
    said = said if isinstance(said, str) else http.client.responses.get(response.status_code, "")
    return "".join(each if each.isprintable() else " " for each in said)[:MAX_SAID]


def _refusal(status: int) -> str:
    if status < 400:
        return "redirects are not followed; set the address it is really at"
    reasons = {
        400: "it does not accept the request for this model",
        401: "the API key is missing or wrong",
        403: "the API key may not use this model",
        404: "no such model or address",
        413: "the request is too large",
    }
    return reasons.get(status, "it refuses the request")


def retry_after(value: str | None) -> float | None:
    """Seconds from now that a `Retry-After` header asks for, as a number or an HTTP date; None if it says neither."""
    text = (value or "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    # "-0000" parses as naive, and means UTC.
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


# --- reading a reply --------------------------------------------------------------------------------------------

Count = Annotated[int, Field(ge=0, le=10**12)]


class Wire(BaseModel):
    """Part of a reply as a provider's protocol promises it: types are checked strictly, further fields ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


class Bill(Wire):
    """What a reply says it cost. Read on its own when the rest makes no sense, for the tokens were spent."""

    def spent(self) -> Usage:
        raise NotImplementedError


Reading = TypeVar("Reading", bound=Bill)


def read(answer: Answer, shape: type[Reading], bill: type[Bill], who: str) -> Reading:
    """The reply in its promised `shape`. Raises `ModelReplyInvalid`, with the usage if `bill` at least can be read."""
    content = json_value(answer.body)
    reading = _shaped(content, shape)
    if reading is None:
        cost = _shaped(content, bill)
        usage = cost.spent() if cost else Usage()
        raise ModelReplyInvalid(f"{who} sent a reply that is not in the form of its protocol.", usage, answer.calls)
    return reading


def _shaped(content: Any, shape: type[Reading]) -> Reading | None:
    try:
        return shape.model_validate(content)
    except ValidationError:
        return None
