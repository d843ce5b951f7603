"""One key sends large imports to a running service: it stays available, and other tenants can write."""

import gzip
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import count

import pytest

from tests.api.test_importing import archive
from tests.commands.conftest import _made as _made
from tests.commands.conftest import serve as serve
from tests.commands.conftest import service as service
from tests.commands.serving import Serve, Served

pytestmark = pytest.mark.slow

MOST = 5  # seconds: a second, with a factor for a busy machine
MARKDOWN, NDJSON = ("markdown", "application/gzip"), ("jsonl", "application/x-ndjson")


def bodies() -> list[tuple[tuple[str, str], bytes]]:
    """Two archives of 60,000 files, zeros, too many lines, and as many lines and files as are allowed."""
    folder = archive(*[(f"{n}.md", b"tea") for n in range(60_000)])
    most = archive(*[(f"{n}.md", b"tea") for n in range(15_000)])
    lines = [b'{"content": "Tea number %d is hot."}\n' % n for n in range(80_000)]
    imports = [(MARKDOWN, folder), (MARKDOWN, folder), (MARKDOWN, gzip.compress(b"\0" * 2**30, 1)[: 2**20])]
    return [*imports, (NDJSON, b"".join(lines)), (NDJSON, b"".join(lines[:20_000])), (MARKDOWN, most)]


def send(served: Served, key: str, kind: tuple[str, str], body: bytes, *, waits: bool) -> int:
    """The status of the response. If the client does not wait, it closes the connection, and the status is 0."""
    connection = HTTPConnection(served.address, timeout=300)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": kind[1]}
    connection.request("POST", f"/api/v1/import?format={kind[0]}", body, headers)
    status = connection.getresponse().status if waits else 0
    connection.close()
    return status


def longest(act: Callable[[], object], goes_on: Callable[[], bool]) -> float:
    """The seconds of the slowest call."""
    slowest = 0.0
    while goes_on():
        begun = time.monotonic()
        act()
        slowest = max(slowest, time.monotonic() - begun)
    return slowest


@pytest.mark.sqlite
def test_imports_of_one_key_do_not_stop_the_service(serve: Serve) -> None:
    served = serve(API_RATE="1000000")
    ada, bob = served.create_agent(), served.create_agent("globex/bob")
    numbers, sent = count(), bodies()

    def write() -> None:
        memory = {"content": f"Coffee number {next(numbers)} is black."}
        assert served.request("POST", "api/v1/memories", memory, bob)[0] == 201

    def is_open() -> bool:
        return json.loads(served.request("GET", "api/v1/import/1", key=ada)[1]).get("state") in ("queued", "running")

    with ThreadPoolExecutor(20) as pool:
        attack = [pool.submit(send, served, ada, *each, waits=waits) for each in sent for waits in (True, False)]
        goes_on = lambda: not all(each.done() for each in attack) or is_open()  # noqa: E731
        health = pool.submit(longest, lambda: served.request("GET", "healthz"), goes_on)
        waited = longest(write, goes_on)
        statuses = [each.result() for each in attack if each.result()]
    print({"healthz": round(health.result(), 2), "write": round(waited, 2), "statuses": statuses})
    assert health.result() <= MOST
    assert waited <= MOST
    assert set(statuses) <= {202, 409, 413, 422, 429}
