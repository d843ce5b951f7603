"""`manage.py serve` with real processes, and requests to it."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT, SIGKILL, Signals
from typing import Any

import pytest

from tests.commands.calling import ROOT, Installation
from tests.privacy.marker import MARKER

TOKEN = "scrape-me"
SIMILAR = [f"{MARKER}: the team {always}meets at 09:45 on the quay" for always in ("", "always ")]
OTHERS = [
    f"{MARKER} keeps a {thing} in the {place}" for thing in ("boat", "lamp") for place in ("attic", "shed", "loft")
]


@dataclass
class Served:
    """A running service."""

    installation: Installation
    environment: dict[str, str]
    address: str
    log: Path
    process: subprocess.Popen[bytes]

    def request(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        """The status and the text of a response."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(f"http://{self.address}/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def create_agent(self, name: str = "acme/ada", model: str = "builtin/dedupe") -> str:
        """Create an agent with two similar memories and some others. Returns its key."""
        ran = self.installation.manage("create_agent", name, "--model", model, **self.environment)
        assert ran.code == 0, ran
        key = str(ran.json["key"])
        memories = {"memories": [{"content": text} for text in SIMILAR + OTHERS]}
        assert self.request("POST", "api/v1/memories/batch", memories, key)[0] == 201
        return key

    def refine(self, key: str, outcome: str) -> dict[str, Any]:
        """Start a session and wait until it has this outcome."""
        response = self.request("POST", "api/v1/refinement-sessions", {"driver": "server"}, key)
        assert response[0] == 202, response
        return self.session(key, outcome)

    def session(self, key: str, outcome: str, seconds: float = 40) -> dict[str, Any]:
        """The agent's only session, when it has this outcome."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = json.loads(self.request("GET", "api/v1/refinement-sessions", key=key)[1])["results"]
            if found and found[0]["outcome"] == outcome:
                assert len(found) == 1
                return dict(found[0])
            time.sleep(0.2)
        pytest.fail(f"no session became {outcome}: {self.log.read_text()}")

    def children(self) -> dict[str, int]:
        """The ids of its two child processes, `web` and `worker`."""
        found = {}
        for pid in children_of(self.process.pid):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                found["web" if b"gunicorn" in command else "worker"] = pid
        return found

    def descendants(self) -> list[int]:
        """All processes of the service except the first."""
        found, parents = [], [self.process.pid]
        while parents:
            children = children_of(parents.pop())
            found += children
            parents += children
        return found

    def stop(self, by: Signals = SIGINT) -> int:
        self.process.send_signal(by)
        return self.process.wait(60)

    def kill(self) -> None:
        """Kill all processes of the service."""
        descendants = self.descendants()
        self.process.kill()
        self.process.wait()
        for pid in descendants:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)


Serve = Callable[..., Served]


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(each) for each in listed.stdout.split()]


def have_ended(pids: list[int], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(_is_alive(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def _is_alive(pid: int) -> bool:
    """A zombie has no command line."""
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


def cpu_seconds(pids: list[int]) -> float:
    """The processor time that these processes have used."""
    used = 0.0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def start_serving(service: Installation, cwd: Path = ROOT, **variables: str) -> Served:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    log = service.folder / "serve.log"
    command = [sys.executable, f"{ROOT}/manage.py", "serve", "--bind", address]
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=cwd, env=service.environment | variables, stdout=file, stderr=file)
    return Served(service, variables, address, log, process)


def until_ready(serving: Served) -> Served:
    for _ in range(300):
        with suppress(OSError):
            if serving.request("GET", "readyz")[0] == 200 and children_of(serving.children().get("worker", 0)):
                return serving
        if serving.process.poll() is not None:
            break
        time.sleep(0.1)
    pytest.fail(f"the service does not answer: {serving.log.read_text()}")
