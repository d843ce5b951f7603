"""PostgreSQL and Redis of a test's own: a database beside the suite's, or a whole server, to be stopped and started."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import redis

from tests import environment

DEBIANS = Path("/usr/lib/postgresql")  # where the commands of a server lie that are not on the PATH


def given() -> tuple[str, str]:
    """The addresses of PostgreSQL and Redis that the tests were given; empty where they run on SQLite, or without."""
    url, redis_url = os.environ.get("DATABASE_URL", ""), os.environ.get(environment.REDIS, "")
    return (url, redis_url) if url.startswith("postgres") and redis_url else ("", "")


@contextmanager
def database(url: str, name: str, template: str = "template1") -> Iterator[str]:
    """A new database on this PostgreSQL, a copy of another, dropped at the end: its address."""
    with psycopg.connect(url, autocommit=True) as there:
        there.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield f"{url.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(url, autocommit=True) as there:
            there.execute(f"DROP DATABASE {name} WITH (FORCE)")


class Redis:
    """A server that keeps nothing: stopped and started, it is empty."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        words = ("--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder))
        self._process = subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL)
        until(lambda: bool(redis.from_url(self.url).ping()), redis.ConnectionError)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def flush(self) -> None:
        redis.from_url(self.url).flushall()


@contextmanager
def redis_server() -> Iterator[Redis]:
    with tempfile.TemporaryDirectory() as folder:
        server = Redis(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


class PostgreSQL:
    """A server with a folder of its own, which the user `postgres` owns where this one is root: it refuses root."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self._user = "postgres" if os.getuid() == 0 else None
        if self._user:
            shutil.chown(folder, self._user)
        self._run("initdb", "--username", "test", "--auth", "trust", "--no-sync", "-D", f"{folder}/data")
        self.url = f"postgres://test@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        self._control("start")

    def stop(self, how: str = "immediate") -> None:
        """`fast` ends what is under way in good order; `immediate` is what a crash is."""
        self._control("stop", "-m", how)

    def _control(self, *words: str) -> None:
        options = f"-p {self._port} -h 127.0.0.1 -k {self._folder} -c fsync=off"
        self._run(
            "pg_ctl", *words, "-w", "-s", "-D", f"{self._folder}/data", "-l", f"{self._folder}/log", "-o", options
        )

    def _run(self, command: str, *words: str) -> None:
        subprocess.run(
            [str(postgresql_command(command)), *words],
            cwd=self._folder,
            user=self._user,
            check=True,
            stdout=subprocess.DEVNULL,
        )


@contextmanager
def postgresql_server() -> Iterator[PostgreSQL]:
    with tempfile.TemporaryDirectory() as folder:
        server = PostgreSQL(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def postgresql_command(name: str) -> Path | None:
    """A command of PostgreSQL's server, the newest there is; None where there is none."""
    if found := shutil.which(name):
        return Path(found)
    return max(DEBIANS.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]), default=None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def until(so: Callable[[], bool], but: type[Exception] = ConnectionError, seconds: float = 30) -> None:
    """Wait for it; what it raises of `but` is that it is not yet so."""
    end = time.monotonic() + seconds
    while True:
        try:
            if so():
                return
        except but:
            pass
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} seconds")
        time.sleep(0.05)
