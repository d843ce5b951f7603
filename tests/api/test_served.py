"""Requests over a real connection: broken, oversized and unusual ones get an API error or are refused by gunicorn.
No response is a 5xx, and the worker answers the next request."""

import gzip
import json
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from memory.agents import lifecycle
from memory.models import Memory
from tests.api.calling import NDJSON
from tests.api.serving import Served, serving
from tests.conftest import OPERATOR
from tests.privacy.marker import MARKER

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

BODY_BYTES = 100_000
GOOD = json.dumps({"content": f"{MARKER} tea"}).encode()
JSON = "application/json"
CHUNKED = "Transfer-Encoding: chunked"
LINES = {"path": "import", "kind": NDJSON}


@pytest.fixture(scope="module")
def served(django_db_setup: None, django_db_blocker: Any) -> Iterator[Served]:
    with django_db_blocker.unblock(), serving(API_BODY_BYTES=str(BODY_BYTES)) as service:
        yield service
    assert MARKER not in "".join(service.log)


@pytest.fixture
def key(db: None) -> str:
    return lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)[1]


def send(served: Served, *parts: bytes, is_open: bool = False, timeout: int = 30) -> tuple[int, bytes]:
    """The status and the body of the response. The client ends its side of the connection unless `is_open`."""
    with closing(socket.create_connection(served.address, timeout=timeout)) as connection:
        with suppress(OSError):  # a response before all is sent
            for part in parts:
                connection.sendall(part)
            if not is_open:
                connection.shutdown(socket.SHUT_WR)
        response = bytearray()
        with suppress(ConnectionResetError):
            while read := connection.recv(65_536):
                response += read
    head, _, body = bytes(response).partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        body = b"".join(body.split(b"\r\n")[1::2])
    return int(head.split()[1]), body


def request(
    key: str, body: bytes = b"", *more: str, method: str = "POST", path: str = "memories", kind: str = JSON
) -> bytes:
    headers = [f"{method} /api/v1/{path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {key}"]
    headers += ["Connection: close", f"Content-Type: {kind}", *more]
    if not any("Transfer-Encoding" in line or "Content-Length" in line for line in more):
        headers.append(f"Content-Length: {len(body)}")
    return "\r\n".join(headers).encode("latin-1") + b"\r\n\r\n" + body


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


def codes(answer: tuple[int, bytes]) -> tuple[int, list[str]]:
    return answer[0], [error["code"] for error in json.loads(answer[1])["errors"]]


def test_a_body_may_come_in_chunks(served: Served, key: str) -> None:
    status, body = send(served, request(key, chunked(GOOD[:9], GOOD[9:]), CHUNKED))
    assert (status, json.loads(body)["content"]) == (201, f"{MARKER} tea")
    status, body = send(served, request(key, chunked(*[GOOD + b"\n"] * 500), CHUNKED, **LINES), is_open=True)
    assert (status, json.loads(body)["imported"]) == (201, 500)
    assert Memory.objects.count() == 501


def test_a_body_or_line_that_is_too_large_is_refused(served: Served, key: str) -> None:
    large = json.dumps({"content": "x" * BODY_BYTES}).encode()
    for each in (request(key, large), request(key, chunked(large), CHUNKED)):
        assert codes(send(served, each)) == (413, ["too_large"])
    line = chunked(GOOD + b"\n", *[b"x" * 101_000] * 10)
    status, body = send(served, request(key, line, CHUNKED, **LINES), is_open=True)
    assert (status, json.loads(body)["errors"][0]["attr"]) == (422, "line 2")
    assert not Memory.objects.exists()


def test_a_page_reads_no_form_in_chunks(served: Served) -> None:
    """A form of 2 MB in chunks of one byte took 4 s of CPU, before the requests of an address were counted."""
    head = "POST /admin/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nCookie: palimpsest_csrf={}\r\n{}\r\n"
    form = chunked(b"username=x")[:-5]  # without an end: the page answers before it
    sent = head.format("x" * 32, f"Content-Type: application/x-www-form-urlencoded\r\n{CHUNKED}\r\n").encode() + form
    assert send(served, sent, is_open=True, timeout=5)[0] == 403


