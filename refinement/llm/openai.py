"""OpenAI's Chat Completions, and the many servers that speak the same.

Two things are sent to OpenAI itself and to no other server, which may refuse fields it does not know:
`max_completion_tokens` (its reasoning models refuse the older `max_tokens`, which compatible servers expect), and
`store: false`, for new accounts keep conversations unless told not to.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from refinement.llm import base, http
from refinement.llm.base import Message, Reply, Request, StopReason, Tool, ToolCall, Usage

BASE_URL = "https://api.openai.com/v1"
WHO = "The OpenAI server"
STOPS: dict[str, StopReason] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}


class _CachedTokens(http.Wire):
    cached_tokens: http.Count | None = None


class _Tokens(http.Wire):
    prompt_tokens: http.Count
    completion_tokens: http.Count = 0
    prompt_tokens_details: _CachedTokens | None = None


class _Bill(http.Bill):
    usage: _Tokens | None = None

    def spent(self) -> Usage:
        if self.usage is None:
            return Usage()
        details = self.usage.prompt_tokens_details
        cached = details.cached_tokens if details else None
        return Usage(self.usage.prompt_tokens, cached or 0, self.usage.completion_tokens)


class _Function(http.Wire):
    name: str
    arguments: Any = None


class _Asked(http.Wire):
    id: str | None = None
    function: _Function


class _Said(http.Wire):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Asked] | None = None


class _Choice(http.Wire):
    message: _Said
    finish_reason: str | None = None


class _Completion(_Bill):
    choices: list[_Choice]


class OpenAI:
    """A model behind Chat Completions. `official` means OpenAI itself, which needs a key; other servers may not."""

    def __init__(
        self,
        api_key: str = "",
        base_url: str = BASE_URL,
        pauses: http.Pauses | None = None,
        gate: http.Gate | None = None,
    ) -> None:
        key = http.checked_key(api_key, WHO)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._server = http.Server(WHO, base_url, headers, pauses, gate)
        self.official = httpx.URL(self._server.base_url).host == httpx.URL(BASE_URL).host

    def complete(self, request: Request) -> Reply:
        answer = self._server.post("/chat/completions", self._body(request), request)
        completion = http.read(answer, _Completion, _Bill, WHO)
        if not completion.choices:
            raise base.ModelReplyInvalid(
                f"{WHO} sent a reply without choices.",
                completion.spent(),
                answer.calls,
                said="response contains no choices",
            )
        choice = completion.choices[0]
        said = choice.message
        asked = ((call.id, call.function.name, call.function.arguments) for call in said.tool_calls or ())
        calls = base.tool_calls(asked, request)
        text = said.content or said.refusal or ""
        return base.reply(text, calls, choice.finish_reason, STOPS, completion.spent(), answer.calls)

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {"model": request.model}
        if request.tools:
            body["tools"] = [tool(each) for each in request.tools]
        body["messages"] = [_message(message) for message in request.messages]
        body["max_completion_tokens" if self.official else "max_tokens"] = request.max_output_tokens
        if self.official:
            body["store"] = False
        if request.temperature is not None:
            body["temperature"] = request.temperature
        return body


def tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _message(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "tool":
        sent["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        sent["tool_calls"] = [_call(call) for call in message.tool_calls]
    return sent


def _call(call: ToolCall) -> dict[str, Any]:
    # Arguments that were no object go back as an empty one: the tool's answer says what was wrong with them.
    arguments = json.dumps(call.arguments or {}, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": base.tool_name(call.name), "arguments": arguments}}
