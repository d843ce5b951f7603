"""Ollama's /api/chat.

Ollama reads a prompt into a context of `num_ctx` tokens, a few thousand by default, and silently drops what does
not fit, from the front: the system text and the ledger's first memories. So every call sets `num_ctx` from an
estimate of the prompt and the output, and asks newer servers for an error instead of a shorter prompt
(`truncate`, `shift`). A context costs memory and a new size reloads the model, hence the powers of two.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from refinement.llm import base, http
from refinement.llm.base import Message, Reply, Request, StopReason, Tool, Usage

BASE_URL = "http://127.0.0.1:11434"
WHO = "The Ollama server"
LEAST_CONTEXT = 4096
TEMPLATE_TOKENS = 512
STOPS: dict[str, StopReason] = {"stop": "end", "length": "length"}


class _Bill(http.Bill):
    """`prompt_eval_count` is left out by servers that had the whole prompt in their cache."""

    prompt_eval_count: http.Count | None = None
    eval_count: http.Count | None = None

    def spent(self) -> Usage:
        return Usage(prompt=self.prompt_eval_count or 0, completion=self.eval_count or 0)


class _Function(http.Wire):
    name: str
    arguments: Any = None


class _Asked(http.Wire):
    id: str | None = None
    function: _Function


class _Said(http.Wire):
    content: str | None = None
    tool_calls: list[_Asked] | None = None


class _Answer(_Bill):
    message: _Said
    done: Literal[True]
    done_reason: str | None = None


class Ollama:
    """A model served by Ollama, which asks for no key."""

    def __init__(
        self, base_url: str = BASE_URL, pauses: http.Pauses | None = None, gate: http.Gate | None = None
    ) -> None:
        self._server = http.Server(WHO, base_url, {}, pauses, gate)

    def complete(self, request: Request) -> Reply:
        answer = self._server.post("/api/chat", _body(request), request)
        said = http.read(answer, _Answer, _Bill, WHO)
        asked = ((call.id, call.function.name, call.function.arguments) for call in said.message.tool_calls or ())
        calls = base.tool_calls(asked, request)
        return base.reply(said.message.content or "", calls, said.done_reason, STOPS, said.spent(), answer.calls)


def context_tokens(prompt_bytes: int, output_tokens: int) -> int:
    """`num_ctx` for a prompt of that many bytes: three to a token, which errs on the large side for most scripts."""
    needed = prompt_bytes // 3 + output_tokens + TEMPLATE_TOKENS
    return max(LEAST_CONTEXT, 1 << (needed - 1).bit_length())


def _body(request: Request) -> dict[str, Any]:
    names = {call.id: call.name for message in request.messages for call in message.tool_calls}
    prompt: dict[str, Any] = {"messages": [_message(message, names) for message in request.messages]}
    if request.tools:
        prompt["tools"] = [_tool(tool) for tool in request.tools]
    options: dict[str, float] = {"num_predict": request.max_output_tokens, "num_ctx": _context_for(prompt, request)}
    if request.temperature is not None:
        options["temperature"] = request.temperature
    return {
        "model": request.model,
        **prompt,
        "stream": False,
        "truncate": False,
        "shift": False,
        "options": options,
    }


def _context_for(prompt: dict[str, Any], request: Request) -> int:
    size = len(json.dumps(prompt, ensure_ascii=False).encode("utf-8", "replace"))
    size += request.long.size if request.long else 0
    return context_tokens(size, request.max_output_tokens)


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _message(message: Message, names: dict[str, str]) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "tool":
        # Older servers know a result by its tool's name, newer ones also by the call's id.
        sent |= {"tool_name": names.get(message.tool_call_id, ""), "tool_call_id": message.tool_call_id}
    if message.tool_calls:
        sent["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": call.arguments or {}}}
            for call in message.tool_calls
        ]
    return sent
