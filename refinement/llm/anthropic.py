"""Anthropic's Messages API.

Its rules, which a neutral conversation does not know: system text stands apart; user and assistant alternate, so
results of tools that ran together go back in one user message, ahead of any text; an empty text block is refused.
A message marked `stable` ends a prefix that its prompt cache may serve. At most four marks are allowed: the last
four are kept, for each covers everything before it, tools included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from refinement.llm import base, http
from refinement.llm.base import Message, Reply, Request, StopReason, Tool, Usage

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
WHO = "The Anthropic server"
CACHE_MARKS = 4
STOPS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


class _Tokens(http.Wire):
    input_tokens: http.Count
    output_tokens: http.Count
    cache_read_input_tokens: http.Count | None = None
    cache_creation_input_tokens: http.Count | None = None


class _Bill(http.Bill):
    usage: _Tokens

    def spent(self) -> Usage:
        """`input_tokens` leaves out what the cache served or took in: the prompt is all three."""
        tokens = self.usage
        read = tokens.cache_read_input_tokens or 0
        prompt = tokens.input_tokens + read + (tokens.cache_creation_input_tokens or 0)
        return Usage(prompt, read, tokens.output_tokens)


class _Text(http.Wire):
    type: Literal["text"]
    text: str


class _ToolUse(http.Wire):
    type: Literal["tool_use"]
    id: str | None = None
    name: str
    input: Any = None


class _Other(http.Wire):
    """A kind of block nobody asked for, such as thinking."""

    type: str


def _kind(block: Any) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if kind in ("text", "tool_use") else "other"


_Block = Annotated[
    Annotated[_Text, Tag("text")] | Annotated[_ToolUse, Tag("tool_use")] | Annotated[_Other, Tag("other")],
    Discriminator(_kind),
]


class _Answer(_Bill):
    content: list[_Block]
    stop_reason: str | None = None


class _Uncounted(http.Bill):
    content: list[_Block]
    stop_reason: str | None = None
    usage: _Tokens | None = None

    def spent(self) -> Usage:
        return Usage() if self.usage is None else _Bill(usage=self.usage).spent()


class Anthropic:
    """A model behind the Messages API."""

    def __init__(
        self,
        api_key: str,
        base_url: str = BASE_URL,
        pauses: http.Pauses | None = None,
        gate: http.Gate | None = None,
    ) -> None:
        headers = {"x-api-key": http.checked_key(api_key, WHO), "anthropic-version": VERSION}
        self._server = http.Server(WHO, base_url, headers, pauses, gate)

    def complete(self, request: Request) -> Reply:
        answer = self._server.post("/v1/messages", _body(request), request)
        shape: type[_Answer | _Uncounted] = _Answer if request.counts else _Uncounted
        said = http.read(answer, shape, _Bill, WHO)
        text = "".join(block.text for block in said.content if isinstance(block, _Text) and block.text)
        asked = ((block.id, block.name, block.input) for block in said.content if isinstance(block, _ToolUse))
        calls = base.tool_calls(asked, request)
        return base.reply(text, calls, said.stop_reason, STOPS, said.spent(), answer.calls)


def _body(request: Request) -> dict[str, Any]:
    written = [(message, _blocks(message)) for message in request.messages]
    _mark_cached(blocks[-1] for message, blocks in written if message.stable and blocks)
    body: dict[str, Any] = {"model": request.model, "max_tokens": request.max_output_tokens}
    if request.tools:
        body["tools"] = [tool(each) for each in request.tools]
    system = [block for message, blocks in written if message.role == "system" for block in blocks]
    if system:
        body["system"] = system
    body["messages"] = list(_turns(written))
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body


def tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [_result(message)]
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    return text + [
        {"type": "tool_use", "id": call.id, "name": base.tool_name(call.name), "input": call.arguments or {}}
        for call in message.tool_calls
    ]


def _result(message: Message) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.text}
    if message.failed:
        block["is_error"] = True
    return block


def _mark_cached(ends: Iterable[dict[str, Any]]) -> None:
    for block in list(ends)[-CACHE_MARKS:]:
        block["cache_control"] = {"type": "ephemeral"}


def _turns(written: Iterable[tuple[Message, list[dict[str, Any]]]]) -> Iterator[dict[str, Any]]:
    """User and assistant in alternation: neighbours that speak for the same side are one turn."""
    turn: dict[str, Any] | None = None
    for message, blocks in written:
        if message.role == "system" or not blocks:
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if turn and turn["role"] == role:
            turn["content"] += blocks
            continue
        if turn:
            yield turn
        turn = {"role": role, "content": [*blocks]}
    if turn:
        yield turn
