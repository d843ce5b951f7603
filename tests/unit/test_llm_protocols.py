"""What each protocol sends, and how its replies are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from refinement.llm import connections
from refinement.llm.anthropic import Anthropic
from refinement.llm.base import (
    Message,
    Model,
    ModelNotConfigured,
    Reply,
    Request,
    Tool,
    ToolCall,
    Usage,
    arguments_of,
    tool_calls,
)
from refinement.llm.ollama import Ollama, context_tokens
from refinement.llm.openai import OpenAI, tool_name
from tests.model_server import Broken, Call, ModelServer, Received, Say, Script, Spent

OPENERS: dict[str, Callable[[ModelServer], Model]] = {
    "openai": lambda server: OpenAI("key", server.openai_url),
    "anthropic": lambda server: Anthropic("key", server.anthropic_url),
    "ollama": lambda server: Ollama(server.ollama_url),
}
every_provider = pytest.mark.parametrize("provider", OPENERS)
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
TOOL = Tool("delete_memory", "Discards one.", SCHEMA)
FUNCTION = {"type": "function", "function": {"name": TOOL.name, "description": TOOL.description, "parameters": SCHEMA}}
TALK = (
    Message("system", "Be careful.", stable=True),
    Message("user", "Here is the ledger.", stable=True),
    Message("assistant", "", (ToolCall("a", "delete_memory", {"id": 1}), ToolCall("b", "delete memory!", None))),
    Message("tool", "gone", tool_call_id="a"),
    Message("tool", "no such tool", tool_call_id="b", failed=True),
    Message("user", "Go on."),
)


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    yield
    connections.close_clients()


def ask(provider: str, script: Script, messages: tuple[Message, ...] = TALK, **fields: Any) -> tuple[Reply, Received]:
    """The reply, and what the server received."""
    request = Request("a-model", messages, **{"tools": (TOOL,), **fields})
    with ModelServer(script) as server:
        reply = OPENERS[provider](server).complete(request)
        assert server.refused == []
        return reply, server.requests[0]


def change(path: str, value: Any) -> Callable[[Any], Any]:
    """Puts a value at a path of a reply."""

    def changed(wire: Any) -> Any:
        inner = wire
        *way, last = path.split(".")
        for step in way:
            inner = inner[int(step) if step.isdigit() else step]
        inner[last] = value
        return wire

    return changed


# --- requests


def test_a_request_to_chat_completions() -> None:
    _, sent = ask("openai", Say("ok"), max_output_tokens=77, temperature=0.0)
    names = ("delete_memory", '{"id": 1}'), ("delete_memory_", "{}")
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, (name, arguments) in zip("ab", names, strict=True)
    ]
    assert sent.headers["authorization"] == "Bearer key"
    assert sent.body == {
        "model": "a-model",
        "tools": [FUNCTION],
        "messages": [
            {"role": "system", "content": "Be careful."},
            {"role": "user", "content": "Here is the ledger."},
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "content": "gone", "tool_call_id": "a"},
            {"role": "tool", "content": "no such tool", "tool_call_id": "b"},
            {"role": "user", "content": "Go on."},
        ],
        "max_tokens": 77,
        "temperature": 0.0,
    }


def test_a_request_to_the_messages_api() -> None:
    """Results of one reply go back together, ahead of text, and stable messages are marked for the cache."""
    _, sent = ask("anthropic", Say("ok"), temperature=0.5)
    mark = {"cache_control": {"type": "ephemeral"}}
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": "gone"},
        {"type": "tool_result", "tool_use_id": "b", "content": "no such tool", "is_error": True},
    ]
    calls = [
        {"type": "tool_use", "id": "a", "name": "delete_memory", "input": {"id": 1}},
        {"type": "tool_use", "id": "b", "name": "delete_memory_", "input": {}},
    ]
    assert (sent.headers["x-api-key"], sent.headers["anthropic-version"]) == ("key", "2023-06-01")
    assert sent.body == {
        "model": "a-model",
        "max_tokens": 4096,
        "tools": [{"name": TOOL.name, "description": TOOL.description, "input_schema": SCHEMA}],
        "system": [{"type": "text", "text": "Be careful.", **mark}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Here is the ledger.", **mark}]},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": [*results, {"type": "text", "text": "Go on."}]},
        ],
        "temperature": 0.5,
    }


def test_a_request_to_ollama() -> None:
    """A prompt must never be cut in silence."""
    _, sent = ask("ollama", Say("ok"), max_output_tokens=77, temperature=0.25)
    calls = [
        {"id": "a", "function": {"name": "delete_memory", "arguments": {"id": 1}}},
        {"id": "b", "function": {"name": "delete memory!", "arguments": {}}},
    ]
    results = [
        {"role": "tool", "content": "gone", "tool_name": "delete_memory", "tool_call_id": "a"},
        {"role": "tool", "content": "no such tool", "tool_name": "delete memory!", "tool_call_id": "b"},
    ]
    assert sent.body == {
        "model": "a-model",
        "messages": [
            {"role": "system", "content": "Be careful."},
            {"role": "user", "content": "Here is the ledger."},
            {"role": "assistant", "content": "", "tool_calls": calls},
            *results,
            {"role": "user", "content": "Go on."},
        ],
        "tools": [FUNCTION],
        "stream": False,
        "truncate": False,
        "shift": False,
        "options": {"num_predict": 77, "num_ctx": 4096, "temperature": 0.25},
    }


@pytest.mark.parametrize(
    ("provider", "fields"),
    [
        ("openai", {"model", "messages", "max_tokens"}),
        ("anthropic", {"model", "messages", "max_tokens", "system"}),
        ("ollama", {"model", "messages", "options", "stream", "truncate", "shift"}),
    ],
)
def test_tools_and_temperature_are_optional(provider: str, fields: set[str]) -> None:
    assert set(ask(provider, Say("ok"), TALK[:2], tools=())[1].body) == fields


def test_openai_itself_gets_its_own_fields() -> None:
    body = OpenAI("key").body(Request("gpt", TALK, max_output_tokens=99))
    assert (body["max_completion_tokens"], body["store"]) == (99, False)
    assert "max_tokens" not in body


@pytest.mark.parametrize("opener", [OpenAI, Anthropic])
def test_a_key_that_cannot_be_sent_is_refused_and_not_quoted(opener: Callable[[str], Model]) -> None:
    with pytest.raises(ModelNotConfigured) as caught:
        opener("sk-marker\nX-Evil: 1")
    assert "marker" not in str(caught.value)


def test_only_the_last_four_marks_are_kept() -> None:
    several = tuple(Message("user", f"part {number}", stable=True) for number in range(6))
    body = ask("anthropic", Say("ok"), several)[1].body
    assert ["cache_control" in block for block in body["messages"][0]["content"]] == [False] * 2 + [True] * 4


def test_empty_texts_are_left_out() -> None:
    quiet = (Message("system", ""), Message("user", "hi"), Message("assistant", " "), Message("user", "hello?"))
    body = ask("anthropic", Say("ok"), quiet)[1].body
    assert "system" not in body
    assert [block["text"] for block in body["messages"][0]["content"]] == ["hi", "hello?"]


@pytest.mark.parametrize(
    ("prompt_bytes", "output", "context"), [(0, 1, 4096), (3 * 3072, 512, 4096), (3 * 3073, 512, 8192)]
)
def test_contexts_are_powers_of_two(prompt_bytes: int, output: int, context: int) -> None:
    assert context_tokens(prompt_bytes, output) == context


@every_provider
def test_a_lone_surrogate_does_not_break_the_call(provider: str) -> None:
    _, sent = ask(provider, Say("ok"), (Message("user", "broken \ud800 text"),))
    assert "broken ? text" in json.dumps(sent.body)


@pytest.mark.parametrize(
    ("name", "sent"), [("functions.delete", "functions_delete"), ("", "unnamed"), ("é" * 99, "_" * 64)]
)
def test_names_are_changed_to_what_can_be_sent_back(name: str, sent: str) -> None:
    assert tool_name(name) == sent


# --- replies


@pytest.mark.parametrize(
    ("provider", "usage"),
    [("openai", Usage(100, 60, 7)), ("anthropic", Usage(100, 60, 7)), ("ollama", Usage(100, 0, 7))],
)
def test_text_and_usage_are_read(provider: str, usage: Usage) -> None:
    reply, _ = ask(provider, Say("hello", usage=Spent(prompt=100, completion=7, cached=60, stored=30)))
    assert reply == Reply("hello", (), usage, "end", calls=1)


@every_provider
def test_text_and_calls_are_read_in_order(provider: str) -> None:
    reply, _ = ask(provider, Say("First this.", (Call("delete_memory", {"id": 2}, "x"), Call("finish", {}, "y"))))
    ids = ("call_6_0", "call_6_1") if provider == "ollama" else ("x", "y")  # Ollama sends none
    calls = ToolCall(ids[0], "delete_memory", {"id": 2}), ToolCall(ids[1], "finish", {})
    assert (reply.text, reply.tool_calls, reply.stop) == ("First this.", calls, "tool_calls")


@every_provider
def test_a_server_may_leave_out_its_counts(provider: str) -> None:
    reply, _ = ask(
        provider, Broken(lambda wire: {k: v for k, v in wire.items() if "usage" not in k and "eval" not in k})
    )
    assert (reply.text, reply.usage) == ("hello", Usage())


@pytest.mark.parametrize(
    ("provider", "path", "said", "stop"),
    [
        ("openai", "choices.0.finish_reason", "length", "length"),
        ("openai", "choices.0.finish_reason", None, "other"),
        ("openai", "choices.0.finish_reason", "tool_calls", "other"),  # without a call
        ("anthropic", "stop_reason", "max_tokens", "length"),
        ("ollama", "done_reason", "length", "length"),
    ],
)
def test_why_it_stopped(provider: str, path: str, said: str | None, stop: str) -> None:
    assert ask(provider, Broken(change(path, said)))[0].stop == stop


@pytest.mark.parametrize(("said", "stop"), [("end", "tool_calls"), ("length", "length")])
def test_why_it_stopped_beside_a_call(said: str, stop: str) -> None:
    assert ask("openai", Say(calls=(Call("finish"),), stop=said))[0].stop == stop


def test_blocks_of_other_types_and_counts_that_are_null_are_ignored() -> None:
    def thinking(wire: dict[str, Any]) -> dict[str, Any]:
        usage = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": None}
        return wire | {"content": [{"type": "thinking", "thinking": "hm", "text": 5}, *wire["content"]], "usage": usage}

    reply, _ = ask("anthropic", Broken(thinking))
    assert (reply.text, reply.usage) == ("hello", Usage(prompt=5, completion=2))


def test_a_refusal_is_its_text() -> None:
    message = {"role": "assistant", "content": None, "refusal": "I would rather not."}
    assert ask("openai", Broken(change("choices.0.message", message)))[0].text == "I would rather not."


# --- ids and arguments of tool calls

ASKED = Request("m", (Message("assistant", "", (ToolCall("old", "x", {}),)), Message("tool", "", tool_call_id="old")))


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", None, ""], ["a", "call_2_1", "call_2_2"]),
        (["a", "a", "a"], ["a", "call_2_1", "call_2_2"]),
        (["old"], ["call_2_0"]),
        (["call_2_1", None], ["call_2_1", "call_2_1_"]),
    ],
)
def test_ids_are_unique_in_the_conversation(sent: list[str | None], kept: list[str]) -> None:
    assert [call.id for call in tool_calls([(id, "x", {}) for id in sent], ASKED)] == kept


@pytest.mark.parametrize("value", [{"id": 1}, ' {"id": 1} '])
def test_an_object_or_its_text_are_arguments(value: Any) -> None:
    assert arguments_of(value) == {"id": 1}


@pytest.mark.parametrize(
    "value",
    ["{", "[]", '{"a": NaN}', '{"a": "\\ud800"}', '{"a":' * 9000, {"a": float("inf")}, "9" * 10_000],
    ids=lambda value: str(value)[:12],
)
def test_nothing_else_is(value: Any) -> None:
    assert arguments_of(value) is None
