"""Every fault of a model server, with a real server: the shared transport, then the replies of each protocol."""

import gzip
import logging
import socket
import time
import traceback
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest
from pydantic import ValidationError

from refinement.llm import anthropic, base, http, ollama, openai
from refinement.llm.anthropic import Anthropic
from refinement.llm.base import ModelError, ModelRefused, ModelReplyInvalid, ModelTimedOut, ModelUnavailable
from refinement.llm.ollama import Ollama
from refinement.llm.openai import OpenAI
from tests.model_server import BAD_JSON, Broken, Call, Cut, Endless, ModelServer, Raw, Say, Script, Slow, Spent, Status

pytestmark = pytest.mark.usefixtures("no_pauses")
KEY = "sk-keymarker"
PROMPT = "promptmarker"
OPENERS: dict[str, Callable[[Any], base.Model]] = {
    "openai": lambda server: OpenAI(KEY, server.openai_url),
    "anthropic": lambda server: Anthropic(KEY, server.anthropic_url),
    "ollama": lambda server: Ollama(server.ollama_url),
}


@pytest.fixture(params=OPENERS)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def complete(server: Any, provider: str = "openai", seconds: float = 10.0, retries: int = 2) -> base.Reply:
    messages = (base.Message("system", PROMPT), base.Message("user", PROMPT))
    tools = (base.Tool("delete_memory", "Discards one.", {"type": "object", "properties": {}}),)
    request = base.Request("some-model", messages, tools, seconds=seconds, retries=retries)
    return OPENERS[provider](server).complete(request)


def fail(script: Script | None, kind: type[ModelError], requests: int = 1, **options: Any) -> ModelError:
    """Call a server with this script, or none. The call must raise this very error after so many HTTP requests."""
    with ModelServer(script or Say()) as server:
        with pytest.raises(kind) as caught:
            complete(server if script else NoServer(), **options)
        assert type(caught.value) is kind
        assert len(server.requests) == (requests if script else 0)
    return caught.value


