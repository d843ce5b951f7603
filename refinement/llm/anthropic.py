"""Anthropic's Messages API.

System text is a separate field. User messages and assistant messages must alternate, so the results of several tools
go into one user message, before any text. The server refuses an empty text block. A message that is `stable`
gets a cache mark: the prompt cache can serve everything up to a mark. The server allows at most four marks. The last
four are used, because each mark covers everything before it.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from refinement.llm import http
from refinement.llm.base import Message, ModelNotConfigured, Request, Tool, Usage
from refinement.llm.openai import tool_name
from refinement.providers import Availability

VERSION = "2023-06-01"
CACHE_MARKS = 4


class _Tokens(http.Wire):
    input_tokens: http.Count
    output_tokens: http.Count
    cache_read_input_tokens: http.Count | None = None
    cache_creation_input_tokens: http.Count | None = None


class _Cost(http.Cost):
    usage: _Tokens | None = None

    def spent(self) -> Usage:
        """The tokens of the call. The server's `input_tokens` does not include the tokens that the cache served or
        stored, so they are added."""
        if self.usage is None:
            return Usage()
        read = self.usage.cache_read_input_tokens or 0
        stored = self.usage.cache_creation_input_tokens or 0
        return Usage(self.usage.input_tokens + read + stored, read, self.usage.output_tokens)


class _Text(http.Wire):
    type: Literal["text"]
    text: str


class _ToolUse(http.Wire):
    type: Literal["tool_use"]
    id: str | None = None
    name: str
    input: Any = None


class _Answer(_Cost):
    content: http.Few[Annotated[_Text | _ToolUse, Field(discriminator="type")]]
    stop_reason: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _without_other_blocks(cls, content: Any) -> Any:
        """Keep only text blocks and tool calls. Other blocks, such as thinking, are left out."""
        return [block for block in content if not _is_other(block)] if isinstance(content, list) else content


def _is_other(block: object) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    return isinstance(kind, str) and kind not in ("text", "tool_use")


class Anthropic(http.HttpModel):
    """A model behind the Messages API."""

    who = "The Anthropic server"
    settings = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    path = "/v1/messages"
    cost = _Cost
    answer = _Answer
    stops = {
        "end_turn": "end",
        "stop_sequence": "end",
        "tool_use": "tool_calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
    }

    def __init__(self, api_key: str, base_url: str, availability: Availability | None = None) -> None:
        key = http.checked_key(api_key, self.who)
        if not key:
            raise ModelNotConfigured("No Anthropic key on this server: set ANTHROPIC_API_KEY.")
        super().__init__(base_url, {"x-api-key": key, "anthropic-version": VERSION}, availability)

    def body(self, request: Request) -> dict[str, Any]:
        written = [(message, _blocks(message)) for message in request.messages]
        for block in [blocks[-1] for message, blocks in written if message.stable and blocks][-CACHE_MARKS:]:
            block["cache_control"] = {"type": "ephemeral"}
        body: dict[str, Any] = {"model": request.model, "max_tokens": request.max_output_tokens}
        if request.tools:
            body["tools"] = [tool(each) for each in request.tools]
        if request.must_call:
            body["tool_choice"] = {"type": "any"}
        if system := [block for message, blocks in written if message.role == "system" for block in blocks]:
            body["system"] = system
        body["messages"] = _turns(written)
        if request.temperature is not None:
            body["temperature"] = request.temperature
        return body

    def read(self, answer: _Answer) -> http.Content:
        text = "".join(block.text for block in answer.content if isinstance(block, _Text))
        calls = [(block.id, block.name, block.input) for block in answer.content if isinstance(block, _ToolUse)]
        if calls and self.stops.get(answer.stop_reason or "") == "length":
            calls[-1] = (*calls[-1][:2], None)  # the input of the last call may be incomplete
        return http.Content(text, calls, answer.stop_reason)


def tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.text}
        return [{**result, "is_error": True} if message.failed else result]
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": tool_name(call.name), "input": call.arguments or {}}
        for call in message.tool_calls
    ]
    return text + calls


def _turns(written: Iterable[tuple[Message, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """Join consecutive messages of the same role, so that user messages and assistant messages alternate."""
    turns: list[dict[str, Any]] = []
    for message, blocks in written:
        if message.role == "system" or not blocks:
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": [*blocks]})
    return turns
