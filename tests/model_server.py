"""An HTTP server on 127.0.0.1 that speaks the protocols of OpenAI, Anthropic and Ollama, and plays a script.

    with ModelServer([Call("delete_memory", {"id": 3}), Say("done")]) as server:
        settings.OPENAI_BASE_URL = server.openai_url

A script is a list of actions, one action to repeat, or a function from a `Turn` to an action. A list of calls inside a
script is one reply with all of them. A request that the real server would refuse gets a 400, and `server.refused` lists
it. By hand: `python -m tests.model_server tidy`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests import model_protocols as protocols
from tests.model_protocols import Action, Broken, Call, Cut, Endless, Raw, Say, Script, Slow, Spent, Status, Turn

HELLO = Say("hello")
CHECK = "Answer with one word: yes."  # a test of the model before a session; scripts without faults do not see it
YES = Say("yes")
BAD_JSON = Raw(b'{"choices": [')
NO_PAUSES = {"wait_initial": 0.001, "wait_max": 0.001, "wait_jitter": 0.0}  # between retries, for `http.PAUSES`


@dataclass(frozen=True)
class Received:
    """A request: `headers` in lower case, `body` parsed (empty if it was no JSON object)."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class ModelServer(ThreadingHTTPServer):
    """Listens from the start, and answers inside `with`. Its end raises an exception that the script raised.

    `requests` lists all requests, `refused` the reasons of each 400 and 401. `connections` counts connections.
    """

    daemon_threads = False  # the end waits for every thread
    request_queue_size = 64

    def __init__(self, script: Script = HELLO, port: int = 0) -> None:
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
        """Ignore it: tests close connections on purpose, and `errors` keeps a script's own."""

    def take(self, received: Received) -> int:
        with self._lock:
            self.requests.append(received)
            return len(self.requests) - 1

    def act(self, turn: Turn) -> Action:
        if is_check(turn):
            with suppress(Exception):
                action = self.script(turn) if callable(self.script) else self.script
                if isinstance(action, Status | Slow):
                    return action
            with self._lock:
                del self.requests[turn.number : turn.number + 1]
            return YES
        if callable(self.script):
            return self.script(turn)
        if not isinstance(self.script, Sequence):
            return self.script
        if turn.number >= len(self.script):
            raise AssertionError(f"the script has no action for request {turn.number + 1}")
        return self.script[turn.number]


def is_check(turn: Turn) -> bool:
    """Whether this is the test of the model before a session."""
    return bool(turn.messages) and turn.messages[0].text == CHECK


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol: protocols.Protocol
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = protocols.json_object(content.decode("utf-8", "replace"))
        self.size = len(content)
        self.number = self.server.take(Received(self.path, headers, body or {}))
        if self.path not in protocols.PROTOCOLS:
            self._send(404, b"{}")
            return
        self.protocol = protocols.PROTOCOLS[self.path]
        try:
            action = self._action(headers, body)
        except protocols.Refused as refusal:
            self.server.refused.append(str(refusal))
            action = Status(refusal.status, body=json.dumps(self.protocol.error(refusal.status, str(refusal))))
        self._play(action)

    def _action(self, headers: dict[str, str], body: dict[str, Any] | None) -> Action:
        protocols.require(headers.get("content-type", "").startswith("application/json"), "content-type must be JSON")
        protocols.require(body is not None, "the body is not a JSON object")
        try:
            turn = self.protocol.read(headers, body or {}, self.number)
        except (KeyError, TypeError, AttributeError) as error:
            raise protocols.Refused(f"the request is malformed: {error!r}") from error
        try:
            return self.server.act(turn)
        except Exception as error:  # noqa: BLE001 `__exit__` raises it again, for the test
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
        ids = [
            f"given_{self.number}_{place}" if call.id is None else call.id for place, call in enumerate(action.calls)
        ]
        calls = tuple(replace(call, id=each) for call, each in zip(action.calls, ids, strict=True))
        length = len(action.text) + sum(len(json.dumps(call.args)) for call in calls)
        reply = replace(action, calls=calls, stop=action.stop or ("tool_calls" if calls else "end"))
        return self.protocol.reply(reply, action.usage or Spent(self.size // 4, length // 4))

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
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        lines = [f"HTTP/1.1 {status} {self.responses.get(status, ('Unknown',))[0]}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def tidy(turn: Turn) -> Action:
    """Make one edit of each kind, as far as there are memories, then complete the session.

    Of the memories that are not constitutional, merge the first two, tighten the third, delete the fourth and protect
    the fifth.
    """
    if any(message.role == "assistant" for message in turn.messages):
        return Call("complete_refinement", {"summary": "Merged, tightened, discarded and protected one each."})
    rows = [row for row in turn.ledger() if not row.get("constitutional")]
    if len(rows) < 2:
        return Call("complete_refinement", {"summary": "Nothing to do."})
    merged = {"ids_to_merge": [row["id"] for row in rows[:2]], "new_content": " ".join(r["content"] for r in rows[:2])}
    calls = [Call("consolidate_memories", merged)]
    calls += [Call("update_memory", {"id": row["id"], "content": tightened(row["content"])}) for row in rows[2:3]]
    calls += [Call("delete_memory", {"id": row["id"]}) for row in rows[3:4]]
    return calls + [Call("protect_memory", {"id": row["id"]}) for row in rows[4:5]]


def tightened(content: str) -> str:
    """The content with single spaces, no repeated words, and no full stop at the end."""
    words = content.split()
    return " ".join(word for place, word in enumerate(words) if place == 0 or word != words[place - 1]).rstrip(".")


def load(name: str) -> Script:
    """The script `tidy`, or MODULE:NAME."""
    module, _, attribute = name.rpartition(":")
    script: Script = getattr(importlib.import_module(module), attribute) if module else {"tidy": tidy}[name]
    return script


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model that speaks OpenAI's, Anthropic's and Ollama's.")
    parser.add_argument("script", nargs="?", default="tidy", help="tidy (the default), or MODULE:NAME")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) is any free port")
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
    main()
