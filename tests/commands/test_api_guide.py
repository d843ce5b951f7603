"""The snippets of docs/how-to/use-the-api.md work, in order, in one shell, after README's commands."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.calling import ROOT, Installation

GUIDE = (ROOT / "docs" / "how-to" / "use-the-api.md").read_text("utf-8")


@pytest.fixture
def address(service: Installation) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "config.wsgi", "--bind", place, "--workers", "2", "--no-control-socket"],
        cwd=ROOT,
        env=service.environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://{place}/readyz", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        yield place
    finally:
        process.terminate()
        process.wait(30)


def script(address: str, folder: Path) -> str:
    """The snippets as one script, with this address, Python and folder in the place of those in the guide."""
    parts = []
    for language, written in re.findall(r"```(sh|python)\n(.*?)```", GUIDE, re.DOTALL):
        snippet = written.replace("127.0.0.1:8000", address)
        if language == "python":
            (folder / "runtime.py").write_text(snippet, "utf-8")
        else:
            parts.append(re.sub(r"\b(runtime\.py|memories\.jsonl)", rf"{folder}/\1", snippet))
    return "set -eu\n" + "\n".join(parts).replace(".venv/bin/python", sys.executable)


def test_the_guide_works_as_it_stands(service: Installation, address: str, tmp_path: Path) -> None:
    service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe")
    written = script(address, tmp_path)
    done = subprocess.run(
        ["/bin/sh", "-c", written],
        cwd=ROOT,
        env=service.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\ncompleted\n" in done.stdout
    assert '"imported":' in done.stdout
    assert "# What you remember" in done.stdout
    assert '"budget":9000' in done.stdout
    assert service.manage("verify_audit", "--all").code == 0
