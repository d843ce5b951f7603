"""An HTTP server on 127.0.0.1 that embeds texts, with the protocols of OpenAI and Ollama. It can also send bad replies.

A text's vector is the sum of the vectors of its concepts. Words with the same meaning have one concept.
"""

import json
import random
import re
import threading
import time
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

DIMENSIONS = 256
SAME = ("car vehicle automobile", "fixed repair mended repairs", "postgres database", "tea drink drinks beverage")
CONCEPTS = {word: words.split()[0] for words in SAME for word in words.split()}
STOP = frozenset(["a", "for", "in", "is", "of", "the", "which", "what"])

Answer = Callable[[list[list[float]]], Any]


@cache
def _concept(name: str, dimensions: int) -> tuple[float, ...]:
    chance = random.Random(name)
    return tuple(chance.gauss(0, 1) for _ in range(dimensions))


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    words = [word for word in re.findall(r"\w+", text.lower()) if word not in STOP] or ["nothing"]
    each = [_concept(CONCEPTS.get(word, word), dimensions) for word in words]
    return [round(sum(values) / len(each), 6) for values in zip(*each, strict=True)]


class EmbeddingServer(ThreadingHTTPServer):
    """`texts` lists the embedded texts. `answer` changes the vectors of a reply. If `status` is set, it is the answer.
    `seconds` is the time that each answer takes. `tells` is called with the texts of a request before the answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.texts: list[str] = []
        self.paths: list[str] = []
        self.dimensions, self.status, self.seconds, self.hangs_up = DIMENSIONS, 0, 0.0, False
        self.answer: Answer = lambda vectors: vectors
        self.tells: Callable[[list[str]], object] | None = None

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Print nothing: a client may close the connection before it has the whole reply."""

    def recover(self) -> None:
        self.dimensions, self.status, self.seconds, self.hangs_up = DIMENSIONS, 0, 0.0, False
        self.answer = lambda vectors: vectors


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.texts += body["input"]
        server.paths.append(self.path)
        if server.tells:
            server.tells(body["input"])
        time.sleep(server.seconds)
        if server.hangs_up:
            self.close_connection = True
            return
        vectors = server.answer([vector(text, server.dimensions) for text in body["input"]])
        tokens = sum(len(text.split()) for text in body["input"])
        if self.path == "/v1/embeddings":
            data = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(vectors)]
            found = {"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": tokens}}
        else:
            assert self.path == "/api/embed"
            found = {"model": body["model"], "embeddings": vectors, "prompt_eval_count": tokens}
        reply = json.dumps(found if not server.status else {"error": "no"}).encode()
        self.send_response(server.status or 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        """Print nothing."""
