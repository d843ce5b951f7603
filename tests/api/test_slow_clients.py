"""Clients that send half of a request, or take their answer slowly, keep nobody else waiting."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from django.test import RequestFactory
from gunicorn.config import Config  # type: ignore[import-untyped]

from config.connections import HELD, _Connection
from memory.agents import lifecycle
from memory.api.transfer import Export
from memory.models import Memory
from tests import steps
from tests.api.serving import Served, serving
from tests.conftest import OPERATOR, House
from tests.privacy.marker import MARKER

BODY = json.dumps({"content": f"{MARKER} tea"}).encode()
HEAD = b"POST /api/v1/memories HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
EXPECTS = HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(BODY)


@pytest.fixture
def taking() -> Iterator[Any]:
    """A function that takes one piece after the other of a request; whether each was enough."""
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        connection = _Connection(Config(), ours, ("", 0), ("", 0))
        yield lambda *pieces: [connection.take(piece) for piece in pieces]


@pytest.mark.parametrize(
    ("pieces", "enough"),
    [
        ([WHOLE], [True]),
        ([WHOLE[:9], WHOLE[9:-1], WHOLE[-1:]], [False, False, True]),
        ([HEAD, b"\r\n"], [False, True]),
        ([b"GET / HTTP/1.1\r\n", b"Host: x\r\n", b"\r\n"], [False, False, True]),
        ([CHUNKED, b"\r\n"], [False, True]),
        ([CHUNKED, b"Trailer: x\r\n", b"\r\n"], [False, False, True]),
        ([CHUNKED[:-3], b"0\r\n", b"\r\n"], [False, False, True]),
        ([EXPECTS, b"\r\n", BODY[:3], BODY[3:]], [False, False, False, True]),
        ([EXPECTS + b"\r\n" + BODY], [True]),
        ([WHOLE + WHOLE[:20]], [True]),
        ([HEAD + b"Content-Length: 900000\r\n\r\n", b"x" * (HELD - 1_000), b"x" * 1_000], [False, False, True]),
        ([b"\x16\x03\x01\x02"], [True]),
        ([HEAD + b"Content-Length: -5\r\n"], [True]),
    ],
)
def test_what_a_thread_can_go_on_with(pieces: list[bytes], enough: list[bool], taking: Any) -> None:
    assert taking(*pieces) == enough


# --- served


@pytest.fixture(scope="module")
def served(django_db_setup: None, django_db_blocker: Any) -> Iterator[Served]:
    with django_db_blocker.unblock(), serving(WHOLE_SECONDS="4", STILL_SECONDS="1") as service:
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


def test_half_a_request_keeps_nobody_waiting(served: Served, key: str) -> None:
    """Of whatever half, and on whichever of more connections than there are threads."""
    whole = post(key)
    halves = [b"", b"P", whole[:40], whole[: -len(BODY)], whole[:-1]] * 4
    with ExitStack() as opened:
        slow = [opened.enter_context(socket.create_connection(served.address, timeout=30)) for _ in halves]
        for connection, half in zip(slow, halves, strict=True):
            connection.sendall(half)
        time.sleep(0.2)
        for _ in range(6):
            with socket.create_connection(served.address, timeout=3) as quick:
                quick.sendall(whole)
                assert status(quick) == 201
        for connection, half in zip(slow[15:], halves[15:], strict=True):
            connection.sendall(whole[len(half) :])  # still in time
            assert status(connection) == 201
        began = time.monotonic()
        assert [status(connection) for connection in slow[:15]] == [0, 408, 408, 408, 408] * 3
        assert time.monotonic() - began > 1, "they were given up for the time they took"
    assert Memory.objects.count() == 11


@pytest.mark.parametrize(
    "bytes_sent",
    [
        ASKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        ASKED.replace(b"1.1", b"1.0"),
        ASKED + ASKED[:20],
        ASKED + ASKED + ASKED[:-1],
        b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nX\x01: y",
        b"NONSENSE",
        HEAD + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
        HEAD + b"Content-Length: 900000\r\n\r\n" + b"x" * (HELD + 10),
        HEAD + b"Content-Length: 9223372036854775808\r\n\r\n{}",
    ],
)
def test_whatever_else_does_not_end(bytes_sent: bytes, served: Served, key: str) -> None:
    """Neither closing when it is told to, nor saying the rest of what it began, with a key or without."""
    with ExitStack() as opened:
        for number in range(24):
            one = opened.enter_context(socket.create_connection(served.address, timeout=30))
            held = bytes_sent.replace(b"Host: ", f"Authorization: Bearer {key}\r\nHost: ".encode(), 1)
            with suppress(ConnectionError):
                one.sendall(bytes_sent if number % 6 else held)  # with a key a long body has a thread, for a second
        time.sleep(0.2)
        for _ in range(4):
            with socket.create_connection(served.address, timeout=8) as quick:
                quick.sendall(post(key))
                assert status(quick) == 201


def test_a_long_body_that_drips_is_given_up(served: Served, key: str) -> None:
    """Each piece is in time, and the whole would take for ever."""
    head = imports(post(key, f"Content-Length: {HELD * 4}", body=b""))
    line = BODY + b"\n"
    with socket.create_connection(served.address, timeout=30) as slow:
        slow.sendall(head + line * (HELD // len(line) + 1))
        began = time.monotonic()
        while time.monotonic() - began < 60:
            try:
                slow.sendall(b"\n")
            except OSError:
                break
            time.sleep(0.3)
        assert time.monotonic() - began < 60
    assert not Memory.objects.exists()


def test_the_silent_make_room_for_who_speaks(key: str) -> None:
    with serving(GUNICORN_CMD_ARGS="--worker-connections 10") as service, ExitStack() as opened:
        for _ in range(60):
            opened.enter_context(socket.create_connection(service.address, timeout=30))
        for _ in range(4):
            with socket.create_connection(service.address, timeout=8) as quick:
                quick.sendall(post(key))
                assert status(quick) == 201


def test_who_speaks_is_answered_though_no_descriptor_is_left(key: str) -> None:
    """The silent hold them all; the worker neither ends nor turns round and round, and gives up who was silent."""
    with serving(FILES_LEFT="24") as service, ExitStack() as opened:
        for _ in range(80):
            opened.enter_context(socket.create_connection(service.address, timeout=30))
        for _ in range(4):
            with socket.create_connection(service.address, timeout=20) as quick:
                quick.sendall(post(key))
                assert status(quick) == 201
    assert any("no file descriptor is left" in line for line in service.said)


def test_a_large_body_that_stands_still_is_given_up(served: Served, key: str) -> None:
    lines = (BODY + b"\n") * (HELD // len(BODY) + 10)
    head = imports(post(key, f"Content-Length: {len(lines) * 2}", body=b""))
    with socket.create_connection(served.address, timeout=30) as slow:
        slow.sendall(head + lines)
        assert status(slow) in (0, 400)
    assert not Memory.objects.exists()


def test_an_answer_that_is_not_taken_is_given_up(served: Served, key: str) -> None:
    """By clients enough for every thread; the next is answered."""
    lines = b"".join(json.dumps({"content": f"{MARKER} {n} " + "x" * 9_900}).encode() + b"\n" for n in range(600))
    stored = (
        post(key, body=lines).replace(b"/memories ", b"/import ").replace(b"application/json", b"application/x-ndjson")
    )
    with socket.create_connection(served.address, timeout=60) as connection:
        connection.sendall(stored)
        assert status(connection) == 201
    asked = f"GET /api/v1/export HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    with ExitStack() as opened:
        for _ in range(2):
            deaf = opened.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect(served.address)
            deaf.sendall(asked)
        time.sleep(0.5)
        with socket.create_connection(served.address, timeout=30) as quick:
            quick.sendall(post(key))
            assert status(quick) == 201


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
    with serving(WHOLE_SECONDS="4") as service:
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
    answer: Any = Export.as_view()(request)  # as gunicorn has it: Django's test client closes more than it would
    lines = iter(answer.streaming_content)
    assert MARKER.encode() in next(lines)
    answer.close()
    assert list(lines) == []
