"""Clients that send half of a request, or take their answer slowly, keep nobody else waiting."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from django.test import RequestFactory

from memory.agents import lifecycle
from memory.api.transfer import ExportView
from memory.models import Memory
from tests import steps
from tests.api.serving import Served, serving
from tests.conftest import OPERATOR, House
from tests.privacy.marker import MARKER

BODY = json.dumps({"content": f"{MARKER} tea"}).encode()
HEAD = b"POST /api/v1/memories HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def served(django_db_setup: None, django_db_blocker: Any) -> Iterator[Served]:
    with django_db_blocker.unblock(), serving(SILENT_SECONDS="2") as service:
        yield service
    assert MARKER not in "".join(service.said)


@pytest.fixture
def key(transactional_db: None) -> str:
    return lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)[1]


def post(key: str, *more: str, body: bytes = BODY) -> bytes:
    lines = [f"Authorization: Bearer {key}", *more]
    if not any(line.startswith("Content-Length") for line in more):
        lines.append(f"Content-Length: {len(body)}")
    return HEAD + "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def imports(request: bytes) -> bytes:
    return request.replace(b"/memories ", b"/import ").replace(b"application/json", b"application/x-ndjson")


def status(connection: socket.socket) -> int:
    """Of one answer; 0 when there is none."""
    answer = connection.recv(65_536)
    return int(answer.split()[1]) if answer else 0


def quick_requests(served: Served, key: str, count: int = 6, seconds: float = 3) -> list[int]:
    """The statuses of requests that are sent at once; each must be answered in time."""
    found = []
    for _ in range(count):
        with socket.create_connection(served.address, timeout=seconds) as quick:
            quick.sendall(post(key))
            found.append(status(quick))
    return found


def test_half_a_request_keeps_nobody_waiting(served: Served, key: str) -> None:
    """Twenty clients, each with another half; those that go on in time are answered, and the others given up."""
    whole = post(key)
    halves = [b"", b"P", whole[:40], whole[: -len(BODY)], whole[:-1]] * 4
    with ExitStack() as opened:
        slow = [opened.enter_context(socket.create_connection(served.address, timeout=30)) for _ in halves]
        for connection, half in zip(slow, halves, strict=True):
            connection.sendall(half)
        time.sleep(0.2)
        assert quick_requests(served, key) == [201] * 6
        for connection, half in zip(slow[15:], halves[15:], strict=True):
            connection.sendall(whole[len(half) :])  # still in time
            assert status(connection) == 201
        began = time.monotonic()
        assert [status(connection) for connection in slow[1:5]] == [0, 0, 400, 400]
        assert time.monotonic() - began > 1, "they were given up for the time they took"
    assert Memory.objects.count() == 11


def test_a_body_that_drips_keeps_nobody_waiting(served: Served, key: str) -> None:
    head = post(key, "Content-Length: 5000", body=b"")
    with ExitStack() as opened:
        slow = [opened.enter_context(socket.create_connection(served.address, timeout=30)) for _ in range(20)]
        for connection in slow:
            connection.sendall(head)
        for _ in range(6):
            for connection in slow:
                connection.sendall(b" ")
            assert quick_requests(served, key, 1) == [201]
            time.sleep(0.5)


UNENDED = (
    ASKED + ASKED[:20],
    ASKED + ASKED + ASKED[:-1],
    b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nX\x01: y",
    b"NONSENSE",
    HEAD + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
    HEAD + b"Content-Length: 900000\r\n\r\n" + b"x" * 300_000,
    HEAD + b"Content-Length: 9223372036854775808\r\n\r\n{}",
)


def test_whatever_else_does_not_end(served: Served, key: str) -> None:
    """Clients that send part of a second request, or something broken, keep nobody waiting, all at once."""
    with ExitStack() as opened:
        for number, bytes_sent in itertools.product(range(4), UNENDED):
            one = opened.enter_context(socket.create_connection(served.address, timeout=30))
            held = bytes_sent.replace(b"Host: ", f"Authorization: Bearer {key}\r\nHost: ".encode(), 1)
            with suppress(ConnectionError):
                one.sendall(bytes_sent if number else held)
        time.sleep(0.2)
        assert quick_requests(served, key, 4, 8) == [201] * 4


@pytest.mark.parametrize("how", [(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), (b"1.1", b"1.0")])
def test_clients_that_do_not_close_are_closed(how: tuple[bytes, bytes], served: Served, key: str) -> None:
    """gunicorn waits up to two seconds for each of them, and answers nobody else meanwhile."""
    with ExitStack() as opened:
        for _ in range(6):
            one = opened.enter_context(socket.create_connection(served.address, timeout=30))
            one.sendall(ASKED.replace(*how))
        assert quick_requests(served, key, 4, 15) == [201] * 4


def test_a_large_body_that_stands_still_is_given_up(served: Served, key: str) -> None:
    lines = (BODY + b"\n") * 10_000
    head = imports(post(key, f"Content-Length: {len(lines) * 2}", body=b""))
    with socket.create_connection(served.address, timeout=30) as slow:
        slow.sendall(head + lines)
        assert status(slow) in (0, 400)
    assert not Memory.objects.exists()


def test_an_answer_that_is_not_taken_is_given_up(key: str) -> None:
    """By clients enough for every thread, of which each of the two processes has one here; the next is answered."""
    lines = b"".join(json.dumps({"content": f"{MARKER} {n} " + "x" * 9_900}).encode() + b"\n" for n in range(600))
    stored = (
        post(key, body=lines).replace(b"/memories ", b"/import ").replace(b"application/json", b"application/x-ndjson")
    )
    asked = f"GET /api/v1/export HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    with serving(SILENT_SECONDS="2", GUNICORN_CMD_ARGS="--threads 1") as service, ExitStack() as opened:
        with socket.create_connection(service.address, timeout=60) as connection:
            connection.sendall(stored)
            assert status(connection) == 201
        for _ in range(3):
            deaf = opened.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect(service.address)
            deaf.sendall(asked)
        time.sleep(0.5)
        assert quick_requests(service, key, 2, 60) == [201] * 2


def test_requests_one_after_the_other_on_one_connection(served: Served, key: str) -> None:
    """Some at once, some in pieces, some while the one before is under way."""
    whole = post(key)
    with socket.create_connection(served.address, timeout=30) as connection:
        connection.sendall(whole + whole + whole[:50])
        time.sleep(0.3)
        connection.sendall(whole[50:])
        answers = b""
        while answers.count(b'"version":') < 3 or not answers.endswith(b"}"):
            came = connection.recv(65_536)
            assert came, "it was closed"
            answers += came
        time.sleep(0.2)
        connection.sendall(whole)
        assert status(connection) == 201
    assert Memory.objects.count() == 4


def test_who_waits_to_be_told_to_send(served: Served, key: str) -> None:
    with socket.create_connection(served.address, timeout=30) as connection:
        connection.sendall(post(key, "Expect: 100-continue", f"Content-Length: {len(BODY)}", body=b""))
        assert status(connection) == 100
        connection.sendall(BODY)
        assert status(connection) == 201


def test_what_a_stopping_process_has_taken_in_is_answered(key: str) -> None:
    with serving() as service:
        late = socket.create_connection(service.address, timeout=30)
        idle = socket.create_connection(service.address, timeout=30)
        late.sendall(post(key)[:-1])
        time.sleep(0.3)
        ending = threading.Timer(0.5, late.sendall, [post(key)[-1:]])
        ending.start()
    ending.join()
    with closing(late), closing(idle):
        assert (status(late), status(idle)) == (201, 0)


@pytest.mark.django_db(transaction=True)
def test_an_export_whose_client_is_given_up_is_over_at_once(house: House, settings: Any) -> None:
    """Not whenever it is collected as garbage: in the midst of another request's statements it stood still for ever."""
    settings.ALLOWED_HOSTS = ["testserver"]
    steps.remember(house.ada, f"{MARKER} tea", f"{MARKER} boats")
    request = RequestFactory().get("/api/v1/export", headers={"Authorization": f"Bearer {house.ada_key}"})
    answer: Any = ExportView.as_view()(request)  # as gunicorn has it: Django's test client closes more than it would
    lines = iter(answer.streaming_content)
    assert MARKER.encode() in next(lines)
    answer.close()
    assert list(lines) == []
