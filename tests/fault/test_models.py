"""Everything a model server can do wrong, in each of the three protocols, against a real server."""

from __future__ import annotations

import logging
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any

import pytest

from refinement.llm import connections, http
from refinement.llm.anthropic import Anthropic
from refinement.llm.base import (
    Message,
    Model,
    ModelError,
    ModelRefused,
    ModelReplyInvalid,
    ModelTimedOut,
    ModelUnavailable,
    Request,
    Tool,
    Usage,
)
from refinement.llm.ollama import Ollama
from refinement.llm.openai import OpenAI
from tests.model_server import BAD_JSON, Broken, Call, Cut, ModelServer, Raw, Say, Script, Slow, Spent, Status

KEY = "sk-keymarker"
PROMPT = "promptmarker"
MINE = http.Pauses(first=0.01, longest=0.02, jitter=0.0)
NEVER = http.Pauses(first=3600.0, longest=3600.0)

Opener = Callable[[Any, http.Pauses], Model]
OPENERS: dict[str, Opener] = {
    "openai": lambda at, pauses: OpenAI(KEY, at.openai_url, pauses),
    "anthropic": lambda at, pauses: Anthropic(KEY, at.anthropic_url, pauses),
    "ollama": lambda at, pauses: Ollama(at.ollama_url, pauses),
}


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    yield
    connections.close_clients()


def test_a_call_that_is_tried_again_is_logged_by_its_number_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "palimpsest")
    with ModelServer([Status(500), Status(503), Say("hello")]) as server:
        OpenAI(KEY, server.openai_url, MINE).complete(asking())
        address = server.openai_url
    told = [record.msg for record in caplog.records if record.name == "palimpsest.models"]
    assert [(line["event"], line["attempt"]) for line in told] == [("model call is tried again", n) for n in (2, 3)]
    assert all(set(line) == {"attempt", "wait_seconds", "event", "level", "logger", "timestamp"} for line in told)
    assert not any(word in caplog.text for word in (KEY, PROMPT, address))


@pytest.fixture(params=OPENERS)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asking(seconds: float = 10.0, retries: int = 2) -> Request:
    messages = (Message("system", PROMPT), Message("user", PROMPT))
    tools = (Tool("delete_memory", "Discards one.", {"type": "object", "properties": {}}),)
    return Request("some-model", messages, tools, seconds=seconds, retries=retries)


def fails(model: Model, kind: type[ModelError], request: Request | None = None) -> ModelError:
    with pytest.raises(kind) as caught:
        model.complete(request or asking())
    assert type(caught.value) is kind
    return caught.value


