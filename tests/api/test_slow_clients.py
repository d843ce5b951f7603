"""Clients that send half a request, or read their response slowly, do not block others."""

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
from memory.api import transfer
from memory.api.transfer import ExportView
from memory.models import Agent, Memory
from tests import steps
from tests.api.serving import Served, serving
from tests.conftest import OPERATOR, House
from tests.privacy.marker import MARKER

pytestmark = pytest.mark.slow

BODY = json.dumps({"content": f"{MARKER} tea"}).encode()
HEAD = b"POST /api/v1/memories HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def served(django_db_setup: None, django_db_blocker: Any) -> Iterator[Served]:
    with django_db_blocker.unblock(), serving(SILENT_SECONDS="2") as service:
        yield service
    assert MARKER not in "".join(service.log)


@pytest.fixture
def key(transactional_db: None) -> str:
    return lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)[1]


def post(key: str, *more: str, body: bytes = BODY) -> bytes:
    lines = [f"Authorization: Bearer {key}", *more]
    if not any(line.startswith("Content-Length") for line in more):
        lines.append(f"Content-Length: {len(body)}")
    return HEAD + "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def as_import(request: bytes) -> bytes:
    return request.replace(b"/memories ", b"/import ").replace(b"application/json", b"application/x-ndjson")


def connect(served: Served, timeout: float = 30) -> socket.socket:
    return socket.create_connection(served.address, timeout=timeout)


def status(connection: socket.socket) -> int:
    """The status of a response, or 0 if there is none. The rest of the response may come later."""
    response = connection.recv(65_536)
    return int(response.split()[1]) if response else 0


def quick_requests(served: Served, key: str, count: int = 6, seconds: float = 3) -> list[int]:
    """The statuses of complete requests. The service must answer each in time."""
    found = []
    for _ in range(count):
        with connect(served, seconds) as quick:
            quick.sendall(post(key))
            found.append(status(quick))
    return found


def test_half_a_request_blocks_nobody(served: Served, key: str) -> None:
    """Of twenty slow clients, those that continue in time get a response. The service closes the others."""
    whole = post(key)
    halves = [b"", b"P", whole[:40], whole[: -len(BODY)], whole[:-1]] * 4
    with ExitStack() as opened:
        slow = [opened.enter_context(connect(served)) for _ in halves]
        for connection, half in zip(slow, halves, strict=True):
            connection.sendall(half)
        time.sleep(0.2)
        assert quick_requests(served, key) == [201] * 6
        for connection, half in zip(slow[15:], halves[15:], strict=True):
            connection.sendall(whole[len(half) :])  # still in time
            assert status(connection) == 201
        began = time.monotonic()
        assert [status(connection) for connection in slow[1:5]] == [0, 0, 400, 400]
        assert time.monotonic() - began > 1, "the time limit closes them"
    assert Memory.objects.count() == 11


def test_a_body_that_comes_byte_by_byte_blocks_nobody(served: Served, key: str) -> None:
    head = post(key, "Content-Length: 5000", body=b"")
    with ExitStack() as opened:
        slow = [opened.enter_context(connect(served)) for _ in range(14)]  # half of a process's threads is 16
        for connection in slow:
            connection.sendall(head)
        for _ in range(6):
            for connection in slow:
                connection.sendall(b" ")
            assert quick_requests(served, key, 1) == [201]
            time.sleep(0.5)


UNFINISHED = (
    HEALTH + HEALTH[:20],
    HEALTH + HEALTH + HEALTH[:-1],
    b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nX\x01: y",
    b"NONSENSE",
    HEAD + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
    HEAD + b"Content-Length: 900000\r\n\r\n" + b"x" * 300_000,
    HEAD + b"Content-Length: 9223372036854775808\r\n\r\n{}",
)


def test_other_unfinished_requests_block_nobody(served: Served, key: str) -> None:
    with ExitStack() as opened:
        for number, content in itertools.product(range(4), UNFINISHED):
            connection = opened.enter_context(connect(served))
            with_key = content.replace(b"Host: ", f"Authorization: Bearer {key}\r\nHost: ".encode(), 1)
            with suppress(ConnectionError):
                connection.sendall(content if number else with_key)
        time.sleep(0.2)
        assert quick_requests(served, key, 4, 8) == [201] * 4


