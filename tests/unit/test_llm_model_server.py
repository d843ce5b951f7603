"""The scripted server is as strict as the real ones, and its own script works in all three protocols."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from refinement.llm import connections
from refinement.llm.anthropic import Anthropic
from refinement.llm.base import Message, Model, Reply, Request, Tool
from refinement.llm.ollama import Ollama
from refinement.llm.openai import OpenAI
from tests.model_server import ModelServer, Say, Turn, tidy

USER = {"role": "user", "content": "hi"}
CALL = {"id": "a", "type": "function", "function": {"name": "x", "arguments": "{}"}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TELLS = {"role": "tool", "tool_call_id": "a", "content": "done"}
USES = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "x", "input": {}}]}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "done"}
TEXT = {"type": "text", "text": "hi"}
OLLAMA: dict[str, Any] = {"model": "m", "messages": [USER], "stream": False, "options": {"num_predict": 9}}
SAYS = {"role": "user", "content": [TEXT]}


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    yield
    connections.close_clients()


def status(path: str, body: dict[str, Any], headers: dict[str, str]) -> int:
    with ModelServer() as server, httpx.Client(trust_env=False) as client:
        return client.post(server.ollama_url + path, json=body, headers=headers).status_code


def openai(messages: list[Any], **more: Any) -> int:
    body = {"model": "m", "max_tokens": 9, "messages": messages, **more}
    return status("/v1/chat/completions", body, {"Authorization": "Bearer k"})


def anthropic(messages: list[Any], **more: Any) -> int:
    body = {"model": "m", "max_tokens": 9, "messages": messages, **more}
    return status("/v1/messages", body, {"x-api-key": "k", "anthropic-version": "2023-06-01"})


def test_good_conversations_are_taken() -> None:
    assert openai([USER, ASKS, TELLS]) == 200
    assert anthropic([SAYS, USES, {"role": "user", "content": [RESULT, TEXT]}]) == 200


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER, TELLS],
        [USER, ASKS],
        [USER, ASKS, USER],
        [USER, ASKS, TELLS, TELLS],
        [USER, ASKS, TELLS, ASKS, TELLS],
        [{"role": "robot", "content": "hi"}],
        [{"role": "user"}],
        [{"role": "user", "content": "hi", "mood": "good"}],
        [USER, {**ASKS, "tool_calls": [{**CALL, "function": {"name": "a b", "arguments": "{}"}}]}, TELLS],
    ],
)
def test_openai_is_strict(messages: list[Any]) -> None:
    assert openai(messages) == 400


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [SAYS, SAYS],
        [USES, SAYS],
        [SAYS, USES],
        [SAYS, USES, SAYS],
        [SAYS, USES, {"role": "user", "content": [TEXT, RESULT]}],
        [SAYS, USES, {"role": "user", "content": [RESULT, RESULT]}],
        [{"role": "user", "content": [RESULT]}],
        [{"role": "user", "content": [{"type": "text", "text": ""}]}],
        [{"role": "user", "content": [{**TEXT, "cache_control": {"type": "ephemeral"}}] * 5}],
    ],
)
def test_anthropic_is_strict(messages: list[Any]) -> None:
    assert anthropic(messages) == 400


@pytest.mark.parametrize("change", [{"stream": True}, {"options": {"num_predict": 9, "num_ctx": 8}}, {"tools": [{}]}])
def test_ollama_is_strict(change: dict[str, Any]) -> None:
    assert status("/api/chat", OLLAMA, {}) == 200
    assert status("/api/chat", OLLAMA | change, {}) == 400


def test_a_key_is_asked_for() -> None:
    assert status("/v1/chat/completions", {}, {}) == status("/v1/messages", {}, {}) == 401


def test_a_script_that_asserts_fails_its_test() -> None:
    def script(turn: Turn) -> Say:
        raise AssertionError("not what was expected")

    server = ModelServer(script)
    with pytest.raises(AssertionError, match="not what"), server:
        httpx.post(f"{server.ollama_url}/api/chat", json=OLLAMA, trust_env=False)


# --- tidy -------------------------------------------------------------------------------------------------------

LEDGER = "\n".join(
    json.dumps({"id": number, "constitutional": number == 2, "content": f"fact  {number} {number}"})
    for number in range(1, 8)
)
TALK = (Message("system", "Refine."), Message("user", f"Your ledger:\n{LEDGER}\nGo on."))
TOOLS = (Tool("delete_memory", "Discards one.", {"type": "object", "properties": {}}),)
OPENERS: dict[str, Callable[[ModelServer], Model]] = {
    "openai": lambda server: OpenAI("key", server.openai_url),
    "anthropic": lambda server: Anthropic("key", server.anthropic_url),
    "ollama": lambda server: Ollama(server.ollama_url),
}


@pytest.fixture(params=OPENERS)
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    with ModelServer(tidy) as server:
        yield OPENERS[request.param](server)


def followed(reply: Reply) -> tuple[Message, ...]:
    results = (Message("tool", "done", tool_call_id=call.id) for call in reply.tool_calls)
    return (*TALK, Message("assistant", reply.text, reply.tool_calls), *results)


def test_tidy_edits_each_in_its_way_and_completes(model: Model) -> None:
    first = model.complete(Request("tidy", TALK, TOOLS))
    assert [(call.name, call.arguments) for call in first.tool_calls] == [
        ("consolidate_memories", {"ids_to_merge": [1, 3], "new_content": "fact  1 1 fact  3 3"}),
        ("update_memory", {"id": 4, "content": "fact 4"}),
        ("delete_memory", {"id": 5}),
        ("protect_memory", {"id": 6}),
    ]
    last = model.complete(Request("tidy", followed(first), TOOLS))
    assert [call.name for call in last.tool_calls] == ["complete_refinement"]


def test_tidy_completes_at_once_when_there_is_nothing(model: Model) -> None:
    reply = model.complete(Request("tidy", (Message("user", "Nothing here."),), TOOLS))
    assert [call.name for call in reply.tool_calls] == ["complete_refinement"]


def test_it_runs_by_hand() -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.model_server", "tests.model_server:tidy"],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            lines = [process.stdout.readline() for _ in range(3)]
            address = lines[2].strip().removeprefix("OLLAMA_BASE_URL=")
            assert Ollama(address).complete(Request("tidy", TALK, TOOLS)).stop == "tool_calls"
        finally:
            process.kill()
