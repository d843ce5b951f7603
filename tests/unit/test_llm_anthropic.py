"""What is said to the Messages API, and how its answers are understood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from refinement.llm import connections
from refinement.llm.anthropic import Anthropic
from refinement.llm.base import Message, Reply, Request, Tool, ToolCall, Usage
from tests.model_server import Broken, Call, ModelServer, Say, Script, Spent

TOOL = Tool("delete_memory", "Discards one.", {"type": "object", "properties": {}})
MARK = {"type": "ephemeral"}
TALK = (
    Message("system", "Be careful.", stable=True),
    Message("user", "Here is the ledger.", stable=True),
    Message("assistant", "", (ToolCall("a", "delete_memory", {"id": 1}), ToolCall("b", "delete_memory", None))),
    Message("tool", "gone", tool_call_id="a"),
    Message("tool", "ids must be numbers", tool_call_id="b", failed=True),
    Message("user", "Go on."),
)


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    yield
    connections.close_clients()


def ask(
    script: Script, messages: tuple[Message, ...] = TALK, **fields: Any
) -> tuple[Reply, dict[str, Any], dict[str, str]]:
    """The reply, and the body and headers that the server got."""
    with ModelServer(script) as server:
        reply = Anthropic("key", server.anthropic_url).complete(Request("claude", messages, (TOOL,), **fields))
        assert server.refused == []
        return reply, server.requests[0].body, server.requests[0].headers


def test_a_conversation_is_put_in_its_terms() -> None:
    _, body, headers = ask(Say("ok"))
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("key", "2023-06-01")
    assert [block["text"] for block in body["system"]] == ["Be careful."]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["max_tokens"] == 4096
    assert body["tools"] == [{"name": TOOL.name, "description": TOOL.description, "input_schema": TOOL.schema}]


def test_results_of_one_reply_go_back_together_ahead_of_text() -> None:
    _, body, _ = ask(Say("ok"))
    gone, failed, text = body["messages"][2]["content"]
    assert gone == {"type": "tool_result", "tool_use_id": "a", "content": "gone"}
    assert failed == {"type": "tool_result", "tool_use_id": "b", "content": "ids must be numbers", "is_error": True}
    assert text == {"type": "text", "text": "Go on."}


def test_arguments_that_were_none_go_back_as_an_object() -> None:
    _, body, _ = ask(Say("ok"))
    assert [block["input"] for block in body["messages"][1]["content"]] == [{"id": 1}, {}]


def test_stable_messages_are_marked_for_the_cache() -> None:
    _, body, _ = ask(Say("ok"))
    assert body["system"][0]["cache_control"] == MARK
    assert body["messages"][0]["content"][0]["cache_control"] == MARK
    assert "cache_control" not in body["messages"][2]["content"][-1]


def test_only_the_last_four_marks_are_kept() -> None:
    several = tuple(Message("user", f"part {number}", stable=True) for number in range(6))
    _, body, _ = ask(Say("ok"), several)
    assert ["cache_control" in block for block in body["messages"][0]["content"]] == [False] * 2 + [True] * 4


def test_empty_texts_are_left_out() -> None:
    quiet = (Message("system", ""), Message("user", "hi"), Message("assistant", " "), Message("user", "hello?"))
    _, body, _ = ask(Say("ok"), quiet)
    assert "system" not in body
    assert [block["text"] for block in body["messages"][0]["content"]] == ["hi", "hello?"]


def test_text_and_usage_are_read() -> None:
    reply, _, _ = ask(Say("hello", usage=Spent(prompt=100, completion=7, cached=60, stored=30)))
    assert reply == Reply("hello", (), Usage(prompt=100, cached=60, completion=7), "end", calls=1)


def test_counts_of_the_cache_may_be_null() -> None:
    def change(wire: dict[str, Any]) -> dict[str, Any]:
        return wire | {"usage": {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": None}}

    assert ask(Broken(change))[0].usage == Usage(prompt=5, completion=2)


def test_text_and_calls_come_together() -> None:
    reply, _, _ = ask(Say("First this.", (Call("delete_memory", {"id": 2}, "x"), Call("finish", {}, "y"))))
    assert reply.text == "First this."
    assert reply.tool_calls == (ToolCall("x", "delete_memory", {"id": 2}), ToolCall("y", "finish", {}))
    assert reply.stop == "tool_calls"


def test_blocks_nobody_asked_for_are_passed_over() -> None:
    def change(wire: dict[str, Any]) -> dict[str, Any]:
        return wire | {"content": [{"type": "thinking", "thinking": "hm", "text": 5}, *wire["content"]]}

    assert ask(Broken(change))[0].text == "hello"


@pytest.mark.parametrize(
    ("said", "stop"), [("end_turn", "end"), ("max_tokens", "length"), ("refusal", "other"), ("pause_turn", "other")]
)
def test_why_it_stopped(said: str, stop: str) -> None:
    assert ask(Broken(lambda wire: wire | {"stop_reason": said}))[0].stop == stop


def test_temperature_is_sent_when_given() -> None:
    assert ask(Say("ok"), temperature=0.5)[1]["temperature"] == 0.5
