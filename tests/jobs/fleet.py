"""A fleet: several `manage.py worker` of one service, on their own PostgreSQL database and Redis.

The tests' own Django has another database and no Redis, so functions of `tests.jobs.inside` run in separate processes.
"""

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

TASK_PROCESSES = 2  # the processes of a worker that run tasks
QUICK = {"QUEUE_WORKERS": str(TASK_PROCESSES), "OPENAI_API_KEY": "any"}
QUICK |= {"LEASE_SECONDS": "8", "MODEL_CALL_SECONDS": "5", "STOP_SECONDS": "2"}


class Worker:
    """`manage.py worker` and its processes, which are a process group."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.log = log
        self.signalled_at: float | None = None  # when its supervisor ended its remaining processes
        command = [sys.executable, "manage.py", "worker"]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=file, stderr=file, start_new_session=True
            )

    @property
    def is_ready(self) -> bool:
        return len(self.parts()["works"]) == TASK_PROCESSES

    def parts(self) -> dict[str, list[int]]:
        """Its processes by role. The guard starts those that work, then the one that files results, then the one that
        fetches tasks."""
        guards = _children(self.process.pid)
        others = sorted(_children(guards[0])) if guards else []
        others = others if len(others) == TASK_PROCESSES + 2 else []
        return {
            "first": [self.process.pid],
            "guards": guards,
            "works": others[:TASK_PROCESSES],
            "files": others[TASK_PROCESSES : TASK_PROCESSES + 1],
            "fetches": others[TASK_PROCESSES + 1 :],
        }

    def signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def has_ended(self) -> bool:
        """Whether no process of its group is left."""
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
        self.exit_codes: list[int] = []  # of workers that were replaced
        self.choose_signal: Callable[[], signal.Signals] = lambda: signal.SIGTERM  # for the rest of a dead worker
        self._inside = ProcessPoolExecutor(2, get_context("spawn"), _set_up_django, (self.environment,))

    def do(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run a function of `tests.jobs.inside` in the service."""
        return self._inside.submit(_with_connection, partial(act, *args, **named)).result(120)

    def do_twice(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> list[T]:
        """Run it in two processes at the same time."""
        both = [self._inside.submit(_with_connection, partial(act, *args, **named)) for _ in range(2)]
        return [each.result(120) for each in both]

    def start(self, count: int = 1, **variables: str) -> None:
        new = [self._new(**variables) for _ in range(count)]
        self.workers += new
        self.until(lambda: all(worker.is_ready for worker in new))

    def _new(self, **variables: str) -> Worker:
        self.logs.append(self.installation.folder / f"worker{len(self.logs)}.log")
        return Worker(self.environment | variables, self.logs[-1])

    def supervise(self) -> None:
        """End the remaining processes of a dead worker, then start another worker."""
        for place, worker in enumerate(self.workers):
            if worker.process.poll() is None:
                continue
            if worker.has_ended():
                self.exit_codes.append(worker.process.returncode)
                self.workers[place] = self._new()
            elif worker.signalled_at is None:
                worker.signalled_at = time.monotonic()
                worker.signal_group(self.choose_signal())
            elif time.monotonic() - worker.signalled_at > 10:
                worker.signal_group(signal.SIGKILL)

    def until(self, condition: Callable[[], bool], seconds: float = 60, supervised: bool = False) -> None:
        def check() -> bool:
            if supervised:
                self.supervise()
            return condition()

        try:
            servers.until(check, seconds=seconds)
        except TimeoutError:
            raise TimeoutError(f"not within {seconds} seconds:\n{self.last_log_lines()}") from None

    def stop(self) -> list[int]:
        """Stop the workers and wait. Returns their exit codes."""
        for worker in self.workers:
            worker.process.terminate()
        return [worker.process.wait(60) for worker in self.workers]

    def close(self) -> None:
        for worker in self.workers:
            worker.signal_group(signal.SIGKILL)
            worker.process.wait()
        self._inside.shutdown()

    def last_log_lines(self, lines: int = 8) -> str:
        return "\n".join("\n".join(worker.log.read_text().splitlines()[-lines:]) for worker in self.workers)

    def leaks(self) -> list[str]:
        """Logs that contain the text of a memory."""
        return [leak.where for leak in leaks.find_in_files(self.logs, MARKER)]


@contextmanager
def new_fleet(folder: Path, database_url: str = "", redis_url: str = "", **variables: str) -> Iterator[Fleet]:
    """A service without workers, with a new database and a new Redis if no address is passed."""
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
    """The database that each fleet copies. It is dropped when the tests end."""
    name, stack = f"fleets_{os.getpid()}", ExitStack()
    url = stack.enter_context(servers.database(servers.given()[0], name))
    atexit.register(stack.close)
    _migrate(url)
    return name


def _migrate(database_url: str) -> None:
    ran = Installation(environment.FOLDER).manage("migrate", "--verbosity", "0", DATABASE_URL=database_url)
    assert ran.code == 0, ran


def _set_up_django(environment: dict[str, str]) -> None:
    os.environ.update(environment | {"DJANGO_SETTINGS_MODULE": "config.settings"})
    import django

    django.setup()


def _with_connection(act: Callable[[], T]) -> T:
    """Call it with a working connection, also after a restart of the server."""
    from django.db import close_old_connections

    close_old_connections()
    return act()


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
