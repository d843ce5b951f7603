"""A fleet: several `manage.py worker` of one service, on PostgreSQL and Redis of its own, tended as a supervisor does.

What a test wants of the service itself it has done in processes that are inside it (`Fleet.do`): the tests' own Django
has another database and no Redis.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from tests import environment, servers
from tests.commands.calling import ROOT, Installation
from tests.privacy import leaks
from tests.privacy.marker import MARKER

P = ParamSpec("P")
T = TypeVar("T")

AT_WORK = 2  # processes of a worker that carry out tasks
QUICK = {
    "QUEUE_WORKERS": str(AT_WORK),
    "LEASE_SECONDS": "8",
    "MODEL_CALL_SECONDS": "5",
    "STOP_SECONDS": "2",
    "OPENAI_API_KEY": "any",
}


class Worker:
    """`manage.py worker` and its processes: a group of their own."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.log = log
        self.told_to_end: float | None = None
        with log.open("wb") as written:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "worker"],
                cwd=ROOT,
                env=environment,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )

    @property
    def is_ready(self) -> bool:
        return len(self.parts()["works"]) == AT_WORK

    def parts(self) -> dict[str, list[int]]:
        """Its processes by what they do. They are started in this order: those that work, the one that files results,
        the one that fetches tasks."""
        guards = _children(self.process.pid)
        rest = sorted(_children(guards[0])) if guards else []
        rest = rest if len(rest) == AT_WORK + 2 else []
        return {
            "first": [self.process.pid],
            "guards": guards,
            "works": rest[:AT_WORK],
            "files": rest[AT_WORK : AT_WORK + 1],
            "fetches": rest[AT_WORK + 1 :],
        }

    def signal_group(self, what: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, what)

    def is_gone(self) -> bool:
        """Whether nothing of its group is left."""
        self.process.poll()
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False


class Fleet:
    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.installation = Installation(folder)
        self.environment = self.installation.environment | variables
        self.workers: list[Worker] = []
        self.logs: list[Path] = []
        self.codes: list[int] = []  # with which workers ended that were replaced
        self.last_word: Callable[[], signal.Signals] = lambda: signal.SIGTERM  # to what is left of a worker that died
        self._inside = ProcessPoolExecutor(2, get_context("spawn"), _enter, (self.environment,))

    def do(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Have a function of `tests.jobs.inside` run inside the service."""
        return self._inside.submit(_connected, partial(act, *args, **named)).result(120)

    def do_twice(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> list[T]:
        """The same, in two processes at once."""
        both = [self._inside.submit(_connected, partial(act, *args, **named)) for _ in range(2)]
        return [each.result(120) for each in both]

    def start(self, count: int = 1, **more: str) -> None:
        new = [self._new(**more) for _ in range(count)]
        self.workers += new
        self.until(lambda: all(worker.is_ready for worker in new))

    def _new(self, **more: str) -> Worker:
        self.logs.append(self.installation.folder / f"worker{len(self.logs)}.log")
        return Worker(self.environment | more, self.logs[-1])

    def tend(self) -> None:
        """What a supervisor does: end what is left of a worker that died, then start another in its place."""
        for place, worker in enumerate(self.workers):
            if worker.process.poll() is None:
                continue
            if worker.is_gone():
                self.codes.append(worker.process.returncode)
                self.workers[place] = self._new()
            elif worker.told_to_end is None:
                worker.told_to_end = time.monotonic()
                worker.signal_group(self.last_word())
            elif time.monotonic() - worker.told_to_end > 10:
                worker.signal_group(signal.SIGKILL)

    def until(self, so: Callable[[], bool], seconds: float = 60, tended: bool = False) -> None:
        def look() -> bool:
            if tended:
                self.tend()
            return so()

        try:
            servers.until(look, seconds=seconds)
        except TimeoutError:
            raise TimeoutError(f"not within {seconds} seconds:\n{self.said()}") from None

    def stop(self) -> list[int]:
        """Ask the workers to end, and wait; their exit codes."""
        for worker in self.workers:
            worker.process.terminate()
        return [worker.process.wait(60) for worker in self.workers]

    def close(self) -> None:
        for worker in self.workers:
            worker.signal_group(signal.SIGKILL)
            worker.process.wait()
        self._inside.shutdown()

    def said(self, lines: int = 8) -> str:
        """The last lines of the log of each worker that lives."""
        return "\n".join("\n".join(worker.log.read_text().splitlines()[-lines:]) for worker in self.workers)

    def leaks(self) -> list[str]:
        """Logs in which the words of a memory are."""
        return [leak.where for leak in leaks.find_in_files(self.logs, MARKER)]


@contextmanager
def new_fleet(folder: Path, database_url: str = "", redis_url: str = "", **variables: str) -> Iterator[Fleet]:
    """A service without workers. It has a database of its own on the suite's PostgreSQL, and a Redis of its own, unless
    it is given others."""
    with ExitStack() as stack:
        if database_url:
            _migrate(database_url)
        else:
            name = f"fleet_{os.getpid()}_{time.monotonic_ns() % 10**9}"
            database_url = stack.enter_context(servers.database(servers.given()[0], name, _migrated()))
        redis_url = redis_url or stack.enter_context(servers.redis_server()).url
        places = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "KEYS_DIR": str(environment.FOLDER / "keys")}
        fleet = Fleet(folder, QUICK | places | variables)
        stack.callback(fleet.close)
        yield fleet


@cache
def _migrated() -> str:
    """The database of which each fleet's is a copy, kept until the tests are over."""
    name, kept = f"fleets_{os.getpid()}", ExitStack()
    url = kept.enter_context(servers.database(servers.given()[0], name))
    atexit.register(kept.close)
    _migrate(url)
    return name


def _migrate(database_url: str) -> None:
    made = Installation(environment.FOLDER).manage("migrate", "--verbosity", "0", DATABASE_URL=database_url)
    assert made.code == 0, made


def _enter(environment: dict[str, str]) -> None:
    os.environ.update(environment | {"DJANGO_SETTINGS_MODULE": "config.settings"})
    import django

    django.setup()


def _connected(act: Callable[[], T]) -> T:
    """Do it with a connection that lives, also after the server was restarted."""
    from django.db import close_old_connections

    close_old_connections()
    return act()


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
