"""What reaches the service over a real connection: broken, oversized and odd requests are told in the API's one form,
or refused by the server itself; never a 5xx, and the worker lives on."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from memory.agents import lifecycle
from memory.models import Memory
from tests.api.serving import Served, serving
from tests.conftest import OPERATOR
from tests.privacy.marker import MARKER

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

BODY_BYTES = 100_000


@pytest.fixture(scope="module")
def served(django_db_setup: None, django_db_blocker: object) -> Iterator[Served]:
    with django_db_blocker.unblock(), serving(API_BODY_BYTES=str(BODY_BYTES)) as service:  # type: ignore[attr-defined]
        yield service
    assert MARKER not in "".join(service.said)


@pytest.fixture
def key(db: None) -> str:
    return lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)[1]


def sent(served: Served, *parts: bytes) -> tuple[int, bytes]:
    """The status and the body of what is answered to these bytes."""
    with closing(socket.create_connection(served.address, timeout=30)) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError, OSError):
            pass  # it has answered before it read all
        answer = bytearray()
        try:
            while read := connection.recv(65_536):
                answer += read
        except ConnectionResetError:
            pass
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        body = b"".join(body.split(b"\r\n")[1::2])
    return int(head.split()[1]), body


def request(
    key: str,
    body: bytes = b"",
    *more: str,
    method: str = "POST",
    path: str = "memories",
    kind: str = "application/json",
) -> bytes:
    headers = [f"{method} /api/v1/{path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {key}"]
    headers += ["Connection: close", f"Content-Type: {kind}", *more]
    if not any("Transfer-Encoding" in line or "Content-Length" in line for line in more):
        headers.append(f"Content-Length: {len(body)}")
    return "\r\n".join(headers).encode("latin-1") + b"\r\n\r\n" + body


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


def codes(answer: tuple[int, bytes]) -> tuple[int, list[str]]:
    told = json.loads(answer[1])
    return answer[0], [error["code"] for error in told["errors"]]


GOOD = json.dumps({"content": f"{MARKER} tea"}).encode()


def test_a_body_in_chunks(served: Served, key: str) -> None:
    parts = chunked(GOOD[:9], GOOD[9:])
    status, body = sent(served, request(key, parts, "Transfer-Encoding: chunked"))
    assert (status, json.loads(body)["content"]) == (201, f"{MARKER} tea")


def test_an_import_in_chunks(served: Served, key: str) -> None:
    lines = [GOOD + b"\n"] * 3_000
    asked = request(key, chunked(*lines), "Transfer-Encoding: chunked", path="import", kind="application/x-ndjson")
    status, body = sent(served, asked)
    assert (status, json.loads(body)["imported"]) == (201, 3_000)
    assert Memory.objects.count() == 3_000


def test_a_body_that_is_too_large(served: Served, key: str) -> None:
    for how in ("told", "in chunks"):
        large = json.dumps({"content": "x" * BODY_BYTES}).encode()
        asked = request(key, large) if how == "told" else request(key, chunked(large), "Transfer-Encoding: chunked")
        assert codes(sent(served, asked)) == (413, ["too_large"]), how


def test_a_line_of_an_import_that_is_too_long(served: Served, key: str) -> None:
    body = chunked(GOOD + b"\n", *[b"x" * 100_000] * 20)
    asked = request(key, body, "Transfer-Encoding: chunked", path="import", kind="application/x-ndjson")
    status, told = sent(served, asked)
    assert (status, json.loads(told)["errors"][0]["attr"]) == (422, "line 2")
    assert not Memory.objects.exists()


def test_an_odd_address_or_method(served: Served, key: str) -> None:
    for asked, status in (
        (("PURGE", "memories"), 405),
        (("PUT", "memories"), 405),
        (("TRACE", "memories"), 405),
        (("GET", "memories/"), 404),
        (("GET", "memories//1"), 404),
        (("GET", "../../etc/passwd"), 404),
        (("GET", "memories/1%2f2"), 404),
        (("GET", "memories/%00"), 404),
        (("GET", "memories/%ff%fe"), 404),
        (("GET", "memories/" + "9" * 3_000), 404),
        (("GET", "memories?limit=1&limit=0"), 422),
        (("GET", "memories?kind=" + "x" * 3_000), 422),
        (("GET", "memories?%ff=%ff"), 422),
        (("GET", "memories/1"), 404),
    ):
        answer = sent(served, request(key, method=asked[0], path=asked[1]))
        assert codes(answer)[0] == status, asked


def test_an_odd_header(served: Served, key: str) -> None:
    for line, status in (
        ("Content-Encoding: gzip", 415),
        ("Content-Encoding: br", 415),
        ("Content-Encoding: identity", 201),
        ("If-None-Match: \xff\xfe", 201),
        ("Idempotency-Key: \xe9\xff", 201),
        ("Idempotency-Key: " + "k" * 201, 422),
        ("Accept: text/html", 201),
        ("Accept: ,;q=,", 201),
        ("Accept-Charset: utf-7", 201),
        ("Cookie: sessionid=" + "x" * 2_000, 201),
    ):
        body = gzip.compress(GOOD) if line.endswith("gzip") else GOOD
        answer = sent(served, request(key, body, line))
        assert answer[0] == status, answer
        assert status == 201 or codes(answer)[1]


def test_the_same_charset_and_type_otherwise_written(served: Served, key: str) -> None:
    for kind in ("application/json; charset=UTF-8", 'application/json;charset="utf-8"', "Application/JSON"):
        assert sent(served, request(key, GOOD, kind=kind))[0] == 201, kind


def test_what_is_hardly_http(served: Served) -> None:
    for broken in (
        (b"GET /api/v1/agent HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"),
        (b"GET /api/v1/" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        (b"GET /api/v1/agent HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 1_000 + b"\r\n"),
        (b"POST /api/v1/memories HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n"),
        (b"POST /api/v1/memories HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n"),
        (b"GET /api/v1/agent HTTP/1.1\r\nHost: bad host\r\n\r\n"),
        (b"GET /api/v1/agent HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"),
    ):
        status, body = sent(served, broken)
        assert 400 <= status < 500, broken[:50]
        assert MARKER.encode() not in body, broken[:50]


def test_a_name_the_service_is_not_known_by(served: Served, key: str) -> None:
    asked = request(key, GOOD).replace(b"Host: 127.0.0.1", b"Host: evil.example")
    assert codes(sent(served, asked)) == (400, ["bad_request"])


def test_a_page_without_its_slash(served: Served, key: str) -> None:
    for page in ("docs", "schema"):
        assert sent(served, request(key, method="GET", path=page))[0] == 302, page
        assert sent(served, request(key, method="GET", path=f"{page}/"))[0] == 200, page


def test_a_body_that_breaks_off(served: Served, key: str) -> None:
    """Nothing of it is stored, and the worker answers the next."""
    cut = request(key, GOOD[:-5], f"Content-Length: {len(GOOD)}")
    assert codes(sent(served, cut)) == (400, ["parse_error"])
    lines = GOOD + b"\n" + GOOD[:-9]
    told = f"Content-Length: {len(lines) + 100}"
    cut = request(key, lines, told, path="import", kind="application/x-ndjson")
    assert codes(sent(served, cut))[0] in (400, 422)
    broken = request(key, b"5\r\nabc", "Transfer-Encoding: chunked")
    assert 400 <= sent(served, broken)[0] < 500
    assert not Memory.objects.exists()
    assert sent(served, request(key, GOOD))[0] == 201


def test_an_import_cut_between_two_lines_is_not_taken_for_whole(served: Served, key: str) -> None:
    lines = GOOD + b"\n"
    told = f"Content-Length: {len(lines) * 2}"
    status, _ = sent(served, request(key, lines, told, path="import", kind="application/x-ndjson"))
    assert (status, Memory.objects.count()) == (400, 0)


def test_head_and_options(served: Served, key: str) -> None:
    assert codes(sent(served, request(key, method="OPTIONS", path="memories")))[0] == 405
    assert sent(served, request(key, method="HEAD", path="agent")) == (200, b"")
