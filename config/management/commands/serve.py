"""Run the web process and the worker side by side: a worker that dies is replaced, and all stop together."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from config.commandline import Task
from config.errors import FAILED, USAGE
from config.pool import LAST_SECONDS

GUNICORN = (
    "-m",
    "gunicorn",
    "config.wsgi",
    "--config",
    "python:config.gunicorn",
    "--no-control-socket",
    "--access-logfile",
    os.devnull,
)
WORKER = "the worker"
LITTLE = 2  # seconds of waiting that nobody is told of
WORKERS, WITHIN = 5, 600  # so many workers that died are replaced within so many seconds

Process = subprocess.Popen[bytes]


class Command(Task):
    help = (
        "Run the service: web processes (WEB_WORKERS) and a worker (QUEUE_WORKERS processes), until Ctrl-C or SIGTERM, "
        "which let what is under way end for STOP_SECONDS and then close it. A worker that dies is replaced, "
        f"{WORKERS} times within {WITHIN // 60} minutes at most; else, and when the web process dies, everything is "
        "stopped, and the exit code is 1. In production run the two apart: gunicorn, and 'manage.py worker'."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--bind", metavar="ADDRESS", default="127.0.0.1:8000", help="where it is to be had")

    def run(self, *, bind: str, **options: Any) -> int | None:
        web = {
            "bind": bind,
            "workers": settings.WEB_WORKERS,
            "threads": settings.WEB_THREADS,
            "graceful-timeout": settings.STOP_SECONDS,
            "pythonpath": settings.BASE_DIR,
        }
        if ":" in bind and "/" not in bind:  # links lead here, unless it is said where people reach it
            os.environ.setdefault("PUBLIC_URL", f"http://{bind}")
        named = [f"--{name}={value}" for name, value in web.items()]
        both: dict[str, Process] = {}
        try:
            both["the web process"] = _start(*GUNICORN, *named)
            both[WORKER] = _start_worker()
            self._watch(both)
            return FAILED
        except KeyboardInterrupt:
            return None
        finally:
            self._stop(both)

    def _stop(self, both: dict[str, Process]) -> None:
        """Ask them to end, then end what is left. A second Ctrl-C leaves out the waiting."""
        with suppress(KeyboardInterrupt):
            for process in both.values():
                process.terminate()
            _wait(both.values(), min(LITTLE, settings.STOP_SECONDS))
            if names := [name for name, process in both.items() if _is_there(process)]:
                rest = f"{settings.STOP_SECONDS} seconds at most (Ctrl-C: not at all)"
                self.say(f"waiting for {' and '.join(names)} to end what is under way, {rest}")
            _wait(both.values(), settings.STOP_SECONDS - LITTLE)
        _end(both.values())

    def _watch(self, both: dict[str, Process]) -> None:
        """Until one has ended that is not to be replaced."""
        may_replace = Sparingly(WORKERS, WITHIN)
        while True:
            time.sleep(0.2)
            for name, process in both.items():
                if process.poll() is None:
                    continue
                # A configuration that is wrong stays wrong.
                replaced = name == WORKER and process.returncode != USAGE and may_replace()
                self.say(f"{name} ended ({_how(process)}): {'starting another' if replaced else 'stopping'}")
                _end([process])  # what it leaves behind has nobody to wait for
                if not replaced:
                    return
                both[name] = _start_worker()


class Sparingly:
    """Says yes so many times within so many seconds."""

    def __init__(self, times: int, seconds: float) -> None:
        self._seconds = seconds
        self._said: deque[float] = deque([-math.inf] * times, maxlen=times)

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._said[0] < self._seconds:
            return False
        self._said.append(now)
        return True


def _how(process: Process) -> str:
    code = process.returncode
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _start_worker() -> Process:
    return _start(f"{settings.BASE_DIR}/manage.py", "worker")


def _start(*arguments: str) -> Process:
    """A process with a group of its own: what a terminal sends reaches this one alone, which passes it on in order."""
    paths = filter(None, (str(settings.BASE_DIR), os.environ.get("PYTHONPATH")))  # from whatever folder it is run
    there = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen([sys.executable, *arguments], start_new_session=True, env=there)  # noqa: S603  our own


def _end(processes: Collection[Process]) -> None:
    """End what is left of them and of their processes: at once, or, where that takes long, by force."""
    with suppress(KeyboardInterrupt):
        _send(processes, signal.SIGTERM)
        _wait(processes, LAST_SECONDS)
    _send(processes, signal.SIGKILL)
    for process in processes:
        process.wait()


def _wait(processes: Collection[Process], seconds: float) -> None:
    until = time.monotonic() + seconds
    while any(_is_there(process) for process in processes) and time.monotonic() < until:
        time.sleep(0.1)


def _is_there(process: subprocess.Popen[bytes]) -> bool:
    """Whether anything of its group lives. The first of it is waited for, or it would count for ever."""
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
