"""README.md and docs/start/tutorial.md as a new user follows them: every command block, in order, on one service."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from tests.commands.calling import ROOT, Installation


@pytest.fixture
def address(service: Installation) -> Iterator[str]:
    """Where `manage.py serve`, the last step of `make serve`, runs the web server and a worker."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [sys.executable, "manage.py", "serve", "--bind", address],
        cwd=ROOT,
        env=service.environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://{address}/readyz", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def follow(page: str, service: Installation, address: str) -> str:
    """Run the `sh` blocks of a page as one script; what it prints."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    script = "\n".join(["set -eu", *blocks])
    script = script.replace("127.0.0.1:8000", address).replace(".venv/bin/python", sys.executable)
    script = script.replace("var/data/", f"{service.environment['VAR_DIR']}/data/")
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=ROOT,
        env=service.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_user_follows_the_readme_and_then_the_tutorial(service: Installation, address: str) -> None:
    shown = follow("README.md", service, address)
    assert "Ann prefers green tea to black tea." in shown
    assert "valid" in shown
    shown = follow("docs/start/tutorial.md", service, address)
    assert '"memories_before":6,"memories_after":5' in shown
    assert '"superseded_by":8' in shown
    assert '"undone_by":null' in shown
    assert '"undone_by":8' in shown
    contexts = [each.partition("# Your last days")[0] for each in shown.split("# What you remember")[1:]]
    assert ["- Shop opens at 08:30" in each for each in contexts] == [True, False, True]
    assert service.manage("verify_audit", "--all").code == 0