class NoServer:
    """The address of a server that does not listen."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as former:
            self.openai_url = f"http://127.0.0.1:{former.getsockname()[1]}"


def everything(error: BaseException | None) -> str:
    """All that an error shows, and its causes."""
    if error is None:
        return ""
    texts = [str(error), repr(error), repr(error.args), repr(vars(error)), *traceback.format_exception(error)]
    return "\n".join(texts) + everything(error.__cause__) + everything(error.__context__)


Fault = tuple[Script | None, type[ModelError], int]
BODIES = {
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "error": b'{"error":{"message":"no"}}',
    "not UTF-8": b'{"a":"\xff"}',
    "deep": b"[" * 100_000,
    "a byte too long": b" " * (base.MAX_REPLY_BYTES + 1),
}
# The script, the error, and the HTTP requests with two retries.
FAULTS: dict[str, Fault] = {
    "not listening": (None, ModelUnavailable, 3),
    **{f"status {status}": (Status(status), ModelRefused, 1) for status in (400, 401, 409)},
    **{f"status {status}": (Status(status), ModelUnavailable, 3) for status in (408, 429, 500, 529)},
    "redirect to another host": (Status(302, {"Location": "http://127.0.0.1:1/elsewhere"}), ModelRefused, 1),
    "redirect to itself": (Status(307, {"Location": "/v1/chat/completions"}), ModelRefused, 1),
    "cut before": (Cut(midway=False), ModelUnavailable, 3),
    "cut midway": (Cut(), ModelUnavailable, 3),
    "half of its JSON": (BAD_JSON, ModelReplyInvalid, 1),
    **{f"body {name}": (Raw(body), ModelReplyInvalid, 1) for name, body in BODIES.items()},
    "endless": (Endless(), ModelReplyInvalid, 1),
    "compressed bomb": (Raw(gzip.compress(bytes(50_000_000)), {"Content-Encoding": "gzip"}), ModelReplyInvalid, 1),
    "endless header": (Raw(b"{}", {"X-Pad": "p" * 200_000}), ModelUnavailable, 3),
    "malformed header": (Raw(b"{}", {"no header": "x"}), ModelUnavailable, 3),
    "echo": (Status(401, {"X-Echo": KEY}, body=KEY + PROMPT), ModelRefused, 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_error_and_retries_and_shows_neither_key_nor_prompt(
    fault: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("", "httpx", "stamina"):
        caplog.set_level(logging.DEBUG, name)
    script, kind, calls = FAULTS[fault]
    error = fail(script, kind, calls)
    assert error.calls == calls
    assert (error.__cause__, error.__context__) == (None, None)
    written = everything(error) + caplog.text + "".join(map(repr, caplog.records)) + "".join(capfd.readouterr())
    assert KEY not in written
    assert PROMPT not in written


@pytest.mark.parametrize("fault", [Status(503), Status(429), Status(408), Cut(), Cut(midway=False)])
def test_a_temporary_fault_costs_one_more_call(fault: Any) -> None:
    with ModelServer([fault, Say("well")]) as server:
        reply = complete(server)
        assert (reply.text, reply.calls, len(server.requests)) == ("well", 2, 2)


def test_without_retries_one_call_is_made() -> None:
    fail(Status(500), ModelUnavailable, retries=0)


def test_the_log_line_of_a_retry_has_figures_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "palimpsest")
    with ModelServer([Status(500), Status(503), Say("hello")]) as server:
        complete(server)
        address = server.openai_url
    lines: list[Any] = [record.msg for record in caplog.records if record.name == "palimpsest.models"]
    assert [(line["event"], line["attempt"]) for line in lines] == [("model call is tried again", n) for n in (2, 3)]
    assert all(set(line) == {"attempt", "wait_seconds", "event", "level", "logger", "timestamp"} for line in lines)
    assert address not in caplog.text


def test_the_repr_of_a_model_has_no_key(provider: str) -> None:
    with ModelServer() as server:
        assert KEY not in repr(OPENERS[provider](server))


SLOW: dict[str, Script] = {
    "silent": Slow(60),
    "drips its header": Slow(drip=0.02, then=Raw(b"{}", {"X-Pad": "p" * 2_000})),
    "drips its reply": Slow(drip=0.02, then=Say("word " * 500)),
    "drips an error": Slow(drip=0.02, then=Status(500, body=" " * 2_000)),
    "stops after its header": Raw(b"{", {"Content-Length": "100"}),
}


@pytest.mark.parametrize("how", SLOW)
def test_a_slow_server_meets_the_deadline(how: str) -> None:
    started = time.monotonic()
    fail(SLOW[how], ModelTimedOut, seconds=0.4)
    assert 0.3 < time.monotonic() - started < 10


def test_the_deadline_includes_all_attempts() -> None:
    with ModelServer(Slow(0.3, then=Status(500))) as server:
        started = time.monotonic()
        with pytest.raises(ModelUnavailable):  # or ModelTimedOut: the time ends during a call, or between two
            complete(server, seconds=2, retries=1000)
        assert time.monotonic() - started < 10
        assert 2 <= len(server.requests) <= 7


def test_without_time_no_call_is_made() -> None:
    assert fail(Say(), ModelTimedOut, 0, seconds=0).calls == 0


def test_a_retry_waits_as_retry_after_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default pause is longer than the call."""
    monkeypatch.setattr(http, "PAUSES", {"wait_initial": 3600.0, "wait_max": 3600.0, "wait_jitter": 0.0})
    past = formatdate(time.time() - 60, usegmt=True)
    script: Script = [Status(429, {"Retry-After": "0.2"}), Status(503, {"Retry-After": past}), Say("well")]
    with ModelServer(script) as server:
        started = time.monotonic()
        assert complete(server).calls == 3
        assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("later", ["3600", formatdate(time.time() + 36_000, usegmt=True)], ids=["seconds", "date"])
def test_a_retry_after_beyond_the_deadline_fails_at_once(later: str) -> None:
    started = time.monotonic()
    fail(Status(429, {"Retry-After": later}), ModelUnavailable)
    assert time.monotonic() - started < 10