@pytest.mark.parametrize("change", [(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), (b"1.1", b"1.0")])
def test_clients_that_do_not_close_their_connection_block_nobody(change: Any, served: Served, key: str) -> None:
    """gunicorn's own function waits up to two seconds for each of them, and answers nobody else in that time."""
    with ExitStack() as opened:
        for _ in range(12):
            opened.enter_context(connect(served)).sendall(HEALTH.replace(*change))
        assert quick_requests(served, key, 4, 3) == [201] * 4


def test_a_large_body_that_stops_is_given_up(served: Served, key: str) -> None:
    lines = (BODY + b"\n") * 10_000
    with connect(served) as slow:
        slow.sendall(as_import(post(key, f"Content-Length: {len(lines) * 2}", body=b"")) + lines)
        assert status(slow) in (0, 400)
    assert not Memory.objects.exists()


def test_a_response_that_nobody_reads_is_given_up(key: str) -> None:
    """Each of the two workers has one thread here. Three clients do not read, and the next client gets a response."""
    steps.remember(Agent.objects.get(), *(f"{MARKER} {n} " + "x" * 9_900 for n in range(600)))
    export = f"GET /api/v1/export HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    with serving(SILENT_SECONDS="2", GUNICORN_CMD_ARGS="--threads 1") as service, ExitStack() as opened:
        for _ in range(3):
            deaf = opened.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect(service.address)
            deaf.sendall(export)
        time.sleep(0.5)
        assert quick_requests(service, key, 2, 60) == [201] * 2


def test_several_requests_on_one_connection_are_answered(served: Served, key: str) -> None:
    """Two at once, one in pieces, one during the response of another. A second connection waits for 100 Continue."""
    whole = post(key)
    with connect(served) as connection:
        connection.sendall(whole + whole + whole[:50])
        time.sleep(0.3)
        connection.sendall(whole[50:])
        responses = b""
        while responses.count(b'"version":') < 3 or not responses.endswith(b"}"):
            received = connection.recv(65_536)
            assert received, "the service closed the connection"
            responses += received
        time.sleep(0.2)
        connection.sendall(whole)
        assert status(connection) == 201
    with connect(served) as connection:
        connection.sendall(post(key, "Expect: 100-continue", f"Content-Length: {len(BODY)}", body=b""))
        assert status(connection) == 100
        connection.sendall(BODY)
        assert status(connection) == 201
    assert Memory.objects.count() == 5


def test_a_stopping_process_finishes_the_requests_it_has(key: str) -> None:
    with serving() as service:
        late, idle = connect(service), connect(service)
        late.sendall(post(key)[:-1])
        time.sleep(0.3)
        rest = threading.Timer(0.5, late.sendall, [post(key)[-1:]])
        rest.start()
    rest.join()
    with closing(late), closing(idle):
        assert (status(late), status(idle)) == (201, 0)


def test_an_export_that_is_read_too_slowly_ends(house: House, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key may have ended since it began."""
    settings.ALLOWED_HOSTS = ["testserver"]
    monkeypatch.setattr(transfer, "EXPORT_SECONDS", 0.5)
    steps.remember(house.ada, "a", "b")
    request = RequestFactory().get("/api/v1/export", headers={"Authorization": f"Bearer {house.ada_key}"})
    response: Any = ExportView.as_view()(request)
    lines = iter(response.streaming_content)
    next(lines)
    time.sleep(0.6)
    with pytest.raises(transfer.ExportTooSlow):
        list(lines)
    response.close()  # else the agent's downloads are counted for ever


@pytest.mark.django_db(transaction=True)
def test_an_export_ends_when_its_response_is_closed(house: House, settings: Any) -> None:
    """Otherwise the garbage collector ends it, perhaps between two statements of another request: a deadlock."""
    settings.ALLOWED_HOSTS = ["testserver"]
    steps.remember(house.ada, f"{MARKER} tea", f"{MARKER} boats")
    request = RequestFactory().get("/api/v1/export", headers={"Authorization": f"Bearer {house.ada_key}"})
    response: Any = ExportView.as_view()(request)  # like gunicorn; Django's test client closes more
    lines = iter(response.streaming_content)
    assert MARKER.encode() in next(lines)
    response.close()
    assert list(lines) == []
