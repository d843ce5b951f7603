"""A real HTTP server on 127.0.0.1 that speaks the protocols of OpenAI, Anthropic and Ollama, and plays a script.

In a test:

    with ModelServer([Call("delete_memory", {"id": 3}), Say("done")]) as server:
        settings.OPENAI_BASE_URL = server.openai_url

A script is a list of actions played in order, one action played for ever, or a callable that is given the `Turn`
and returns an action; a list of calls inside a script is one reply that asks for them all. One script plays all
three protocols. A conversation that the real server would refuse is answered 400, and listed in `server.refused`.

By hand, to try a refinement against a model that needs no network:

    python -m tests.model_server tidy
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

# --- what a script sees and says


@dataclass(frozen=True)
class Call:
    """A tool call. `args` is an object; anything else is sent as it is, to see what the client makes of it.

    `id` is made by the server if not given, and never sent by Ollama.
    """

    name: str
    args: Any = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class Spent:
    """Tokens to report. `prompt` includes those read from (`cached`) and written to (`stored`) a cache."""

    prompt: int
    completion: int
    cached: int = 0
    stored: int = 0


@dataclass(frozen=True)
class Say:
    """A reply: text, tool calls, or both. `stop` is end, tool_calls or length; worked out when not given."""

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
    """The connection closed: before any answer, or when half of a good one is sent."""

    midway: bool = True


@dataclass(frozen=True)
class Slow:
    """`then` after `seconds` of silence, and with `drip` that many seconds between its bytes, headers included."""

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
    """A good reply with one thing changed: `change` is given the wire object and returns what to send instead."""

    change: Callable[[dict[str, Any]], Any]
    then: Say = Say("hello")


Action = Say | Call | list[Call] | Status | Cut | Slow | Endless | Raw | Broken
BAD_JSON = Raw(b'{"choices": [')
NO_PAUSES = {"wait_initial": 0.001, "wait_max": 0.001, "wait_jitter": 0.0}  # for `http.PAUSES`, between retries


@dataclass(frozen=True)
class Said:
    """One message of a conversation in no protocol's terms. `role` is user, assistant or tool."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    failed: bool = False


@dataclass(frozen=True)
class Turn:
    """One request: its place among all the server got, and the conversation up to it."""

    number: int
    protocol: str
    model: str
    system: str
    messages: tuple[Said, ...]
    tools: tuple[str, ...]

    @property
    def results(self) -> tuple[Said, ...]:
        """What the tools answered to the calls of the last reply."""
        last = max((n for n, said in enumerate(self.messages) if said.role == "assistant"), default=-1)
        return tuple(said for said in self.messages[last + 1 :] if said.role == "tool")

    def ledger(self) -> list[dict[str, Any]]:
        """The memories listed in the conversation, one JSON object a line."""
        texts = [self.system, *(said.text for said in self.messages if said.role == "user")]
        rows = (_object(line) for text in texts for line in text.splitlines())
        return [row for row in rows if row and "id" in row and "content" in row]


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


Script = Callable[[Turn], Action] | Sequence[Action] | Action

# --- the protocols


