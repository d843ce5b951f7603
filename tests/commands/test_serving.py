"""`make serve`: it prints the address once it answers, and refuses an address that it cannot use in one line."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests.commands.calling import ROOT, Installation


def gunicorn(service: Installation, address: str) -> subprocess.Popen[str]:
    places = {"DATABASE_URL": "", "VAR_DIR": str(service.folder), "KEYS_DIR": str(service.folder / "keys")}
    options = ["--config", "python:config.gunicorn", "--bind", address, "--no-control-socket"]
    return subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "config.wsgi", *options],
        cwd=ROOT,
        env={**os.environ, **places},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "127.0.0.1:port", "256.256.256.256:80"])
def test_an_invalid_address_is_refused(service: Installation, address: str) -> None:
    ran = service.manage("serve", "--bind", address)
    assert ran.code == 1
    assert ran.err.startswith(f"error: cannot listen on {address} (")
    assert "Traceback" not in ran.err
    assert "Palimpsest answers" not in ran.err


def test_the_address_is_told_once_it_is_bound(service: Installation) -> None:
    process = gunicorn(service, "127.0.0.1:0")
    try:
        assert process.stderr is not None
        said = next((line for line in process.stderr if "answers at" in line), "")
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert said.startswith("Palimpsest answers at http://127.0.0.1:")


def test_what_a_broken_request_said_is_not_logged(service: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = gunicorn(service, f"127.0.0.1:{port}")
    try:
        assert process.stderr is not None
        assert next(line for line in process.stderr if "answers at" in line)
        for said in (b"ZEBRA secret line\r\n\r\n", b"GET / HTTP/1.1\r\nZEBRA bad header\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as asking:
                asking.sendall(said)
                assert b"400" in asking.recv(1000)
    finally:
        process.terminate()
        err = process.communicate(timeout=60)[1]
    assert err.count("Invalid request from ip=127.0.0.1") == 2
    assert "ZEBRA" not in err


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


def test_the_page_of_the_api_has_what_it_names_from_the_service_itself(service: Installation) -> None:
    process = gunicorn(service, "127.0.0.1:0")
    try:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "answers at" in line)
        base = told.split()[3].removesuffix("/readyz")
        page = urllib.request.urlopen(f"{base}/api/v1/docs/", timeout=20).read().decode()
        named = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert len(named) >= 4, page
        for each in named:
            assert each.startswith(("/static/", "/api/v1/docs/?script")), each
            with urllib.request.urlopen(base + each, timeout=20) as answer:
                assert answer.read(), each
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/static/../config/settings.py", timeout=20)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_head_is_answered_without_a_warning(service: Installation) -> None:
    process = gunicorn(service, "127.0.0.1:0")
    try:
        assert process.stderr is not None
        base = next(line for line in process.stderr if "answers at" in line).split()[3].removesuffix("/readyz")
        with urllib.request.urlopen(urllib.request.Request(f"{base}/healthz", method="HEAD"), timeout=20) as answer:
            assert answer.headers["Content-Length"] == str(len('{"status": "ok"}'))
    finally:
        process.terminate()
        err = process.communicate(timeout=60)[1]
    assert "body" not in err
