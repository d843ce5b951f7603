"""What is said to Chat Completions, and how its answers are understood."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from refinement.llm import connections
from refinement.llm.base import Message, ModelNotConfigured, Reply, Request, Tool, ToolCall, Usage
from refinement.llm.openai import OpenAI
from tests.model_server import Broken, Call, ModelServer, Say, Script, Spent

TOOL = Tool("delete_memory", "Discards one.", {"type": "object", "properties": {"id": {"type": "integer"}}})
TALK = (
    Message("system", "Be careful."),
    Message("user", "Here is the ledger."),
    Message("assistant", "", (ToolCall("a", "delete_memory", {"id": 1}), ToolCall("b", "delete memory!", None))),
    Message("tool", "gone", tool_call_id="a"),
    Message("tool", "no such tool", tool_call_id="b", failed=True),
)


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    yield
    connections.close_clients()


def ask(script: Script, **fields: Any) -> tuple[Reply, dict[str, Any], dict[str, str]]:
    """The reply, and the body and headers that the server got."""
    with ModelServer(script) as server:
        request = Request("gpt", **{"messages": TALK, "tools": (TOOL,), **fields})
        reply = OpenAI("key", server.openai_url).complete(request)
        assert server.refused == []
        return reply, server.requests[0].body, server.requests[0].headers


def test_a_conversation_is_put_in_its_terms() -> None:
    _, body, headers = ask(Say("ok"))
    assert headers["authorization"] == "Bearer key"
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert [message.get("tool_call_id") for message in body["messages"]] == [None, None, None, "a", "b"]
    first, second = body["messages"][2]["tool_calls"]
    assert json.loads(first["function"]["arguments"]) == {"id": 1}
    assert (second["function"]["name"], second["function"]["arguments"]) == ("delete_memory_", "{}")


def test_tools_carry_their_schema() -> None:
    _, body, _ = ask(Say("ok"))
    function = {"name": TOOL.name, "description": TOOL.description, "parameters": TOOL.schema}
    assert body["tools"] == [{"type": "function", "function": function}]


def test_what_is_not_asked_for_is_not_sent() -> None:
    _, body, _ = ask(Say("ok"), tools=())
    assert set(body) == {"model", "messages", "max_tokens"}


def test_temperature_is_sent_when_given() -> None:
    assert ask(Say("ok"), temperature=0.0)[1]["temperature"] == 0.0


def test_openai_itself_gets_its_own_fields() -> None:
    body = OpenAI("key")._body(Request("gpt", TALK, max_output_tokens=99))
    assert (body["max_completion_tokens"], body["store"]) == (99, False)
    assert "max_tokens" not in body


def test_a_compatible_server_may_need_no_key() -> None:
    assert "Authorization" not in OpenAI("", "http://127.0.0.1:1/v1")._server.headers


def test_text_and_usage_are_read() -> None:
    reply, _, _ = ask(Say("hello", usage=Spent(prompt=100, completion=7, cached=64)))
    assert reply == Reply("hello", (), Usage(prompt=100, cached=64, completion=7), "end", calls=1)


def test_calls_are_read_in_order() -> None:
    reply, _, _ = ask([[Call("delete_memory", {"id": 2}, "x"), Call("finish", {}, "y")]])
    assert reply.tool_calls == (ToolCall("x", "delete_memory", {"id": 2}), ToolCall("y", "finish", {}))
    assert reply.stop == "tool_calls"


def test_stop_beside_calls_means_calls() -> None:
    assert ask(Say(calls=(Call("finish"),), stop="end"))[0].stop == "tool_calls"


@pytest.mark.parametrize(
    ("said", "stop"), [("stop", "end"), ("length", "length"), ("content_filter", "other"), (None, "other")]
)
def test_why_it_stopped(said: str | None, stop: str) -> None:
    def change(wire: dict[str, Any]) -> dict[str, Any]:
        wire["choices"][0]["finish_reason"] = said
        return wire

    assert ask(Broken(change))[0].stop == stop


def test_a_refusal_is_its_text() -> None:
    def change(wire: dict[str, Any]) -> dict[str, Any]:
        wire["choices"][0]["message"] |= {"content": None, "refusal": "I would rather not."}
        return wire

    assert ask(Broken(change))[0].text == "I would rather not."


@pytest.mark.parametrize("missing", [{}, {"usage": None}, {"usage": {"prompt_tokens": 0}}])
def test_servers_that_count_nothing_are_borne(missing: dict[str, Any]) -> None:
    reply, _, _ = ask(Broken(lambda wire: {"choices": wire["choices"]} | missing))
    assert (reply.text, reply.usage) == ("hello", Usage())


def test_arguments_sent_as_an_object_are_taken() -> None:
    def change(wire: dict[str, Any]) -> dict[str, Any]:
        wire["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = {"id": 4}
        return wire

    assert ask(Broken(change, Say(calls=(Call("x"),))))[0].tool_calls[0].arguments == {"id": 4}


def test_a_key_that_cannot_be_sent_is_refused_unquoted() -> None:
    with pytest.raises(ModelNotConfigured) as caught:
        OpenAI("sk-marker\nX-Evil: 1")
    assert "marker" not in str(caught.value)


def test_half_a_surrogate_pair_does_not_break_the_call() -> None:
    _, body, _ = ask(Say("ok"), messages=(Message("user", "broken \ud800 text"),))
    assert body["messages"][0]["content"] == "broken ? text"
