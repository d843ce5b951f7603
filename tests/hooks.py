"""A server on 127.0.0.1 that receives webhooks, and the steps of their tests."""

import ssl
import threading
from collections.abc import Callable
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from django.db.models import F

from config.queue import SEND_WEBHOOKS
from memory.models import Agent, Turn
from refinement import session as sessions
from refinement.models import Outcome, RefinementSession
from refinement.notices import webhooks
from refinement.notices.models import Delivery, Webhook
from tests import queueing
from tests.refining import opened
from tests.steps import fresh


class Received(NamedTuple):
    headers: dict[str, str]
    body: bytes


class HookServer(ThreadingHTTPServer):
    """Answers with `status`. `requests` has what arrived. `act` is called before each answer."""

    daemon_threads = True

    def __init__(self, status: int = 204, act: Callable[[Any], None] = lambda _: None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.act, self.is_ended = status, act, threading.Event()
        self.requests: list[Received] = []
        self.url = f"http://127.0.0.1:{self.server_port}/hook"

    def use_tls(self, context: ssl.SSLContext) -> None:
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def __enter__(self) -> "HookServer":
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_ended.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore it: clients close connections on purpose."""


class _Handler(BaseHTTPRequestHandler):
    server: HookServer

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(Received(headers, body))
        self.server.act(self)
        self.send_response(self.server.status)
        self.send_header("Location", self.server.url)
        self.end_headers()


def fail(agent: Agent, reason: str = "model_unavailable") -> RefinementSession:
    """Open a session and let it fail."""
    return sessions.close(opened(fresh(agent)).session, Outcome.FAILED, reason)


def deliver() -> list[str]:
    """Queue the deliveries that are due, as a task does every minute, and run them. Return the results."""
    webhooks.queue_late()
    return [result for name, result in queueing.work() if SEND_WEBHOOKS.endswith(f".{name}")]


def wait(time: timedelta) -> None:
    """Move everything that waits into the past."""
    Delivery.objects.update(at=F("at") - time, wait_until=F("wait_until") - time)
    for model in (Webhook, Turn):
        model.objects.update(wait_until=F("wait_until") - time)
