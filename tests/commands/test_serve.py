"""`manage.py serve` with real processes: an agent refined by itself, one Ctrl-C for both, neither alone."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from config.management.commands import serve as command
from tests import servers
from tests.commands.calling import ROOT, Installation
from tests.model_server import Call, ModelServer, Slow
from tests.privacy.marker import MARKER

TOKEN = "scrape-me"
SAME = [f"{MARKER}: the team {always}meets at 09:45 on the quay" for always in ("", "always ")]
OTHER = [f"{MARKER} keeps a {thing} in the {place}" for thing in ("boat", "lamp", "map") for place in ("attic", "shed")]


@dataclass
class Served:
    """A service of one's own, being served."""

    installation: Installation
    environment: dict[str, str]
    address: str
    log: Path
    process: subprocess.Popen[bytes]
    keys: list[str] = field(default_factory=list)

    def ask(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(f"http://{self.address}/{path}", sent, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def agent(self, name: str = "acme/ada", model: str = "builtin/dedupe") -> str:
        """An agent who says nearly the same thing twice; its key."""
        made = self.installation.manage("create_agent", name, "--model", model, **self.environment)
        assert made.code == 0, made
        key = str(made.json["key"])
        memories = {"memories": [{"content": text} for text in SAME + OTHER]}
        assert self.ask("POST", "api/v1/memories/batch", memories, key)[0] == 201
        return key

    def refine(self, key: str) -> None:
        asked = self.ask("POST", "api/v1/refinement-sessions", {"driver": "server"}, key)
        assert asked[0] == 202, asked

    def session(self, key: str, outcome: str = "", seconds: float = 40) -> dict[str, Any]:
        """The agent's only session, once it has this outcome."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = json.loads(self.ask("GET", "api/v1/refinement-sessions", key=key)[1])["results"]
            if found and found[0]["outcome"] == outcome:
                assert len(found) == 1
                return dict(found[0])
            time.sleep(0.2)
        pytest.fail(f"no session became {outcome}: {self.log.read_text()}")

    def children(self) -> dict[str, int]:
        """The two processes it started, by what they are."""
        found = {}
        for pid in _children(self.process.pid):
            with suppress(OSError):
                said = Path(f"/proc/{pid}/cmdline").read_bytes()
                found["web" if b"gunicorn" in said else "worker"] = pid
        return found

    def everyone(self) -> list[int]:
        """Every process of the service but the first."""
        found, ask = [], [self.process.pid]
        while ask:
            children = _children(ask.pop())
            found += children
            ask += children
        return found

    def stop(self, by: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(by)
        return self.process.wait(60)


def _children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(each) for each in listed.stdout.split()]


def _gone(pids: list[int], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(Path(f"/proc/{pid}/cmdline").is_file() and _lives(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def _lives(pid: int) -> bool:
    """A process that ended and that nobody waited for has no command line left."""
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


def served(service: Installation, **more: str) -> Served:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    log = service.folder / "serve.log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "serve", "--bind", address],
            cwd=ROOT,
            env=service.environment | more,
            stdout=written,
            stderr=written,
        )
    return Served(service, more, address, log, process)


def until_ready(serving: Served) -> Served:
    for _ in range(300):
        with suppress(OSError):
            if serving.ask("GET", "readyz")[0] == 200 and len(_children(serving.children().get("worker", 0))) > 0:
                return serving
        if serving.process.poll() is not None:
            break
        time.sleep(0.1)
    pytest.fail(f"it does not answer: {serving.log.read_text()}")


@pytest.fixture
def serve(service: Installation) -> Iterator[Any]:
    """Call it with variables of the environment: a service that answers, ended with the test."""
    started: list[Served] = []

    def start(**more: str) -> Served:
        started.append(served(service, METRICS_TOKEN=TOKEN, **more))
        return until_ready(started[-1])

    yield start
    for each in started:
        rest = each.everyone()
        each.process.kill()
        each.process.wait()
        for pid in rest:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def refines_by_itself(serving: Served, name: str = "acme/ada") -> None:
    key = serving.agent(name)
    serving.refine(key)
    session = serving.session(key, "completed")
    assert (session["driver"], session["trigger"], session["merged"]) == ("server", "agent", 2)
    context = serving.ask("GET", "api/v1/context", key=key)[1]
    assert "Refinement completed." in context
    assert context.count("on the quay") == 1
    assert serving.installation.manage("verify_audit", "--all", **serving.environment).code == 0
    assert MARKER not in serving.log.read_text()


@pytest.fixture
def scaled() -> Iterator[dict[str, str]]:
    """A database of one's own on the PostgreSQL the tests run on, and the Redis they were given."""
    url, redis_url = servers.given()
    if not url:
        pytest.skip("needs DATABASE_URL of PostgreSQL, and REDIS_URL")
    with servers.database(url, f"served_{os.getpid()}") as database_url:
        yield {"DATABASE_URL": database_url, "REDIS_URL": redis_url}


@pytest.mark.postgresql
def test_the_same_on_postgresql_and_redis(serve: Any, service: Installation, scaled: dict[str, str]) -> None:
    assert service.manage("migrate", "--verbosity", "0", **scaled).code == 0
    refines_by_itself(serve(**scaled))


def test_it_refines_by_itself_is_cheap_when_idle_and_one_ctrl_c_ends_all_of_it(serve: Any) -> None:
    """A session that is soon done ends by itself."""
    with ModelServer(lambda _: Slow(3, then=Call("complete_refinement", {"summary": "Nothing to do."}))) as server:
        serving = serve(OPENAI_BASE_URL=server.openai_url, OPENAI_API_KEY="any")
        refines_by_itself(serving)
        everyone = serving.everyone()
        assert len(everyone) == 2 + 2 + 5, "web, its two; the worker's own, two that work and two that fetch and file"
        time.sleep(1)
        before, began = _seconds(everyone), time.monotonic()
        time.sleep(3)
        assert (_seconds(everyone) - before) / (time.monotonic() - began) < 0.06
        key = serving.agent("acme/bob", "openai/scripted")
        serving.refine(key)
        serving.session(key, "open")
        assert serving.stop() == 0
    assert _gone(everyone)
    said = serving.log.read_text()
    assert f"Palimpsest answers at http://{serving.address}/readyz" in said
    assert "manage.py create_agent TENANT/AGENT" in said
    assert '"event": "refinement session closed"' in said
    assert "stopping: running work has 30 seconds to end" in said
    assert "Traceback" not in said
    exported = serving.installation.manage("export_memories", "acme/bob", PALIMPSEST_AGENT_KEY=key)
    assert "Refinement completed." in exported.out


def test_a_worker_that_dies_is_replaced_and_with_the_web_process_all_ends(serve: Any) -> None:
    """Its processes are killed, too: while idle, each with the lock of a queue in its hands, for which others wait."""
    serving = serve()
    worker = serving.children()["worker"]
    everyone = _children(worker) + _children(_children(worker)[0])
    os.kill(worker, signal.SIGKILL)
    assert _gone([worker, *everyone], 20)
    refines_by_itself(serving)
    assert "the worker ended (killed by signal 9): starting another" in serving.log.read_text()
    for nth, which in enumerate(("works", "files"), 1):
        [sentinel] = _children(serving.children()["worker"])
        for _ in range(100):
            if len(_children(sentinel)) == 4:
                break
            time.sleep(0.1)
        works, also_works, files, _ = sorted(_children(sentinel))
        time.sleep(1)  # until all of them wait
        for pid in [works, also_works] if which == "works" else [files]:
            os.kill(pid, signal.SIGKILL)
        assert _gone([sentinel], 20)
        refines_by_itself(serving, f"acme/{which}")
        said = serving.log.read_text()
        assert said.count("a process of the worker died: the worker ends") == nth
        assert said.count("the worker ended (exit code 1): starting another") == nth
    everyone = serving.everyone()
    os.kill(serving.children()["web"], signal.SIGTERM)
    assert serving.process.wait(40) == 1
    assert _gone(everyone)
    assert "the web process ended (exit code 0): stopping" in serving.log.read_text()


def test_workers_are_not_replaced_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    deaths: deque[float] = deque(maxlen=2)
    assert [command.may_replace(deaths) for _ in range(4)] == [True, True, False, False]
    monkeypatch.setattr(command, "WITHIN", 0)
    assert [command.may_replace(deaths) for _ in range(4)] == [True] * 4


def test_a_process_that_dies_at_work_is_replaced(serve: Any) -> None:
    """Its session is left to `close_stale`; the others' go on."""
    with ModelServer(lambda _: Slow(60)) as server:
        serving = serve(OPENAI_BASE_URL=server.openai_url, OPENAI_API_KEY="any", QUEUE_WORKERS="1")
        key = serving.agent("acme/ada", "openai/scripted")
        serving.refine(key)
        serving.session(key, "open")
        [sentinel] = _children(serving.children()["worker"])
        os.kill(min(_children(sentinel)), signal.SIGKILL)
        refines_by_itself(serving, "acme/bob")
        assert serving.session(key, "open")["merged"] == 0


def test_a_session_that_outlasts_the_stop_is_closed(serve: Any) -> None:
    """Its agent is told, and need not wait until the lease has run out."""
    with ModelServer(lambda _: Slow(60)) as server:
        serving = serve(OPENAI_BASE_URL=server.openai_url, OPENAI_API_KEY="any", STOP_SECONDS="1")
        key = serving.agent("acme/ada", "openai/scripted")
        serving.refine(key)
        serving.session(key, "open")
        assert serving.stop(signal.SIGTERM) == 0
    exported = serving.installation.manage("export_memories", "acme/ada", PALIMPSEST_AGENT_KEY=key)
    assert "Refinement ended early (worker stopped)." in exported.out
    assert serving.installation.manage("verify_audit", "--all").code == 0


def _seconds(pids: list[int]) -> float:
    """Of processor time that these have used."""
    used = 0.0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def _counting(serving: Served) -> set[str]:
    """The files of the processes that have answered."""
    return {file.name for file in (serving.installation.folder / "metrics").glob("counter_*.db")}


def test_two_web_processes_give_one_sum(serve: Any) -> None:
    serving = serve()
    assert len(_children(serving.children()["web"])) == 2
    asked = 0
    while len(_counting(serving)) < 2 and asked < 2_000:
        with ThreadPoolExecutor(8) as pool:
            assert {status for status, _ in pool.map(lambda _: serving.ask("GET", "healthz"), range(40))} == {200}
        asked += 40
    figures = [serving.ask("GET", "metrics", key=TOKEN)[1] for _ in range(6)]
    counted = [
        re.findall(r'palimpsest_requests_total{method="GET",route="healthz",status="200"} (\S+)', text)
        for text in figures
    ]
    assert counted == [[f"{asked:.1f}"]] * 6
    assert len(_counting(serving)) == 2, "both have answered"
    ran = serving.installation.manage("serve", "--bind", serving.address)
    taken = f"error: cannot listen on {serving.address} (Address already in use)\n"
    assert (ran.code, ran.err) == (1, taken)
    assert serving.ask("GET", "healthz")[0] == 200
    assert f'route="healthz",status="200"}} {asked + 1:.1f}' in serving.ask("GET", "metrics", key=TOKEN)[1]
    assert serving.stop() == 0
    again = serve()
    assert 'route="healthz"' not in again.ask("GET", "metrics", key=TOKEN)[1]


def test_ctrl_c_while_a_dead_worker_is_replaced_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_wait", interrupted)
    dead = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    dead.wait()
    with pytest.raises(KeyboardInterrupt):
        command.Command()._watch({command.WORKER: dead})