class Refused(Exception):
    """What the real server would answer with this status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def need(condition: object, message: str) -> None:
    if not condition:
        raise Refused(message)


def _name(name: str) -> str:
    need(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name), "a tool's name is not allowed")
    return name


class OpenAIProtocol:
    """Chat Completions."""

    name = "openai"
    path = "/v1/chat/completions"
    stops: ClassVar = {"end": "stop", "tool_calls": "tool_calls", "length": "length"}

    def read(self, headers: dict[str, str], body: dict[str, Any], number: int) -> Turn:
        if not re.fullmatch(r"Bearer \S+", headers.get("authorization", "")):
            raise Refused("no API key", 401)
        need(("max_tokens" in body) != ("max_completion_tokens" in body), "give one limit of output")
        return self._turn(body, number)

    def _turn(self, body: dict[str, Any], number: int) -> Turn:
        said = [self._said(message) for message in body["messages"]]
        _pair(said)
        system = "\n".join(one.text for one in said if one.role == "system")
        rest = tuple(one for one in said if one.role != "system")
        tools = tuple(_name(tool["function"]["name"]) for tool in body.get("tools", ()))
        return Turn(number, self.name, body["model"], system, rest, tools)

    def _said(self, message: dict[str, Any]) -> Said:
        calls = tuple(map(self._call, message.get("tool_calls", ())))
        return Said(message["role"], message["content"], calls, message.get("tool_call_id", ""))

    def _call(self, call: dict[str, Any]) -> Call:
        arguments = _object(call["function"]["arguments"])
        need(arguments is not None, "arguments in the history must be a JSON object")
        return Call(_name(call["function"]["name"]), arguments, call["id"])

    def reply(self, say: Say, spent: Spent) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": say.text or None, "refusal": None}
        if say.calls:
            message["tool_calls"] = list(map(self._asked, say.calls))
        usage = {
            "prompt_tokens": spent.prompt,
            "completion_tokens": spent.completion,
            "total_tokens": spent.prompt + spent.completion,
            "prompt_tokens_details": {"cached_tokens": spent.cached, "audio_tokens": 0},
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.stops[say.stop]}
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "choices": [choice], "usage": usage}

    def _asked(self, call: Call) -> dict[str, Any]:
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
        need(json.dumps(body).count('"cache_control": {') <= 4, "at most 4 blocks may be cached")
        roles = [message["role"] for message in body["messages"]]
        need(
            roles == ["user", "assistant"] * (len(roles) // 2) + ["user"],
            "roles must alternate, user first and last",
        )
        said = tuple(one for message in body["messages"] for one in self._said(message["role"], message["content"]))
        _pair(said)
        system = "\n".join(map(self._text, body.get("system", ())))
        return Turn(
            number, self.name, body["model"], system, said, tuple(_name(tool["name"]) for tool in body.get("tools", ()))
        )

    def _said(self, role: str, blocks: list[dict[str, Any]]) -> Iterator[Said]:
        results = [block for block in blocks if block["type"] == "tool_result"]
        need(results == blocks[: len(results)], "tool results must come before text")
        for block in results:
            yield Said("tool", block["content"], (), block["tool_use_id"], block.get("is_error", False))
        rest = blocks[len(results) :]
        uses = [block for block in rest if block["type"] == "tool_use"]
        text = "\n".join(self._text(block) for block in rest if block["type"] != "tool_use")
        if rest:
            yield Said(role, text, tuple(map(self._call, uses)))

    def _call(self, block: dict[str, Any]) -> Call:
        need(re.fullmatch(r"[A-Za-z0-9_-]+", block["id"]), "a tool_use id is not allowed")
        need(isinstance(block["input"], dict), "input must be an object")
        return Call(_name(block["name"]), block["input"], block["id"])

    def _text(self, block: dict[str, Any]) -> str:
        need(block["text"].strip(), "text blocks must not be empty")
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
    """/api/chat. A prompt that would be cut to fit its context is refused here, so that tests notice."""

    name = "ollama"
    path = "/api/chat"
    stops: ClassVar = {"end": "stop", "tool_calls": "stop", "length": "length"}

    def read(self, headers: dict[str, str], body: dict[str, Any], number: int) -> Turn:
        need(body["stream"] is False, "stream is on unless it is false")
        options = body["options"]
        prompt = len(json.dumps([body["messages"], body.get("tools")], ensure_ascii=False)) // 4
        need(prompt + options["num_predict"] <= options["num_ctx"], "num_ctx is too small for this prompt")
        return self._turn(body, number)

    def _said(self, message: dict[str, Any]) -> Said:
        need(message["role"] != "tool" or message["tool_name"], "a result needs its tool's name")
        return super()._said(message)

    def _call(self, call: dict[str, Any]) -> Call:
        need(isinstance(call["function"]["arguments"], dict), "arguments must be an object")
        return Call(call["function"]["name"], call["function"]["arguments"], call["id"])

    def reply(self, say: Say, spent: Spent) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": say.text}
        if say.calls:
            # No ids: most versions in use send none.
            message["tool_calls"] = [{"function": {"name": one.name, "arguments": one.args}} for one in say.calls]
        counts = {"prompt_eval_count": spent.prompt, "eval_count": spent.completion, "total_duration": 1}
        done = {"done": True, "done_reason": self.stops[say.stop]}
        return {"model": "scripted", "created_at": "2026-01-01T00:00:00Z", "message": message, **done, **counts}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": message}


Protocol = OpenAIProtocol | AnthropicProtocol
PROTOCOLS: dict[str, Protocol] = {one.path: one for one in (OpenAIProtocol(), AnthropicProtocol(), OllamaProtocol())}


def _pair(said: list[Said] | tuple[Said, ...]) -> None:
    """Each call is answered once, in the messages right after it, and nothing else is answered."""
    open_ids: list[str] = []
    seen: set[str] = set()
    for one in said:
        if one.role == "tool":
            need(one.call_id in open_ids, "a tool message answers no call of the reply before it")
            open_ids.remove(one.call_id)
            continue
        need(not open_ids, "a tool call has no answer")
        open_ids = [call.id or "" for call in one.calls]
        fresh = set(open_ids)
        need(len(fresh) == len(open_ids) and "" not in fresh and not fresh & seen, "tool call ids must be unique")
        seen |= fresh
    need(not open_ids, "a tool call has no answer")


# --- the server


@dataclass(frozen=True)
class Received:
    """A request as it came: `headers` in lower case, `body` parsed (None if it was no JSON object)."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class ModelServer(ThreadingHTTPServer):
    """The server, listening from the start and answering inside `with`. A script's own exception is raised at the end.

    `requests` lists what came, `refused` why any of it was answered 400 or 401, `connections` counts connections.
    """

    daemon_threads = False  # joined at the end, so that no test leaves a thread behind
    request_queue_size = 64

    def __init__(self, script: Script = Say("hello"), port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.script = script
        self.requests: list[Received] = []
        self.refused: list[str] = []
        self.errors: list[Exception] = []
        self.connections = 0
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        address = f"http://127.0.0.1:{self.server_port}"
        self.openai_url, self.anthropic_url, self.ollama_url = f"{address}/v1", address, address

    def __enter__(self) -> ModelServer:
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stopping.set()
        self.shutdown()
        self._thread.join()
        with self._lock:
            for connection in self._open:
                _hang_up(connection)
        self.server_close()
        if self.errors and kind is None:
            raise self.errors[0]

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        with self._lock:
            self.connections += 1
            self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that hung up is part of what is tested, and a script's errors are kept."""

    def take(self, received: Received) -> int:
        with self._lock:
            self.requests.append(received)
            return len(self.requests) - 1

    def act(self, turn: Turn) -> Action:
        if callable(self.script):
            return self.script(turn)
        if not isinstance(self.script, Sequence):
            return self.script
        if turn.number >= len(self.script):
            raise AssertionError(f"the script has no action for request {turn.number + 1}")
        return self.script[turn.number]


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol: Protocol
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Nothing: the requests are in `server.requests`."""

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = _object(content.decode("utf-8", "replace"))
        self.size = len(content)
        self.number = self.server.take(Received(self.path, headers, body or {}))
        if self.path not in PROTOCOLS:
            self._send(404, b"{}")
            return
        self.protocol = PROTOCOLS[self.path]
        try:
            action = self._action(headers, body)
        except Refused as refusal:
            self.server.refused.append(str(refusal))
            action = Status(refusal.status, body=json.dumps(self.protocol.error(refusal.status, str(refusal))))
        self._play(action)

    def _action(self, headers: dict[str, str], body: dict[str, Any] | None) -> Action:
        need(headers.get("content-type", "").startswith("application/json"), "content-type must be JSON")
        need(body is not None, "the body is not a JSON object")
        try:
            turn = self.protocol.read(headers, body or {}, self.number)
        except (KeyError, TypeError, AttributeError) as error:
            raise Refused(f"the request is malformed: {error!r}") from error
        try:
            return self.server.act(turn)
        except Exception as error:  # noqa: BLE001 a script may assert: it is raised again where the test can see it
            self.server.errors.append(error)
            return Status(500)

    def _play(self, action: Action, drip: float = 0.0) -> None:
        if isinstance(action, Slow):
            self.server.stopping.wait(action.seconds)
            self._play(action.then or Say("at last"), action.drip)
        elif isinstance(action, Cut):
            self._cut(action)
        elif isinstance(action, Endless):
            self.wfile.write(self._whole(200, b"", {"Content-Length": str(10**15)}))
            while not self.server.stopping.is_set():
                self.wfile.write(b" " * 65_536)
        elif isinstance(action, Status):
            body = json.dumps(self.protocol.error(action.code, "no")) if action.body is None else action.body
            self._send(action.code, body.encode(), action.headers, drip)
        elif isinstance(action, Raw):
            self._send(200, action.body, action.headers, drip)
        elif isinstance(action, Broken):
            self._send(200, json.dumps(action.change(self._reply(action.then))).encode(), {}, drip)
        else:
            self._send(200, json.dumps(self._reply(action)).encode(), {}, drip)

    def _reply(self, action: Say | Call | list[Call]) -> dict[str, Any]:
        if not isinstance(action, Say):
            action = Say(calls=tuple(action) if isinstance(action, list) else (action,))
        calls = tuple(
            call if call.id is not None else replace(call, id=f"given_{self.number}_{place}")
            for place, call in enumerate(action.calls)
        )
        said = len(action.text) + sum(len(json.dumps(call.args)) for call in calls)
        stop = action.stop or ("tool_calls" if calls else "end")
        return self.protocol.reply(
            replace(action, calls=calls, stop=stop), action.usage or Spent(self.size // 4, said // 4)
        )

    def _cut(self, cut: Cut) -> None:
        if cut.midway:
            whole = self._whole(200, json.dumps(self._reply(Say("half of this"))).encode(), {})
            self.wfile.write(whole[: len(whole) - 20])
        self.close_connection = True
        _hang_up(self.connection)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None, drip: float = 0.0) -> None:
        whole = self._whole(status, body, headers or {})
        if not drip:
            self.wfile.write(whole)
            return
        for place in range(len(whole)):
            if self.server.stopping.wait(drip):
                return
            self.wfile.write(whole[place : place + 1])

    def _whole(self, status: int, body: bytes, headers: dict[str, str]) -> bytes:
        every = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        lines = [f"HTTP/1.1 {status} {self.responses.get(status, ('Unknown',))[0]}"]
        lines += [f"{name}: {value}" for name, value in every.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


# --- scripts


def tidy(turn: Turn) -> Action:
    """Uses each kind of edit once on the memories it is shown, then says it is done.

    Of those that are not constitutional it merges the first two, tightens the third, deletes the fourth and
    protects the fifth, as far as there are so many.
    """
    if any(said.role == "assistant" for said in turn.messages):
        return Call("complete_refinement", {"summary": "Merged, tightened, discarded and protected one each."})
    rows = [row for row in turn.ledger() if not row.get("constitutional")]
    calls = []
    if len(rows) >= 2:
        merged = f"{rows[0]['content']} {rows[1]['content']}"
        calls.append(
            Call("consolidate_memories", {"ids_to_merge": [rows[0]["id"], rows[1]["id"]], "new_content": merged})
        )
    if len(rows) >= 3:
        calls.append(Call("update_memory", {"id": rows[2]["id"], "content": tightened(rows[2]["content"])}))
    if len(rows) >= 4:
        calls.append(Call("delete_memory", {"id": rows[3]["id"]}))
    if len(rows) >= 5:
        calls.append(Call("protect_memory", {"id": rows[4]["id"]}))
    return calls or Call("complete_refinement", {"summary": "Nothing to do."})


def tightened(content: str) -> str:
    """One space between words, no word twice in a row, no full stop at the end."""
    words = content.split()
    return " ".join(word for place, word in enumerate(words) if place == 0 or word != words[place - 1]).rstrip(".")


def load(name: str) -> Script:
    """A script by the name it has here, or as MODULE:NAME."""
    module, _, attribute = name.rpartition(":")
    script: Script = getattr(importlib.import_module(module), attribute) if module else {"tidy": tidy}[name]
    return script


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model that speaks OpenAI's, Anthropic's and Ollama's.")
    parser.add_argument("script", nargs="?", default="tidy", help="tidy (the default), or MODULE:NAME")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    options = parser.parse_args()
    with ModelServer(load(options.script), options.port) as server:
        print(f"OPENAI_BASE_URL={server.openai_url} OPENAI_API_KEY=any")
        print(f"ANTHROPIC_BASE_URL={server.anthropic_url} ANTHROPIC_API_KEY=any")
        print(f"OLLAMA_BASE_URL={server.ollama_url}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    # Under its own name, so that a script's actions are of the classes that are looked for here.
    importlib.import_module("tests.model_server").main()
