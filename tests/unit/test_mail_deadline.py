"""A mail server that answers slowly, byte by byte, does not hold up a worker."""

import threading
import time
from collections.abc import Iterator
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from django.core.mail import send_mail

from memory.agents import lifecycle
from memory.models import Agent
from tests import queueing
from tests.steps import ME

ANSWERS = {b"EHLO": b"250-x\r\n250 STARTTLS\r\n", b"DATA": b"354 go\r\n"}
RECORD = b"\x16\x03\x03\x40\x00"  # the beginning of a long record of a TLS handshake


class SlowServer(ThreadingTCPServer):
    """Answers the command `slow` byte by byte."""

    daemon_threads, block_on_close = True, False
    slow, until = b"", 0.0


class _Handler(StreamRequestHandler):
    server: SlowServer

    def handle(self) -> None:
        self._answer(b"BANNER", b"220 x\r\n")
        for line in self.rfile:
            self._answer(line[:4].upper(), ANSWERS.get(line[:4].upper(), b"250 ok\r\n"))
            if line[:4].upper() == b"DATA":
                while self.rfile.readline() != b".\r\n":
                    pass
                self._answer(b"TEXT", b"250 ok\r\n")

    def _answer(self, command: bytes, answer: bytes) -> None:
        self.wfile.write(RECORD if self.server.slow == b"TLS" else b"")
        while self.server.slow in (command, b"TLS") and time.monotonic() < self.server.until:
            self.wfile.write(b"x")
            time.sleep(0.02)
        self.wfile.write(answer)


@pytest.fixture
def server(settings: Any) -> Iterator[SlowServer]:
    with SlowServer(("127.0.0.1", 0), _Handler) as server:
        settings.EMAIL_BACKEND, settings.EMAIL_TIMEOUT = "memory.mail.smtp.EmailBackend", 0.4
        settings.EMAIL_HOST, settings.EMAIL_PORT = server.server_address
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        server.until = time.monotonic() + 3
        yield server
        server.shutdown()


@pytest.mark.parametrize("slow", [b"BANNER", b"TLS", b"EHLO", b"STAR", b"MAIL", b"TEXT", b"QUIT", b"None"])
def test_a_letter_has_a_deadline_at_each_step(slow: bytes, ada: Agent, server: SlowServer, settings: Any) -> None:
    server.slow, settings.EMAIL_USE_SSL, settings.EMAIL_USE_TLS = slow, slow == b"TLS", slow == b"STAR"
    lifecycle.change(ada, ME, steward="sue@acme.test")
    start = time.monotonic()
    assert queueing.work() == [("after", "sent" if slow in (b"QUIT", b"None") else "away")]
    assert time.monotonic() - start < 1.5


def test_the_lookup_of_the_mail_server_has_a_deadline(server: SlowServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.create_connection", lambda *_: time.sleep(2))
    with pytest.raises(TimeoutError):
        send_mail("x", "x", None, ["sue@acme.test"])
