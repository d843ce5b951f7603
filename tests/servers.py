"""PostgreSQL and Redis for one test: a database beside the suite's, or a server that the test stops and starts."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import redis

from tests import environment

DEBIANS = Path("/usr/lib/postgresql")  # the server's commands on Debian, which are not on the PATH


def given() -> tuple[str, str]:
    """The addresses of the suite's PostgreSQL and Redis. Both are empty if one is missing."""
    url, redis_url = os.environ.get("DATABASE_URL", ""), os.environ.get(environment.REDIS, "")
    return (url, redis_url) if url.startswith("postgres") and redis_url else ("", "")


@contextmanager
def database(url: str, name: str, template: str = "template1") -> Iterator[str]:
    """Copy a database, give the address of the copy, and drop the copy at the end."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield f"{url.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


class Redis:
    """A Redis server that stores nothing on disk: after a restart it is empty."""

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


class PostgreSQL:
    """A PostgreSQL server. It refuses to run as root, so root runs it as the user `postgres`."""

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
        """`immediate` acts like a crash. `fast` is an orderly end."""
        self._control("stop", "-m", how)

    def _control(self, *words: str) -> None:
        options = f"-p {self._port} -h 127.0.0.1 -k {self._folder} -c fsync=off"
        files = ("-D", f"{self._folder}/data", "-l", f"{self._folder}/log")
        self._run("pg_ctl", *words, "-w", "-s", *files, "-o", options)

    def _run(self, command: str, *words: str) -> None:
        command_line, user = [str(postgresql_command(command)), *words], self._user
        subprocess.run(command_line, cwd=self._folder, user=user, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _running(kind: Any) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        server = kind(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


redis_server, postgresql_server = partial(_running, Redis), partial(_running, PostgreSQL)


def postgresql_command(name: str) -> Path | None:
    """The path of a command of PostgreSQL's newest server, or None."""
    if found := shutil.which(name):
        return Path(found)
    return max(DEBIANS.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]), default=None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def until(so: Callable[[], bool], but: type[Exception] = ConnectionError, seconds: float = 30) -> None:
    """Wait until `so` returns true. Its exceptions of the type `but` mean false."""
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