def test_an_unusual_address_or_method_is_an_api_error(served: Served, key: str) -> None:
    paths = ["/", "//1", "/1", "/1%2f2", "/%00", "/%ff%fe", "/" + "9" * 3_000]
    queries = ["limit=1&limit=0", "kind=" + "x" * 3_000, "%ff=%ff"]
    for method, path, status in (
        *((method, "memories", 405) for method in ("PURGE", "PUT", "TRACE", "OPTIONS")),
        *(("GET", f"memories{rest}", 404) for rest in paths),
        ("GET", "../../etc/passwd", 404),
        *(("GET", f"memories?{query}", 422) for query in queries),
    ):
        assert codes(send(served, request(key, method=method, path=path)))[0] == status, (method, path)
    assert send(served, request(key, method="HEAD", path="agent")) == (200, b"")
    for page in ("docs", "schema"):
        assert send(served, request(key, method="GET", path=page))[0] == 302, page
        assert send(served, request(key, method="GET", path=f"{page}/"))[0] == 200, page


def test_an_unusual_header_is_accepted_or_an_api_error(served: Served, key: str) -> None:
    accepted = ["Content-Encoding: identity", "If-None-Match: \xff\xfe", "Idempotency-Key: \xe9\xff"]
    accepted += ["Accept: text/html", "Accept: ,;q=,", "Accept-Charset: utf-7", "Cookie: sessionid=" + "x" * 2_000]
    refused = {"Content-Encoding: gzip": 415, "Content-Encoding: br": 415, "Idempotency-Key: " + "k" * 201: 422}
    for line, status in (dict.fromkeys(accepted, 201) | refused).items():
        answer = send(served, request(key, gzip.compress(GOOD) if line.endswith("gzip") else GOOD, line))
        assert answer[0] == status, answer
        assert status == 201 or codes(answer)[1]
    for kind in ("application/json; charset=UTF-8", 'application/json;charset="utf-8"', "Application/JSON"):
        assert send(served, request(key, GOOD, kind=kind))[0] == 201, kind
    unknown_host = request(key, GOOD).replace(b"Host: 127.0.0.1", b"Host: evil.example")
    assert codes(send(served, unknown_host)) == (400, ["bad_request"])


def test_malformed_http_is_refused(served: Served) -> None:
    get, host = b"GET /api/v1/agent HTTP/1.1\r\n", b"Host: 127.0.0.1\r\n"
    for broken in (
        get + host + b"X: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /api/v1/" + b"x" * 100_000 + b" HTTP/1.1\r\n" + host + b"\r\n",
        get + host + b"X: y\r\n" * 1_000 + b"\r\n",
        b"POST /api/v1/memories HTTP/1.1\r\n" + host + b"Content-Length: -5\r\n\r\n",
        b"POST /api/v1/memories HTTP/1.1\r\n" + host + b"Content-Length: x\r\n\r\n",
        get + b"Host: bad host\r\n\r\n",
        get + b"Host: evil.example\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    ):
        status, body = send(served, broken)
        assert 400 <= status < 500, broken[:50]
        assert MARKER.encode() not in body, broken[:50]


def test_nothing_of_an_incomplete_body_is_stored(served: Served, key: str) -> None:
    cut = request(key, GOOD[:-5], f"Content-Length: {len(GOOD)}")
    assert codes(send(served, cut)) == (400, ["parse_error"])
    line = GOOD + b"\n"
    for lines, missing, statuses in ((line + GOOD[:-9], 100, (400, 422)), (line, len(line), (400,))):
        cut = request(key, lines, f"Content-Length: {len(lines) + missing}", **LINES)
        assert send(served, cut)[0] in statuses
    assert 400 <= send(served, request(key, b"5\r\nabc", CHUNKED))[0] < 500
    assert not Memory.objects.exists()
    assert send(served, request(key, GOOD))[0] == 201