def test_a_retry_after_without_a_time_gets_the_default_pause() -> None:
    with ModelServer([Status(429, {"Retry-After": "soon"}), Say("well")]) as server:
        assert complete(server).calls == 2


def put(path: str, value: Any) -> Broken:
    """A reply with one call and one text, and `value` at a dotted `path`; `...` removes the field."""
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


MESSAGE, FIRST_CALL = "choices.0.message", "choices.0.message.tool_calls.0"
WRONG: dict[str, list[tuple[str, Any]]] = {
    "openai": [
        *[("choices", []), ("choices", ...), ("choices", "none"), ("choices.0", 7)],
        *[(MESSAGE, None), (f"{MESSAGE}.content", ["text"]), (f"{MESSAGE}.tool_calls", {})],
        *[(FIRST_CALL, "delete_memory"), (f"{FIRST_CALL}.id", 7)],
        *[(f"{FIRST_CALL}.function", ...), (f"{FIRST_CALL}.function.name", None)],
        *[("choices.0.finish_reason", 1), ("usage", "much"), ("usage.completion_tokens", 1.5)],
        *[("usage.prompt_tokens", count) for count in ("7", -1, True, 10**30)],
    ],
    "anthropic": [
        *[("content", ...), ("content", "text"), ("content.0", "text"), ("content.0.text", ...)],
        *[("content.0.type", ...), ("content.0.type", 7), ("content.1.name", 5), ("content.1.id", 5)],
        *[("stop_reason", 1), ("usage.input_tokens", ...), ("usage.cache_read_input_tokens", -1)],
    ],
    "ollama": [
        *[("message", ...), ("message.content", 5), ("message.tool_calls.0.function", ...)],
        *[("done", False), ("done", ...), ("done_reason", 1), ("eval_count", -1)],
    ],
}


@pytest.mark.parametrize(("name", "path", "value"), [(name, *wrong) for name in WRONG for wrong in WRONG[name]])
def test_a_reply_of_the_wrong_form_is_invalid(name: str, path: str, value: Any) -> None:
    fail(put(path, value), ModelReplyInvalid, provider=name)


def test_an_invalid_reply_has_its_usage(provider: str) -> None:
    def spoiled(wire: dict[str, Any]) -> dict[str, Any]:
        return {name: 7 if name in ("choices", "content", "message") else value for name, value in wire.items()}

    error = fail(Broken(spoiled, Say("text", usage=Spent(100, 20))), ModelReplyInvalid, provider=provider)
    assert error.usage == base.Usage(prompt=100, completion=20)


def test_arguments_that_are_not_an_object_are_none(provider: str) -> None:
    """Anthropic and Ollama send an object, OpenAI the text of one."""
    calls = [Call("delete_memory", arguments) for arguments in ("", "not json", '["a"]', ["a"], 7, None, {"id": 3})]
    with ModelServer([calls]) as server:
        reply = complete(server, provider)
    assert [call.arguments for call in reply.tool_calls] == [None] * 6 + [{"id": 3}]


@pytest.mark.parametrize("adapter", [openai, anthropic, ollama])
def test_a_check_of_a_reply_ends_at_the_first_wrong_item(adapter: Any) -> None:
    """A million wrong items took gigabytes, because each error is kept."""
    wrong = {"choices": [0, 0], "content": [0, 0], "message": {"tool_calls": [0, 0]}, "done": True}
    with pytest.raises(ValidationError) as refused:
        adapter._Answer.model_validate(wrong)
    assert refused.value.error_count() == 1


def test_all_of_ten_thousand_calls_in_one_reply_are_read(provider: str) -> None:
    calls = [Call("delete_memory", {"id": number}) for number in range(10_000)]
    with ModelServer([calls]) as server:
        reply = complete(server, provider)
    assert [call.arguments["id"] for call in reply.tool_calls if call.arguments] == list(range(10_000))
    assert len({call.id for call in reply.tool_calls}) == 10_000