class Nowhere:
    """The addresses of a server that is not there."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as was:
            address = f"http://127.0.0.1:{was.getsockname()[1]}"
        self.openai_url = self.anthropic_url = self.ollama_url = address


# Action, what it comes to, and the HTTP calls made with two retries.
FAULTS: dict[str, tuple[Script, type[ModelError], int]] = {
    "bad request": (Status(400), ModelRefused, 1),
    "unauthorised": (Status(401), ModelRefused, 1),
    "forbidden": (Status(403), ModelRefused, 1),
    "not found": (Status(404), ModelRefused, 1),
    "timed out": (Status(408), ModelUnavailable, 3),
    "conflict": (Status(409), ModelRefused, 1),
    "too large": (Status(413), ModelRefused, 1),
    "too many": (Status(429), ModelUnavailable, 3),
    "broken": (Status(500), ModelUnavailable, 3),
    "overloaded": (Status(529), ModelUnavailable, 3),
    "moved": (Status(302, {"Location": "http://127.0.0.1:1/elsewhere"}), ModelRefused, 1),
    "moved, kept": (Status(307, {"Location": "/v1/chat/completions"}), ModelRefused, 1),
    "cut before": (Cut(midway=False), ModelUnavailable, 3),
    "cut midway": (Cut(), ModelUnavailable, 3),
    "not json": (BAD_JSON, ModelReplyInvalid, 1),
    "empty": (Raw(b""), ModelReplyInvalid, 1),
    "not utf-8": (Raw(b'{"a":"\xff"}'), ModelReplyInvalid, 1),
    "deep": (Raw(b"[" * 100_000), ModelReplyInvalid, 1),
    "huge": (Broken(lambda wire: wire | {"pad": "p" * http.MAX_REPLY_BYTES}), ModelReplyInvalid, 1),
    "compressed": (Raw(b"{}", {"Content-Encoding": "gzip"}), ModelReplyInvalid, 1),
    "endless header": (Raw(b"{}", {"X-Pad": "p" * 200_000}), ModelUnavailable, 3),
    "echoes": (Status(401, {"X-Echo": KEY}, body=KEY + PROMPT), ModelRefused, 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_typed_and_retried_only_if_another_attempt_may_help(provider: str, fault: str) -> None:
    script, kind, calls = FAULTS[fault]
    with ModelServer(script) as server:
        error = fails(OPENERS[provider](server, MINE), kind)
        assert len(server.requests) == calls
    assert error.calls == calls


def test_nobody_listens(provider: str) -> None:
    error = fails(OPENERS[provider](Nowhere(), MINE), ModelUnavailable)
    assert error.calls == 3


@pytest.mark.parametrize("fault", ["broken", "too many", "cut before", "cut midway"])
def test_no_retries_means_exactly_one_call(provider: str, fault: str) -> None:
    with ModelServer(FAULTS[fault][0]) as server:
        fails(OPENERS[provider](server, MINE), ModelUnavailable, asking(retries=0))
        assert len(server.requests) == 1


@pytest.mark.parametrize("passing", [Status(500), Status(503), Status(429), Status(408), Cut(), Cut(midway=False)])
def test_a_fault_that_passes_is_only_counted(provider: str, passing: Any) -> None:
    with ModelServer([passing, Say("well")]) as server:
        reply = OPENERS[provider](server, MINE).complete(asking())
        assert (reply.text, reply.calls, len(server.requests)) == ("well", 2, 2)


# --- time -------------------------------------------------------------------------------------------------------

SLOW: dict[str, Script] = {
    "silent": Slow(60),
    "drips a reply": Slow(drip=0.05),
    "drips an error": Slow(drip=0.05, then=Status(500)),
}


@pytest.mark.parametrize("how", SLOW)
def test_a_slow_server_does_not_outlive_the_deadline(provider: str, how: str) -> None:
    with ModelServer(SLOW[how]) as server:
        started = time.monotonic()
        fails(OPENERS[provider](server, MINE), ModelTimedOut, asking(seconds=0.4))
        assert 0.3 < time.monotonic() - started < 10
        assert len(server.requests) == 1


def test_a_stall_after_a_byte_does_not_start_the_clock_again() -> None:
    with ModelServer(Slow(drip=0.8)) as server:
        started = time.monotonic()
        fails(OPENERS["openai"](server, MINE), ModelTimedOut, asking(seconds=1.0))
        assert time.monotonic() - started < 10


def test_the_deadline_covers_all_attempts_together(provider: str) -> None:
    with ModelServer(Slow(0.15, then=Status(500))) as server:
        started = time.monotonic()
        with pytest.raises(ModelUnavailable):  # or its kind ModelTimedOut: the time ends in a call, or between two
            OPENERS[provider](server, MINE).complete(asking(seconds=0.5, retries=1000))
        assert time.monotonic() - started < 10
        assert 2 <= len(server.requests) <= 4


def test_no_time_means_no_call(provider: str) -> None:
    with ModelServer() as server:
        error = fails(OPENERS[provider](server, MINE), ModelTimedOut, asking(seconds=0))
        assert (len(server.requests), error.calls) == (0, 0)


@pytest.mark.parametrize("status", [408, 429, 503])
def test_retry_after_in_seconds_is_waited_for(provider: str, status: int) -> None:
    with ModelServer([Status(status, {"Retry-After": "0.2"}), Say("well")]) as server:
        started = time.monotonic()
        reply = OPENERS[provider](server, NEVER).complete(asking())
        assert time.monotonic() - started >= 0.2
        assert reply.calls == 2


def test_retry_after_as_a_date_is_understood(provider: str) -> None:
    past = formatdate(time.time() - 60, usegmt=True)
    with ModelServer([Status(429, {"Retry-After": past}), Say("well")]) as server:
        assert OPENERS[provider](server, NEVER).complete(asking()).text == "well"


@pytest.mark.parametrize("later", ["3600", formatdate(time.time() + 36_000, usegmt=True)], ids=["seconds", "date"])
def test_a_retry_after_beyond_the_deadline_fails_at_once(provider: str, later: str) -> None:
    with ModelServer(Status(429, {"Retry-After": later})) as server:
        started = time.monotonic()
        fails(OPENERS[provider](server, MINE), ModelUnavailable)
        assert time.monotonic() - started < 10
        assert len(server.requests) == 1


def test_a_retry_after_that_says_nothing_leaves_the_pause_to_us(provider: str) -> None:
    with ModelServer([Status(429, {"Retry-After": "soon"}), Say("well")]) as server:
        assert OPENERS[provider](server, MINE).complete(asking()).calls == 2


# --- replies that make no sense ---------------------------------------------------------------------------------


def put(path: str, value: Any) -> Broken:
    """A reply with one call and one text, and `value` at a dotted `path`; `...` takes what is there away."""
    *way, last = path.split(".")

    def change(wire: Any) -> Any:
        inner = wire
        for step in way:
            inner = inner[int(step) if step.isdigit() else step]
        if value is ...:
            del inner[last]
        else:
            inner[int(last) if last.isdigit() else last] = value
        return wire

    return Broken(change, Say("text", (Call("delete_memory", {"id": 1}),)))


WRONG: dict[str, list[tuple[str, Any]]] = {
    "openai": [
        ("choices", []),
        ("choices", ...),
        ("choices", "none"),
        ("choices.0", 7),
        ("choices.0.message", ...),
        ("choices.0.message", None),
        ("choices.0.message.content", 5),
        ("choices.0.message.content", ["text"]),
        ("choices.0.message.tool_calls", {}),
        ("choices.0.message.tool_calls.0", "delete_memory"),
        ("choices.0.message.tool_calls.0.id", 7),
        ("choices.0.message.tool_calls.0.function", ...),
        ("choices.0.message.tool_calls.0.function.name", ...),
        ("choices.0.message.tool_calls.0.function.name", None),
        ("choices.0.finish_reason", 1),
        ("usage", "much"),
        ("usage.prompt_tokens", "7"),
        ("usage.prompt_tokens", -1),
        ("usage.completion_tokens", 1.5),
        ("usage.prompt_tokens_details", []),
        ("usage.prompt_tokens", True),
        ("usage.prompt_tokens", 10**30),
    ],
    "anthropic": [
        ("content", ...),
        ("content", "text"),
        ("content.0", "text"),
        ("content.0.text", ...),
        ("content.0.text", 5),
        ("content.0.type", ...),
        ("content.1.name", ...),
        ("content.1.name", 5),
        ("content.1.id", 5),
        ("stop_reason", 1),
        ("usage", ...),
        ("usage.input_tokens", ...),
        ("usage.output_tokens", "7"),
        ("usage.cache_read_input_tokens", -1),
    ],
    "ollama": [
        ("message", ...),
        ("message", "text"),
        ("message.content", 5),
        ("message.tool_calls", {}),
        ("message.tool_calls.0", 5),
        ("message.tool_calls.0.function", ...),
        ("message.tool_calls.0.function.name", 5),
        ("done", False),
        ("done", ...),
        ("done_reason", 1),
        ("prompt_eval_count", "7"),
        ("eval_count", -1),
    ],
}
CASES = [(name, path, value) for name, cases in WRONG.items() for path, value in cases]


@pytest.mark.parametrize(("name", "path", "value"), CASES)
def test_a_reply_of_the_wrong_shape_is_invalid(name: str, path: str, value: Any) -> None:
    with ModelServer(put(path, value)) as server:
        fails(OPENERS[name](server, MINE), ModelReplyInvalid)
        assert len(server.requests) == 1


@pytest.mark.parametrize("body", [b"null", b"[]", b'"text"', b"7", b"{}", b'{"error":{"message":"no"}}'])
def test_json_that_is_no_reply_is_invalid(provider: str, body: bytes) -> None:
    with ModelServer(Raw(body)) as server:
        fails(OPENERS[provider](server, MINE), ModelReplyInvalid)


def test_an_invalid_reply_still_says_what_it_cost(provider: str) -> None:
    def spoiled(wire: dict[str, Any]) -> dict[str, Any]:
        return {name: 7 if name in ("choices", "content", "message") else value for name, value in wire.items()}

    with ModelServer(Broken(spoiled, Say("text", usage=Spent(100, 20)))) as server:
        error = fails(OPENERS[provider](server, MINE), ModelReplyInvalid)
    assert error.usage == Usage(prompt=100, completion=20)


# Anthropic and Ollama send an object, OpenAI the text of one.
NO_OBJECTS: list[Any] = ["", "not json", '["a"]', ["a"], 7, None, True]


@pytest.mark.parametrize("arguments", NO_OBJECTS, ids=repr)
def test_arguments_that_are_no_object_are_none(provider: str, arguments: Any) -> None:
    with ModelServer([[Call("delete_memory", arguments), Call("delete_memory", {"id": 3})]]) as server:
        reply = OPENERS[provider](server, MINE).complete(asking())
    assert [call.arguments for call in reply.tool_calls] == [None, {"id": 3}]


def test_ten_thousand_calls_in_one_reply_are_all_read(provider: str) -> None:
    calls = [Call("delete_memory", {"id": number}) for number in range(10_000)]
    with ModelServer([calls]) as server:
        reply = OPENERS[provider](server, MINE).complete(asking())
    assert [call.arguments["id"] for call in reply.tool_calls if call.arguments] == list(range(10_000))
    assert len({call.id for call in reply.tool_calls}) == 10_000


# --- secrets ----------------------------------------------------------------------------------------------------


def everything(error: BaseException | None) -> str:
    """All that an error shows of itself, and all that it leads to."""
    if error is None:
        return ""
    shown = [str(error), repr(error), repr(error.args), repr(vars(error)), *traceback.format_exception(error)]
    return "\n".join(shown) + everything(error.__cause__) + everything(error.__context__)


LEAKS: dict[str, Script] = {name: fault[0] for name, fault in FAULTS.items()} | {"silent": Slow(60)}


@pytest.mark.parametrize("fault", [*LEAKS, "down"])
def test_no_key_and_no_prompt_in_errors_or_logs(
    provider: str, fault: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("", "httpx", "stamina"):
        caplog.set_level(logging.DEBUG, name)
    with ModelServer(LEAKS.get(fault, Say())) as server:
        at = Nowhere() if fault == "down" else server
        with pytest.raises(ModelError) as caught:
            OPENERS[provider](at, MINE).complete(asking(seconds=1.0 if fault != "silent" else 0.2))
    error = caught.value
    assert (error.__cause__, error.__context__) == (None, None)
    written = everything(error) + caplog.text + "".join(map(repr, caplog.records)) + "".join(capfd.readouterr())
    assert KEY not in written
    assert PROMPT not in written


def test_a_model_shows_no_key(provider: str) -> None:
    with ModelServer() as server:
        assert KEY not in repr(OPENERS[provider](server, MINE))
