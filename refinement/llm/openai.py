"""OpenAI's Chat Completions, and the many servers that use the same protocol.

Some servers refuse unknown fields. So these fields are not always sent:

- `max_completion_tokens`: OpenAI and its reasoning models on other servers refuse the older `max_tokens`. Other models
  get `max_tokens`.
- `store: false`, only for OpenAI itself: without this field, it stores the conversations of new accounts.
"""

import json
import re
from typing import Any

from pydantic import AliasPath, Field

from refinement.llm import http
from refinement.llm.base import Message, ModelNotConfigured, ModelReplyInvalid, Request, Tool, ToolCall, Usage
from refinement.providers import Availability

_REASONING = re.compile(r"(.*/)?(o\d|gpt-[5-9])", re.IGNORECASE)


class _Tokens(http.Wire):
    prompt_tokens: http.Count
    completion_tokens: http.Count = 0
    cached: http.Count | None = Field(None, validation_alias=AliasPath("prompt_tokens_details", "cached_tokens"))


class _Cost(http.Cost):
    usage: _Tokens | None = None

    def spent(self) -> Usage:
        if self.usage is None:
            return Usage()
        return Usage(self.usage.prompt_tokens, self.usage.cached or 0, self.usage.completion_tokens)


class _Function(http.Wire):
    name: str
    arguments: Any = None


class RequestedCall(http.Wire):
    id: str | None = None
    function: _Function

    def parts(self) -> tuple[str | None, str, Any]:
        return self.id, self.function.name, self.function.arguments


class _Message(http.Wire):
    content: str | None = None
    refusal: str | None = None
    tool_calls: http.Few[RequestedCall] | None = None


class _Choice(http.Wire):
    message: _Message
    finish_reason: str | None = None


class _Answer(_Cost):
    choices: http.Few[_Choice]


class OpenAI(http.HttpModel):
    """A model on a server with Chat Completions. `is_official` is true for OpenAI itself. OpenAI needs a key. Other
    servers may not need one."""

    who = "The OpenAI server"
    settings = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
    path = "/chat/completions"
    cost = _Cost
    answer = _Answer
    stops = {"stop": "end", "length": "length", "tool_calls": "tool_calls", "function_call": "tool_calls"}

    def __init__(self, api_key: str, base_url: str, availability: Availability | None = None) -> None:
        key = http.checked_key(api_key, self.who)
        super().__init__(base_url, {"Authorization": f"Bearer {key}"} if key else {}, availability)
        self.is_official = re.match(r"https?://api\.openai\.com([:/]|$)", self.base_url, re.IGNORECASE) is not None
        if self.is_official and not key:
            raise ModelNotConfigured("No OpenAI key on this server: set OPENAI_API_KEY.")

    def body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {"model": request.model}
        if request.tools:
            body["tools"] = [tool(each) for each in request.tools]
        if request.must_call:
            body["tool_choice"] = "required"
        body["messages"] = [_message(message) for message in request.messages]
        is_new = self.is_official or _REASONING.match(request.model)
        body["max_completion_tokens" if is_new else "max_tokens"] = request.max_output_tokens
        if self.is_official:
            body["store"] = False
        if request.temperature is not None:
            body["temperature"] = request.temperature
        return body

    def read(self, answer: _Answer) -> http.Content:
        if not answer.choices:
            message = f"{self.who} sent a reply without choices."
            raise ModelReplyInvalid(message, answer.spent(), server_message="response contains no choices")
        choice = answer.choices[0]
        text = choice.message.content or choice.message.refusal or ""
        return http.Content(text, map(RequestedCall.parts, choice.message.tool_calls or ()), choice.finish_reason)


def tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def tool_name(name: str) -> str:
    """The name of a called tool, in a form that providers accept. The model may have called a tool with any name."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def _message(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "tool":
        sent["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        sent["tool_calls"] = [_call(call) for call in message.tool_calls]
    return sent


def _call(call: ToolCall) -> dict[str, Any]:
    # Invalid arguments are sent back as an empty object. The tool's result says what was wrong.
    arguments = json.dumps(call.arguments or {}, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": tool_name(call.name), "arguments": arguments}}
