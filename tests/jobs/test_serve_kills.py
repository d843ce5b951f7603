"""The processes of `manage.py serve` are killed with SIGKILL while ten clients store: nothing is lost or doubled.

A few kills in every run; `KILLS=60 SEED=7 python -m pytest -s --timeout 0 tests/jobs/test_serve_kills.py` for more.
"""

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from tests import servers
from tests.commands.calling import Installation
from tests.commands.conftest import _made as _made
from tests.commands.conftest import scaled as scaled
from tests.commands.conftest import service as service
from tests.commands.serving import Served, children_of, start_serving, until_ready
from tests.privacy.marker import MARKER

pytestmark = [pytest.mark.slow, pytest.mark.database]

KILLS, SEED = (int(os.environ.get(*each)) for each in (("KILLS", "6"), ("SEED", "1")))
WRITERS, AGENTS = 10, 5
PATIENCE = 300  # seconds, for a machine that is busy while the service starts again and again
QUICK = {"LEASE_SECONDS": "8", "MODEL_CALL_SECONDS": "5", "STOP_SECONDS": "2", "API_RATE": "1000000"}


class Supervised:
    """A service that is started again when it has ended, and the keys of its agents."""

    def __init__(self, installation: Installation, variables: dict[str, str]) -> None:
        self._installation, self._variables = installation, variables
        self.logs = ""
        self.restarts = -1
        self.serving = self._start()
        names = (f"acme/a{number}" for number in range(AGENTS))
        self.keys = [self.manage("create_agent", name, "--model", "builtin/dedupe").json["key"] for name in names]

    def _start(self) -> Served:
        self.restarts += 1
        return until_ready(start_serving(self._installation, **self._variables))

    def manage(self, *command: str, **more: str) -> Any:
        ran = self._installation.manage(*command, **self._variables, **more)
        assert ran.code == 0, ran
        return ran

    def restart_if_ended(self) -> None:
        if self.serving.process.poll() is not None:
            self.logs += self.serving.log.read_text()
            self.serving = self._start()

    def victims(self) -> list[int]:
        """The web processes, and all processes of the worker."""
        children = self.serving.children()
        web, worker = children_of(children.get("web", 0)), children.get("worker", 0)
        guards = children_of(worker)
        pids = [*web, *web, worker, *guards, *(pid for guard in guards for pid in children_of(guard))]
        return [pid for pid in pids if pid]

    def exported(self, agent: int) -> list[str]:
        """The contents of an agent's memories, without the notices of the service."""
        key = {"PALIMPSEST_AGENT_KEY": self.keys[agent]}
        ran = self.manage("export_memories", f"acme/a{agent}", "--with-discarded", **key)
        contents = [json.loads(line)["content"] for line in ran.out.splitlines()]
        return [content for content in contents if content.startswith(MARKER)]


class Writer:
    """Stores one memory after the other. It repeats a request until the service confirms it."""

    def __init__(self, service: Supervised, number: int) -> None:
        self._service, self._random = service, random.Random(SEED * 100 + number)
        self.agent = number % AGENTS
        self.stored: list[str] = []
        self.longest_wait = 0.0  # seconds, until one memory was stored

    def write(self, ended: threading.Event) -> None:
        while not ended.is_set():
            content = f"{MARKER} {self._random.getrandbits(128):032x} {self._random.getrandbits(128):032x}"
            self._store(content)
            self.stored.append(content)
            if len(self.stored) % 20 == 0:
                with suppress(httpx.HTTPError):
                    self._post("refinement-sessions", {"driver": "server"})

    def _store(self, content: str) -> None:
        start, last = time.monotonic(), ""
        while time.monotonic() < start + PATIENCE:
            try:
                key = {"Idempotency-Key": content[-64:].replace(" ", "")}
                response = self._post("memories", {"content": content}, key)
                if response.status_code in (200, 201):
                    self.longest_wait = max(self.longest_wait, time.monotonic() - start)
                    return
                assert response.status_code in (409, 503), response.text
                last = response.text
            except httpx.HTTPError as error:
                last = repr(error)
            time.sleep(0.2)
        raise TimeoutError(f"the service stores nothing: {last}")

    def _post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._service.keys[self.agent]}"} | (headers or {})
        url = f"http://{self._service.serving.address}/api/v1/{path}"
        return httpx.post(url, json=body, headers=headers, timeout=20)


@contextmanager
def supervise(service: Installation, variables: dict[str, str]) -> Iterator[Supervised]:
    supervised = Supervised(service, QUICK | variables)
    try:
        yield supervised
    finally:
        supervised.serving.kill()


def kill(supervised: Supervised) -> int:
    """Kill processes at random moments. Returns the number of kills."""
    rng, killed = random.Random(SEED), 0
    while killed < KILLS:
        time.sleep(rng.uniform(0.2, 2))
        supervised.restart_if_ended()
        if victims := supervised.victims():
            with suppress(ProcessLookupError):
                os.kill(rng.choice(victims), signal.SIGKILL)
                killed += 1
    return killed


@pytest.mark.sqlite
def test_kills_lose_and_double_nothing_on_sqlite(service: Installation) -> None:
    with supervise(service, {}) as supervised:
        assert_nothing_is_lost_or_doubled(supervised)


@pytest.mark.postgresql
def test_kills_lose_and_double_nothing_on_postgresql_and_redis(service: Installation, scaled: dict[str, str]) -> None:
    assert service.manage("migrate", "--verbosity", "0", **scaled).code == 0
    with servers.redis_server() as redis, supervise(service, scaled | {"REDIS_URL": redis.url}) as supervised:
        assert_nothing_is_lost_or_doubled(supervised)


def assert_nothing_is_lost_or_doubled(supervised: Supervised) -> None:
    ended = threading.Event()
    writers = [Writer(supervised, number) for number in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        futures = [pool.submit(writer.write, ended) for writer in writers]
        try:
            killed = kill(supervised)
        finally:
            ended.set()
        while not all(future.done() for future in futures):
            supervised.restart_if_ended()
            time.sleep(0.2)
        for future in futures:
            future.result()
    supervised.restart_if_ended()
    assert supervised.serving.stop() in (0, 1)
    stored: list[set[str]] = [set() for _ in range(AGENTS)]
    for writer in writers:
        stored[writer.agent].update(writer.stored)
    found = [Counter(supervised.exported(agent)) for agent in range(AGENTS)]
    report = {"kills": killed, "stored": sum(map(len, stored)), "restarts": supervised.restarts, "seed": SEED}
    report["longest_wait"] = round(max(writer.longest_wait for writer in writers))
    print(json.dumps(report))
    lost = [contents - set(counted) for contents, counted in zip(stored, found, strict=True)]
    doubled = [content for counted in found for content, times in counted.items() if times > 1]
    assert (sum(map(len, lost)), len(doubled)) == (0, 0)
    supervised.manage("verify_audit", "--all")
    assert MARKER not in supervised.logs + supervised.serving.log.read_text()
