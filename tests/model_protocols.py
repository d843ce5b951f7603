"""The protocols of OpenAI, Anthropic and Ollama, as their servers speak them, and the actions of a scripted model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

# --- actions, and the requests that they answer


@dataclass(frozen=True)
class Call:
    """A tool call. `args` that are no object are sent as they are. The server makes an `id`; Ollama sends none."""

    name: str
    args: Any = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class Spent:
    """Tokens to report. `prompt` includes those read from a cache (`cached`) and written to it (`stored`)."""

    prompt: int
    completion: int
    cached: int = 0
    stored: int = 0


@dataclass(frozen=True)
class Say:
    """A reply: text, tool calls, or both. `stop` is end, tool_calls or length. By default it follows the calls."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    usage: Spent | None = None
    stop: str = ""


@dataclass(frozen=True)
class Status:
    """An HTTP status other than success."""

    code: int
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None


@dataclass(frozen=True)
class Cut:
    """Close the connection: before any response, or in the middle of one."""

    midway: bool = True


@dataclass(frozen=True)
class Slow:
    """Wait `seconds`, then play `then`. `drip` is the time between two bytes, headers included."""

    seconds: float = 0.0
    drip: float = 0.0
    then: Action | None = None


@dataclass(frozen=True)
class Endless:
    """A 200 whose body never ends."""


@dataclass(frozen=True)
class Raw:
    """A 200 whose body is exactly this."""

    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Broken:
    """A good reply that `change` turns into something else, as a JSON object of the protocol."""

    change: Callable[[dict[str, Any]], Any]
    then: Say = Say("hello")


Action = Say | Call | list[Call] | Status | Cut | Slow | Endless | Raw | Broken


@dataclass(frozen=True)
class Message:
    """One message of a conversation, in any protocol. `role` is user, assistant or tool."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    failed: bool = False


@dataclass(frozen=True)
class Turn:
    """One request: its place among all requests, and its conversation."""

    number: int
    protocol: str
    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...]

    @property
    def results(self) -> tuple[Message, ...]:
        """The tools' results for the calls of the last reply."""
        last = max((n for n, message in enumerate(self.messages) if message.role == "assistant"), default=-1)
        return tuple(message for message in self.messages[last + 1 :] if message.role == "tool")

    def ledger(self) -> list[dict[str, Any]]:
        """The memories listed in the conversation: `id`, `content`, and the details that are set."""
        lines = [line for message in self.messages if message.role == "user" for line in message.text.split("\n")]
        rows = [json.loads(line) for line in lines if re.match(r'\[\d+,"', line)]
        return [{"id": number, "content": content, **(rest[0] if rest else {})} for number, content, *rest in rows]


def json_object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


Script = Callable[[Turn], Action] | Sequence[Action] | Action

# --- the protocols


