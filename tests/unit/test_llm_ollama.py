"""What is said to Ollama, and how its answers are understood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from refinement.llm import connections
from refinement.llm.base import Message, Reply, Request, Tool, ToolCall, Usage
from refinement.llm.ollama import Ollama, context_tokens
from tests.model_server import Broken, Call, ModelServer, Say, Script, Spent

TOOL = Tool("delete_memory", "Discards one.", {"type": "object", "properties": {}})
TALK = (
    Message("system", "Be careful."),
    Message("user", "Here is the ledger."),
    Message("assistant", "", (ToolCall("a", "delete_memory", {"id": 1}), ToolCall("b", "finish", None))),
    Message("tool", "gone", tool_call_id="a"),
    Message("tool", "a summary is missing", tool_call_id="b", failed=True),
)


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    yield
    connections.close_clients()


def ask(script: Script, messages: tuple[Message, ...] = TALK, **fields: Any) -> tuple[Reply, dict[str, Any]]:
    """The reply, and the body that the server got."""
    with ModelServer(script) as server:
        reply = Ollama(server.ollama_url).complete(Request("llama3", messages, (TOOL,), **fields))
        assert server.refused == []
        return reply, server.requests[0].body


def test_a_conversation_is_put_in_its_terms() -> None:
    _, body = ask(Say("ok"))
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert [call["function"]["arguments"] for call in body["messages"][2]["tool_calls"]] == [{"id": 1}, {}]
    assert [message.get("tool_name") for message in body["messages"][3:]] == ["delete_memory", "finish"]
    assert body["stream"] is False


def test_limits_are_options() -> None:
    _, body = ask(Say("ok"), max_output_tokens=77, temperature=0.25)
    assert body["options"] == {"num_predict": 77, "temperature": 0.25, "num_ctx": 4096}


def test_a_long_prompt_gets_a_context_that_holds_it() -> None:
    long = (Message("system", "Be careful."), Message("user", "word " * 24_000))
    _, body = ask(Say("ok"), long)
    assert body["options"]["num_ctx"] == 65_536


def test_a_prompt_is_never_to_be_cut_in_silence() -> None:
    _, body = ask(Say("ok"))
    assert (body["truncate"], body["shift"]) == (False, False)


@pytest.mark.parametrize(
    ("prompt_bytes", "output", "context"),
    [(0, 1, 4096), (3 * 3072, 512, 4096), (3 * 3073, 512, 8192), (96_000, 4096, 65_536)],
)
def test_contexts_are_powers_of_two(prompt_bytes: int, output: int, context: int) -> None:
    assert context_tokens(prompt_bytes, output) == context


def test_text_and_usage_are_read() -> None:
    reply, _ = ask(Say("hello", usage=Spent(prompt=100, completion=7)))
    assert reply == Reply("hello", (), Usage(prompt=100, completion=7), "end", calls=1)


def test_counts_may_be_left_out() -> None:
    reply, _ = ask(Broken(lambda wire: {name: wire[name] for name in ("message", "done")}))
    assert (reply.text, reply.usage, reply.stop) == ("hello", Usage(), "other")


def test_calls_without_ids_get_the_same_ones_every_time() -> None:
    calls: Script = [[Call("delete_memory", {"id": 2}), Call("finish")]]
    reply, _ = ask(calls)
    assert [call.id for call in reply.tool_calls] == ["call_5_0", "call_5_1"]
    assert reply.tool_calls == ask(calls)[0].tool_calls
    assert reply.stop == "tool_calls"


def test_a_reply_cut_short_says_so() -> None:
    assert ask(Say("hel", stop="length"))[0].stop == "length"
