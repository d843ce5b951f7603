"""`manage.py serve` with ten writers while its processes are killed by SIGKILL: nothing is lost or doubled.

A few kills in every run; `KILLS=60 SEED=7 python -m pytest -s --timeout 0 tests/jobs/test_serve_kills.py` for more.
"""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import servers
from tests.commands.calling import Installation
from tests.commands.conftest import _made as _made
from tests.commands.conftest import service as service
from tests.commands.test_serve import Served, _children, served, until_ready
from tests.commands.test_serve import scaled as scaled
from tests.privacy.marker import MARKER

pytestmark = pytest.mark.database

KILLS, SEED = (int(os.environ.get(*each)) for each in (("KILLS", "6"), ("SEED", "1")))
WRITERS, AGENTS = 10, 5
PATIENCE = 300  # seconds, for a machine that is busy while the service starts again and again
QUICK = {"LEASE_SECONDS": "8", "MODEL_CALL_SECONDS": "5", "STOP_SECONDS": "2", "API_RATE": "1000000"}


class Supervised:
    """The service, which is started again when it has ended, and its agents' keys."""

    def __init__(self, installation: Installation, variables: dict[str, str]) -> None:
        self._installation, self._variables = installation, variables
        self.logs = ""
        self.restarts = -1
        self.serving = self._started()
        self.keys = [self._created(f"acme/a{number}") for number in range(AGENTS)]

    def _started(self) -> Served:
        self.restarts += 1
        return until_ready(served(self._installation, **self._variables))

    def _created(self, name: str) -> str:
        made = self._installation.manage("create_agent", name, "--model", "builtin/dedupe", **self._variables)
        assert made.code == 0, made
        return str(made.json["key"])

    def tend(self) -> None:
        if self.serving.process.poll() is not None:
            self.logs += self.serving.log.read_text()
            self.serving = self._started()

    def victims(self) -> list[int]:
        """The web processes, and all processes of the worker."""
        children = self.serving.children()
        web, worker = _children(children.get("web", 0)), children.get("worker", 0)
        guards = _children(worker)
        return [*web, *web, worker, *guards, *(pid for guard in guards for pid in _children(guard))]

    def exported(self, agent: int) -> list[str]:
        """The contents of an agent's memories, without what the service wrote itself."""
        key = self.keys[agent]
        ran = self._installation.manage(
            "export_memories", f"acme/a{agent}", "--with-discarded", PALIMPSEST_AGENT_KEY=key, **self._variables
        )
        assert ran.code == 0, ran.err
        contents = [json.loads(line)["content"] for line in ran.out.splitlines()]
        return [content for content in contents if content.startswith(MARKER)]

    def verified(self) -> int:
        return self._installation.manage("verify_audit", "--all", **self._variables).code


class Writer:
    """Writes one memory after the other, each again until the service has said that it is stored."""

    def __init__(self, service: Supervised, number: int, seed: int) -> None:
        self._service, self._dice = service, random.Random(seed * 100 + number)
        self.agent = number % AGENTS
        self.stored: list[str] = []
        self.longest_wait = 0.0  # seconds, until one memory was stored

    def work(self, ended: threading.Event) -> None:
        while not ended.is_set():
            said = f"{MARKER} {self._dice.getrandbits(128):032x} {self._dice.getrandbits(128):032x}"
            self._until_stored(said)
            self.stored.append(said)
            if len(self.stored) % 20 == 0:
                with suppress(httpx.HTTPError):
                    self._post("refinement-sessions", {"driver": "server"})

    def _until_stored(self, said: str) -> None:
        began, last = time.monotonic(), ""
        while time.monotonic() < began + PATIENCE:
            try:
                answer = self._post("memories", {"content": said}, {"Idempotency-Key": said[-64:].replace(" ", "")})
                if answer.status_code in (200, 201):
                    self.longest_wait = max(self.longest_wait, time.monotonic() - began)
                    return
                assert answer.status_code in (409, 503), answer.text
                last = answer.text
            except httpx.HTTPError as failure:
                last = repr(failure)
            time.sleep(0.2)
        raise TimeoutError(f"the service stores nothing any more: {last}")

    def _post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> httpx.Response:
        key = self._service.keys[self.agent]
        return httpx.post(
            f"http://{self._service.serving.address}/api/v1/{path}",
            json=body,
            headers={"Authorization": f"Bearer {key}"} | (headers or {}),
            timeout=20,
        )


@contextmanager
def supervising(service: Installation, variables: dict[str, str]) -> Iterator[Supervised]:
    supervised = Supervised(service, QUICK | variables)
    try:
        yield supervised
    finally:
        rest = supervised.serving.everyone()
        for pid in (supervised.serving.process.pid, *rest):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        supervised.serving.process.wait()


def kill(supervised: Supervised, dice: random.Random) -> int:
    """Kill processes of the service at random moments; how many."""
    killed = 0
    while killed < KILLS:
        time.sleep(dice.uniform(0.2, 2))
        supervised.tend()
        victims = [pid for pid in supervised.victims() if pid]
        if victims:
            with suppress(ProcessLookupError):
                os.kill(dice.choice(victims), signal.SIGKILL)
                killed += 1
    return killed


@pytest.mark.sqlite
def test_on_sqlite(service: Installation) -> None:
    with supervising(service, {}) as supervised:
        loses_and_doubles_nothing(supervised)


@pytest.mark.postgresql
def test_on_postgresql_and_redis(service: Installation, scaled: dict[str, str]) -> None:
    assert service.manage("migrate", "--verbosity", "0", **scaled).code == 0
    with servers.redis_server() as redis, supervising(service, scaled | {"REDIS_URL": redis.url}) as supervised:
        loses_and_doubles_nothing(supervised)


def loses_and_doubles_nothing(supervised: Supervised) -> None:
    ended = threading.Event()
    writers = [Writer(supervised, number, SEED) for number in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        working = [pool.submit(writer.work, ended) for writer in writers]
        try:
            killed = kill(supervised, random.Random(SEED))
        finally:
            ended.set()
        while not all(each.done() for each in working):
            supervised.tend()
            time.sleep(0.2)
        for each in working:
            each.result()
    supervised.tend()
    assert supervised.serving.stop() in (0, 1)
    stored = [
        {said for writer in writers if writer.agent == agent for said in writer.stored} for agent in range(AGENTS)
    ]
    found = [Counter(supervised.exported(agent)) for agent in range(AGENTS)]
    lost = sum(len(said - set(there)) for said, there in zip(stored, found, strict=True))
    doubled = sum(times > 1 for there in found for times in there.values())
    figures = {"kills": killed, "stored": sum(map(len, stored)), "restarts": supervised.restarts, "seed": SEED}
    figures["longest_wait"] = round(max(writer.longest_wait for writer in writers))
    print(json.dumps(figures))
    assert (lost, doubled) == (0, 0)
    assert supervised.verified() == 0
    assert MARKER not in supervised.logs + Path(supervised.serving.log).read_text()
