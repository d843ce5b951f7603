"""The running service: gunicorn with two workers, on the test's database."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

WORKERS = 2
WORKER_STARTED = "worker has started"  # tests/api/booted.py prints it


@dataclass
class Served:
    """The address of the service, and the lines of its log."""

    url: str
    log: list[str] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        url = urlsplit(self.url)
        return str(url.hostname), int(url.port or 0)


def database_url() -> str:
    """The test database, for another process."""
    at = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{at['NAME']}"
    return f"postgres://{at['USER']}:{at['PASSWORD']}@{at['HOST']}:{at['PORT']}/{at['NAME']}"


@contextmanager
def serving(**environment: str) -> Iterator[Served]:
    """Run gunicorn. The block starts when every worker has started.

    A worker that starts late may find the database without triggers, because a test's teardown removes them for a
    moment. The worker then refuses to serve, and gunicorn ends.
    """
    options = ["--config", "python:tests.api.booted", "--bind", "127.0.0.1:0", "--workers", str(WORKERS)]
    options += ["--no-control-socket", "--access-logfile", os.devnull]
    own = {"DATABASE_URL": database_url(), "API_RATE": "1000000"}
    command = [sys.executable, "-m", "gunicorn", "config.wsgi", *options]
    process = subprocess.Popen(
        command, cwd=settings.BASE_DIR, env=os.environ | own | environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    log: list[str] = []
    reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
    try:
        address = _started(process.stderr)
        reader.start()
        yield Served(address, log)
    finally:
        process.terminate()
        process.wait(60)
        if reader.ident:
            reader.join(60)
        process.stderr.close()


def _started(lines: Iterable[str]) -> str:
    """The address, once every worker has started."""
    address, started = "", 0
    for line in lines:
        if "answers at" in line:
            address = line.split()[3].removesuffix("/readyz")
        started += line.strip() == WORKER_STARTED
        if address and started == WORKERS:
            return address
    raise AssertionError("the service did not start")
