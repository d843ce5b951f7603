"""Run the web processes and a worker. A killed process is replaced, and all processes stop together."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import OperationalError, connection
from gunicorn.util import getcwd, parse_address  # type: ignore[import-untyped]

from config import environment
from config.checks import OURS
from config.commandline import Task
from config.errors import FAILED, USAGE
from config.pool import LAST_SECONDS

GUNICORN = ("-m", "gunicorn", "config.wsgi", "--config", "python:config.gunicorn")
WEB, WORKER = "the web process", "the worker"
DEATHS, WITHIN = 5, 600  # at most 5 dead processes are replaced within 600 seconds
WEB_SECONDS = 1  # for requests to end, after the first web process was killed

Process = subprocess.Popen[bytes]


class Command(Task):
    needs_sound_database, requires_system_checks = False, ()  # `run` checks them, after it has set up the service
    help = (
        "Run the service: web processes (WEB_WORKERS) and a worker (QUEUE_WORKERS processes), until Ctrl-C or SIGTERM. "
        "At a stop, running requests and sessions have STOP_SECONDS to end. A worker that dies, or a web process that "
        f"is killed, is replaced at most {DEATHS} times within {WITHIN // 60} minutes. After one more death, or if the "
        "web process ends, the service stops with exit code 1. If the default database is new, keys and tables are "
        "created first. In production, run gunicorn and 'manage.py worker' separately."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--bind", metavar="ADDRESS", default="127.0.0.1:8000", help="the address to listen on")

    def run(self, *, bind: str, **options: Any) -> int | None:
        if not environment.text("DATABASE_URL") and _is_empty():
            self.set_up()
        self.check(tags=[OURS])
        self.require_sound_database()
        self._require_free(bind)
        self.say(f"The data is in {settings.VAR_DIR}, and the keys are in {settings.KEYS_DIR}.")
        if ":" in bind and "/" not in bind:  # the default for links
            os.environ.setdefault("PUBLIC_URL", f"http://{bind}")
        running: dict[str, Process] = {}
        try:
            for name in (WEB, WORKER):
                running[name] = _start(name, bind)
            return self._watch(running, bind)
        except KeyboardInterrupt:
            return None
        finally:
            self._stop(running.values())

    def _require_free(self, bind: str) -> None:
        """Fail at once if the address cannot be used. Gunicorn itself would try again for several seconds."""
        try:
            address = parse_address(bind)
            if isinstance(address, tuple):
                family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
                with socket.socket(family) as trial:
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    trial.bind(address)
        except (OSError, OverflowError, RuntimeError) as failure:
            reason = getattr(failure, "strerror", None) or "no such port"
            self.fail(f"cannot listen on {bind} ({reason}). Choose another address, such as 127.0.0.1:8123", FAILED)

    def _watch(self, running: dict[str, Process], bind: str) -> int:
        """Replace each worker that ends. When a web process ends, or when a worker must not be replaced, return the
        exit code."""
        deaths: deque[float] = deque(maxlen=DEATHS)
        while True:
            time.sleep(0.2)
            for name, process in running.items():
                if process.poll() is None:
                    continue
                # A new process fails too if the configuration is wrong.
                is_fault = process.returncode < 0 or (name == WORKER and process.returncode != USAGE)
                is_replaced = is_fault and may_replace(deaths)
                self.say(f"{name} ended ({_how(process)}): {'starting another' if is_replaced else 'stopping'}")
                _end([process], WEB_SECONDS if name == WEB else LAST_SECONDS)  # its child processes
                if not is_replaced:
                    return USAGE if process.returncode == USAGE else FAILED
                running[name] = _start(name, bind)

    def _stop(self, processes: Collection[Process]) -> None:
        """Ask the processes to end. After a time, kill those that still run. A second Ctrl-C kills all processes at
        once."""
        with suppress(KeyboardInterrupt):
            for process in processes:
                process.terminate()
            self.say(f"stopping: running work has {settings.STOP_SECONDS} seconds to end (Ctrl-C: stop at once)")
            _wait(processes, settings.STOP_SECONDS)
        with suppress(KeyboardInterrupt):
            _end(processes)


def may_replace(deaths: deque[float]) -> bool:
    """Whether to replace a process that died. If so, this also records its death."""
    now = time.monotonic()
    if len(deaths) == deaths.maxlen and now - deaths[0] < WITHIN:
        return False
    deaths.append(now)
    return True


def _how(process: Process) -> str:
    code = process.returncode
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _is_empty() -> bool:
    """Whether the database has no tables. If it does not answer, for example because the disk is full, it has some."""
    with suppress(OperationalError):
        return not connection.introspection.table_names()
    return False


def _start(name: str, bind: str) -> Process:
    """Start a process in its own group. So Ctrl-C in a terminal reaches only `serve`. Then `serve` stops the other
    processes."""
    arguments = (*GUNICORN, f"--bind={bind}") if name == WEB else ("-m", "config.commandline.main", "worker")
    # Works in any current folder, also in one with a package of the same name: gunicorn would put this folder first.
    paths = filter(None, (str(settings.BASE_DIR), os.environ.get("PYTHONPATH"), getcwd()))
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen([sys.executable, "-P", *arguments], start_new_session=True, env=variables)  # noqa: S603


def _end(processes: Collection[Process], seconds: float = LAST_SECONDS) -> None:
    """End the process groups with SIGTERM. After some seconds, or at Ctrl-C, kill them with SIGKILL. Raises
    KeyboardInterrupt."""
    try:
        _send(processes, signal.SIGTERM)
        _wait(processes, seconds)
    finally:
        _send(processes, signal.SIGKILL)
        for process in processes:
            process.wait()


def _wait(processes: Collection[Process], seconds: float) -> None:
    until = time.monotonic() + seconds
    while any(_lives(process) for process in processes) and time.monotonic() < until:
        time.sleep(0.1)


def _lives(process: Process) -> bool:
    """Whether the process group of `process` still has a running process. If the first process of the group has ended,
    `poll` removes it from the group."""
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _send(processes: Collection[Process], what: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, what)
