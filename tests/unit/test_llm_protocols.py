"""What each protocol sends, and how its replies are read."""

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
def _close_connections() -> Iterator[None]:
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
    """A function that sets a value at a path of a reply."""

    def changed(wire: Any) -> Any:
        inner = wire
        *way, last = path.split(".")
        for step in way:
            inner = inner[int(step) if step.isdigit() else step]
        inner[last] = value
        return wire

    return changed


OPENING = [{"role": "system", "content": "Be careful."}, {"role": "user", "content": "Here is the ledger."}]
END = {"role": "user", "content": "Go on."}
RESULTS = [{"role": "tool", "content": "gone"}, {"role": "tool", "content": "no such tool"}]


def test_a_request_to_chat_completions() -> None:
    _, sent = ask("openai", Say("ok"), max_output_tokens=77, temperature=0.0)
    calls = [
        {"id": "a", "type": "function", "function": {"name": "delete_memory", "arguments": '{"id": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "delete_memory_", "arguments": "{}"}},
    ]
    results = [result | {"tool_call_id": id} for result, id in zip(RESULTS, "ab", strict=True)]
    messages = [*OPENING, {"role": "assistant", "content": "", "tool_calls": calls}, *results, END]
    assert sent.headers["authorization"] == "Bearer key"
    limits = {"max_tokens": 77, "temperature": 0.0}
    assert sent.body == {"model": "a-model", "tools": [FUNCTION], "messages": messages, **limits}


def test_a_request_to_the_messages_api() -> None:
    """Results of one reply come first in one message. Stable messages are marked for the cache."""
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
    _, sent = ask("ollama", Say("ok"), max_output_tokens=77, temperature=0.25)
    names = {"a": "delete_memory", "b": "delete memory!"}
    calls = [
        {"id": "a", "function": {"name": "delete_memory", "arguments": {"id": 1}}},
        {"id": "b", "function": {"name": "delete memory!", "arguments": {}}},
    ]
    pairs = zip(RESULTS, names.items(), strict=True)
    results = [result | {"tool_name": name, "tool_call_id": id} for result, (id, name) in pairs]
    assert sent.body == {
        "model": "a-model",
        "messages": [*OPENING, {"role": "assistant", "content": "", "tool_calls": calls}, *results, END],
        "tools": [FUNCTION],
        "stream": False,
        "truncate": False,
        "shift": False,  # otherwise the server cuts a long prompt
        "options": {"num_predict": 77, "num_ctx": 4096, "temperature": 0.25},
    }


FIELDS = {"openai": "max_tokens", "anthropic": "max_tokens system", "ollama": "options stream truncate shift"}


@every_provider
def test_tools_and_temperature_are_optional(provider: str) -> None:
    body = ask(provider, Say("ok"), TALK[:2], tools=())[1].body
    assert set(body) == {"model", "messages", *FIELDS[provider].split()}


def test_the_server_of_openai_gets_its_own_fields() -> None:
    body = OpenAI("key", "https://api.openai.com/v1").body(Request("gpt", TALK, max_output_tokens=99))
    assert (body["max_completion_tokens"], body["store"], "max_tokens" in body) == (99, False, False)


@pytest.mark.parametrize("opener", [OpenAI, Anthropic])
def test_a_key_with_a_line_break_is_refused_and_not_quoted(opener: Callable[[str, str], Model]) -> None:
    with pytest.raises(ModelNotConfigured) as caught:
        opener("sk-marker\nX-Evil: 1", "https://models.example")
    assert "marker" not in str(caught.value)


def test_at_most_the_last_four_stable_messages_are_marked() -> None:
    several = tuple(Message("user", f"part {number}", stable=True) for number in range(6))
    body = ask("anthropic", Say("ok"), several)[1].body
    assert ["cache_control" in block for block in body["messages"][0]["content"]] == [False] * 2 + [True] * 4


def test_empty_texts_are_left_out() -> None:
    quiet = (Message("system", ""), Message("user", "hi"), Message("assistant", " "), Message("user", "hello?"))
    body = ask("anthropic", Say("ok"), quiet)[1].body
    assert "system" not in body
    assert [block["text"] for block in body["messages"][0]["content"]] == ["hi", "hello?"]


def test_contexts_are_powers_of_two() -> None:
    sizes = ((0, 1), (3 * 3072, 512), (3 * 3073, 512))
    assert [context_tokens(prompt_bytes, output) for prompt_bytes, output in sizes] == [4096, 4096, 8192]


@every_provider
def test_a_lone_surrogate_does_not_break_the_call(provider: str) -> None:
    _, sent = ask(provider, Say("ok"), (Message("user", "broken \ud800 text"),))
    assert "broken ? text" in json.dumps(sent.body)


def test_tool_names_are_changed_to_valid_ones() -> None:
    assert [tool_name(name) for name in ("functions.delete", "", "é" * 99)] == ["functions_delete", "unnamed", "_" * 64]


@every_provider
def test_text_and_usage_are_read(provider: str) -> None:
    reply, _ = ask(provider, Say("hello", usage=Spent(prompt=100, completion=7, cached=60, stored=30)))
    cached = 0 if provider == "ollama" else 60
    assert reply == Reply("hello", (), Usage(100, cached, 7), "end", calls=1)


@every_provider
def test_text_and_calls_are_read_in_order(provider: str) -> None:
    reply, _ = ask(provider, Say("First this.", (Call("delete_memory", {"id": 2}, "x"), Call("finish", {}, "y"))))
    ids = ("call_6_0", "call_6_1") if provider == "ollama" else ("x", "y")  # Ollama sends none
    calls = ToolCall(ids[0], "delete_memory", {"id": 2}), ToolCall(ids[1], "finish", {})
    assert (reply.text, reply.tool_calls, reply.stop) == ("First this.", calls, "tool_calls")


@every_provider
def test_token_counts_are_optional(provider: str) -> None:
    without = Broken(lambda wire: {k: v for k, v in wire.items() if "usage" not in k and "eval" not in k})
    reply, _ = ask(provider, without)
    assert (reply.text, reply.usage) == ("hello", Usage())


@pytest.mark.parametrize(
    ("provider", "path", "reason", "stop"),
    [
        ("openai", "choices.0.finish_reason", "length", "length"),
        ("openai", "choices.0.finish_reason", None, "other"),
        ("openai", "choices.0.finish_reason", "tool_calls", "other"),  # without a call
        ("anthropic", "stop_reason", "max_tokens", "length"),
        ("ollama", "done_reason", "length", "length"),
    ],
)
def test_the_reason_to_stop_is_read(provider: str, path: str, reason: str | None, stop: str) -> None:
    assert ask(provider, Broken(change(path, reason)))[0].stop == stop


def test_the_reason_to_stop_of_a_reply_with_a_call() -> None:
    replies = [ask("openai", Say(calls=(Call("finish"),), stop=reason))[0] for reason in ("end", "length")]
    assert [reply.stop for reply in replies] == ["tool_calls", "length"]


def test_other_types_of_blocks_and_null_counts_are_ignored() -> None:
    def thinking(wire: dict[str, Any]) -> dict[str, Any]:
        usage = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": None}
        return wire | {"content": [{"type": "thinking", "thinking": "hm", "text": 5}, *wire["content"]], "usage": usage}

    reply, _ = ask("anthropic", Broken(thinking))
    assert (reply.text, reply.usage) == ("hello", Usage(prompt=5, completion=2))


def test_a_refusal_is_read_as_text() -> None:
    message = {"role": "assistant", "content": None, "refusal": "I would rather not."}
    assert ask("openai", Broken(change("choices.0.message", message)))[0].text == "I would rather not."


REQUEST = Request("m", (Message("assistant", "", (ToolCall("old", "x", {}),)), Message("tool", "", tool_call_id="old")))


def test_ids_of_calls_become_unique_in_the_conversation() -> None:
    rows: list[tuple[list[str | None], list[str]]] = [(["a", "b"], ["a", "b"]), (["old"], ["call_2_0"])]
    rows += [(ids, ["a", "call_2_1", "call_2_2"]) for ids in (["a", None, ""], ["a", "a", "a"])]
    for sent, kept in [*rows, (["call_2_1", None], ["call_2_1", "call_2_1_"])]:
        assert [call.id for call in tool_calls([(id, "x", {}) for id in sent], REQUEST)] == kept


@pytest.mark.parametrize(
    "value",
    ["{", "[]", '{"a": NaN}', '{"a": "\\ud800"}', '{"a":' * 9000, {"a": float("inf")}, "9" * 10_000],
    ids=lambda value: str(value)[:12],
)
def test_only_an_object_or_its_text_is_read_as_arguments(value: Any) -> None:
    assert arguments_of(value) is None
    assert arguments_of({"id": 1}) == arguments_of(' {"id": 1} ') == {"id": 1}
