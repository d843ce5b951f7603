"""The web process: it prints the address once it answers, and refuses an address that it cannot use in one line."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.calling import ROOT, Installation


@pytest.fixture
def log(service: Installation) -> Path:
    return service.folder / "web.log"


@pytest.fixture
def address(service: Installation, log: Path) -> Iterator[str]:
    """Where a web process answers, as it says in its log."""
    places = {"DATABASE_URL": "", "VAR_DIR": str(service.folder), "KEYS_DIR": str(service.folder / "keys")}
    options = ["--config", "python:config.gunicorn", "--bind", "127.0.0.1:0", "--no-control-socket"]
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "config.wsgi", *options],
            cwd=ROOT,
            env={**os.environ, **places},
            stderr=written,
        )
    try:
        until = time.monotonic() + 40
        while not (told := re.search(r"Palimpsest answers at http://(127\.0\.0\.1:\d+)/readyz", log.read_text())):
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        yield told[1]
    finally:
        process.terminate()
        process.wait(60)


def test_an_invalid_address_is_refused(service: Installation) -> None:
    for address in ("127.0.0.1:99999", "127.0.0.1:port", "256.256.256.256:80"):
        ran = service.manage("serve", "--bind", address)
        assert ran.code == 1
        assert ran.err.startswith(f"error: cannot listen on {address} (")
        assert "Traceback" not in ran.err
        assert "Palimpsest answers" not in ran.err


def test_its_pages_are_whole_and_its_log_says_nothing_of_a_request(address: str, log: Path) -> None:
    with urllib.request.urlopen(
        urllib.request.Request(f"http://{address}/healthz", method="HEAD"), timeout=20
    ) as answer:
        assert answer.headers["Content-Length"] == str(len('{"status": "ok"}'))
    page = urllib.request.urlopen(f"http://{address}/api/v1/docs/", timeout=20).read().decode()
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(named) >= 4, page
    for each in named:  # from the service itself
        assert each.startswith(("/static/", "/api/v1/docs/?script")), each
        with urllib.request.urlopen(f"http://{address}{each}", timeout=20) as answer:
            assert answer.read(), each
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://{address}/static/../config/settings.py", timeout=20)
    host, port = address.split(":")
    for said in (b"ZEBRA secret line\r\n\r\n", b"GET / HTTP/1.1\r\nZEBRA bad header\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=20) as asking:
            asking.sendall(said)
            assert b"400" in asking.recv(1000)
    told = log.read_text()
    assert told.count("Invalid request from ip=127.0.0.1") == 2
    assert ("ZEBRA" in told, "body" in told) == (False, False)


def test_it_ends_with_its_terminal(service: Installation) -> None:
    terminal, ours = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "manage.py", "serve", "--bind", "127.0.0.1:0"],
        cwd=ROOT,
        env=service.environment,
        stderr=ours,
        stdout=ours,
    )
    said = b""
    while b"answers at" not in said:
        said += os.read(terminal, 1000)
    process.send_signal(signal.SIGHUP)
    try:
        assert process.wait(30) == 0
    finally:
        process.kill()
        os.close(terminal)
        os.close(ours)
