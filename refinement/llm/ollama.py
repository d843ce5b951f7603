"""Ollama's /api/chat.

Ollama has a context of `num_ctx` tokens, by default a few thousand. If a prompt is longer, Ollama drops the start of
the prompt (the system text and the first memories), and reports no error. So every call estimates the size of prompt
and output, and sets `num_ctx`. If `truncate` and `shift` are false, newer servers answer a longer prompt with an error,
and drop nothing. A large context needs much RAM or GPU memory. Ollama reloads the model for each new size, so sizes are
powers of two.
"""

import json
from typing import Any, Literal

from refinement.llm import http, openai
from refinement.llm.base import Message, Request, Usage
from refinement.providers import Availability

LEAST_CONTEXT = 4096
TEMPLATE_TOKENS = 512


class _Cost(http.Cost):
    """The tokens of a reply. If the whole prompt is in the server's cache, the reply has no `prompt_eval_count`."""

    prompt_eval_count: http.Count | None = None
    eval_count: http.Count | None = None

    def spent(self) -> Usage:
        return Usage(prompt=self.prompt_eval_count or 0, completion=self.eval_count or 0)


class _Message(http.Wire):
    content: str | None = None
    tool_calls: http.Few[openai.RequestedCall] | None = None


class _Answer(_Cost):
    message: _Message
    done: Literal[True]
    done_reason: str | None = None


class Ollama(http.HttpModel):
    """A model on an Ollama server. It needs no key."""

    who = "The Ollama server"
    settings = ("OLLAMA_BASE_URL", "OLLAMA_BASE_URL")
    path = "/api/chat"
    cost = _Cost
    answer = _Answer
    stops = {"stop": "end", "length": "length"}

    def __init__(self, base_url: str, availability: Availability | None = None) -> None:
        super().__init__(base_url, {}, availability)

    def body(self, request: Request) -> dict[str, Any]:
        names = {call.id: call.name for message in request.messages for call in message.tool_calls}
        prompt: dict[str, Any] = {"messages": [_message(message, names) for message in request.messages]}
        if request.tools:
            prompt["tools"] = [openai.tool(each) for each in request.tools]
        size = len(json.dumps(prompt, ensure_ascii=False).encode("utf-8", "replace"))
        size += request.long.size if request.long else 0
        context = context_tokens(size, request.max_output_tokens)
        options: dict[str, float] = {"num_predict": request.max_output_tokens, "num_ctx": context}
        if request.temperature is not None:
            options["temperature"] = request.temperature
        never_cut = {"stream": False, "truncate": False, "shift": False}
        return {"model": request.model, **prompt, **never_cut, "options": options}

    def read(self, answer: _Answer) -> http.Content:
        calls = map(openai.RequestedCall.parts, answer.message.tool_calls or ())
        return http.Content(answer.message.content or "", calls, answer.done_reason)


def context_tokens(prompt_bytes: int, output_tokens: int) -> int:
    """The value of `num_ctx` for a prompt of this size. The estimate is one token for three bytes, which is enough for
    most writing systems."""
    needed = prompt_bytes // 3 + output_tokens + TEMPLATE_TOKENS
    return max(LEAST_CONTEXT, 1 << (needed - 1).bit_length())


def _message(message: Message, names: dict[str, str]) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "tool":
        # Older servers identify a result by its tool's name, newer ones also by the call's id.
        sent |= {"tool_name": names.get(message.tool_call_id, ""), "tool_call_id": message.tool_call_id}
    if message.tool_calls:
        sent["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.arguments or {}}}
            for call in message.tool_calls
        ]
    return sent