class Refused(Exception):
    """The real server would refuse the request with this status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def require(condition: object, message: str) -> None:
    if not condition:
        raise Refused(message)


def _name(name: str) -> str:
    require(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name), "a tool's name is not allowed")
    return name


class OpenAIProtocol:
    """Chat Completions."""

    name = "openai"
    path = "/v1/chat/completions"
    stops: ClassVar = {"end": "stop", "tool_calls": "tool_calls", "length": "length"}

    def read(self, headers: dict[str, str], body: dict[str, Any], number: int) -> Turn:
        if not re.fullmatch(r"Bearer \S+", headers.get("authorization", "")):
            raise Refused("no API key", 401)
        require(("max_tokens" in body) != ("max_completion_tokens" in body), "give one limit of output")
        return self._turn(body, number)

    def _turn(self, body: dict[str, Any], number: int) -> Turn:
        messages = [self._message(message) for message in body["messages"]]
        _check_calls(messages)
        system = "\n".join(each.text for each in messages if each.role == "system")
        rest = tuple(each for each in messages if each.role != "system")
        tools = tuple(_name(tool["function"]["name"]) for tool in body.get("tools", ()))
        return Turn(number, self.name, body["model"], system, rest, tools)

    def _message(self, message: dict[str, Any]) -> Message:
        calls = tuple(map(self._call, message.get("tool_calls", ())))
        return Message(message["role"], message["content"], calls, message.get("tool_call_id", ""))

    def _call(self, call: dict[str, Any]) -> Call:
        arguments = json_object(call["function"]["arguments"])
        require(arguments is not None, "arguments in the history must be a JSON object")
        return Call(_name(call["function"]["name"]), arguments, call["id"])

    def reply(self, say: Say, spent: Spent) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": say.text or None, "refusal": None}
        if say.calls:
            message["tool_calls"] = list(map(self._tool_call, say.calls))
        usage = {
            "prompt_tokens": spent.prompt,
            "completion_tokens": spent.completion,
            "total_tokens": spent.prompt + spent.completion,
            "prompt_tokens_details": {"cached_tokens": spent.cached, "audio_tokens": 0},
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.stops[say.stop]}
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "choices": [choice], "usage": usage}

    def _tool_call(self, call: Call) -> dict[str, Any]:
        arguments = call.args if isinstance(call.args, str) else json.dumps(call.args)
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "error", "param": None, "code": status}}


class AnthropicProtocol:
    """The Messages API."""

    name = "anthropic"
    path = "/v1/messages"
    stops: ClassVar = {"end": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}

    def read(self, headers: dict[str, str], body: dict[str, Any], number: int) -> Turn:
        if not headers.get("x-api-key"):
            raise Refused("no API key", 401)
        require(json.dumps(body).count('"cache_control": {') <= 4, "at most 4 blocks may be cached")
        roles = [message["role"] for message in body["messages"]]
        alternating = ["user", "assistant"] * (len(roles) // 2) + ["user"]
        require(roles == alternating, "roles must alternate, user first and last")
        messages = tuple(
            each for message in body["messages"] for each in self._messages(message["role"], message["content"])
        )
        _check_calls(messages)
        system = "\n".join(map(self._text, body.get("system", ())))
        tools = tuple(_name(tool["name"]) for tool in body.get("tools", ()))
        return Turn(number, self.name, body["model"], system, messages, tools)

    def _messages(self, role: str, blocks: list[dict[str, Any]]) -> Iterator[Message]:
        results = [block for block in blocks if block["type"] == "tool_result"]
        require(results == blocks[: len(results)], "tool results must come before text")
        for block in results:
            yield Message("tool", block["content"], (), block["tool_use_id"], block.get("is_error", False))
        rest = blocks[len(results) :]
        uses = [block for block in rest if block["type"] == "tool_use"]
        text = "\n".join(self._text(block) for block in rest if block["type"] != "tool_use")
        if rest:
            yield Message(role, text, tuple(map(self._call, uses)))

    def _call(self, block: dict[str, Any]) -> Call:
        require(re.fullmatch(r"[A-Za-z0-9_-]+", block["id"]), "a tool_use id is not allowed")
        require(isinstance(block["input"], dict), "input must be an object")
        return Call(_name(block["name"]), block["input"], block["id"])

    def _text(self, block: dict[str, Any]) -> str:
        require(block["text"].strip(), "text blocks must not be empty")
        return str(block["text"])

    def reply(self, say: Say, spent: Spent) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": say.text}] if say.text else []
        content += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.args} for call in say.calls]
        usage = {
            "input_tokens": spent.prompt - spent.cached - spent.stored,
            "cache_read_input_tokens": spent.cached,
            "cache_creation_input_tokens": spent.stored,
            "output_tokens": spent.completion,
        }
        kind = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "stop_sequence": None}
        return {**kind, "content": content, "stop_reason": self.stops[say.stop], "usage": usage}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": "error", "message": message}}


class OllamaProtocol(OpenAIProtocol):
    """/api/chat. Refuses a prompt that the real server would cut to fit its context."""

    name = "ollama"
    path = "/api/chat"
    stops: ClassVar = {"end": "stop", "tool_calls": "stop", "length": "length"}

    def read(self, headers: dict[str, str], body: dict[str, Any], number: int) -> Turn:
        require(body["stream"] is False, "stream is on unless it is false")
        options = body["options"]
        prompt = len(json.dumps([body["messages"], body.get("tools")], ensure_ascii=False)) // 4
        require(prompt + options["num_predict"] <= options["num_ctx"], "num_ctx is too small for this prompt")
        return self._turn(body, number)

    def _message(self, message: dict[str, Any]) -> Message:
        require(message["role"] != "tool" or message["tool_name"], "a result needs its tool's name")
        return super()._message(message)

    def _call(self, call: dict[str, Any]) -> Call:
        require(isinstance(call["function"]["arguments"], dict), "arguments must be an object")
        return Call(call["function"]["name"], call["function"]["arguments"], call["id"])

    def reply(self, say: Say, spent: Spent) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": say.text}
        if say.calls:
            message["tool_calls"] = [{"function": {"name": each.name, "arguments": each.args}} for each in say.calls]
        counts = {"prompt_eval_count": spent.prompt, "eval_count": spent.completion, "total_duration": 1}
        done = {"done": True, "done_reason": self.stops[say.stop]}
        return {"model": "scripted", "created_at": "2026-01-01T00:00:00Z", "message": message, **done, **counts}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": message}


Protocol = OpenAIProtocol | AnthropicProtocol
PROTOCOLS: dict[str, Protocol] = {each.path: each for each in (OpenAIProtocol(), AnthropicProtocol(), OllamaProtocol())}


def _check_calls(messages: Sequence[Message]) -> None:
    """Each call has one result, in the messages right after it. There are no other results."""
    open_ids: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            require(message.call_id in open_ids, "a tool message answers no call of the reply before it")
            open_ids.remove(message.call_id)
            continue
        require(not open_ids, "a tool call has no result")
        open_ids = [call.id or "" for call in message.calls]
        new = set(open_ids)
        require(len(new) == len(open_ids) and "" not in new and not new & seen, "tool call ids must be unique")
        seen |= new
    require(not open_ids, "a tool call has no result")
