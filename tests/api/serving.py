"""The service as it is served: gunicorn with two workers, on this test's own database."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

WORKERS = 2
BOOTED = "worker has started"  # what each of them says (tests/api/booted.py)


@dataclass
class Served:
    """Where it answers, and what it has said."""

    url: str
    said: list[str] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        at = urlsplit(self.url)
        return str(at.hostname), int(at.port or 0)


def database_url() -> str:
    """The test database, for another process."""
    at = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{at['NAME']}"
    return f"postgres://{at['USER']}:{at['PASSWORD']}@{at['HOST']}:{at['PORT']}/{at['NAME']}"


@contextmanager
def serving(**environment: str) -> Iterator[Served]:
    """gunicorn, from when all of it has started until the block ends.

    A worker that starts late may find the triggers away, as they are while the tables are emptied after a test; it
    refuses to serve then, as it should, and gunicorn ends.
    """
    options = ["--config", "python:tests.api.booted", "--bind", "127.0.0.1:0", "--workers", str(WORKERS)]
    options += ["--no-control-socket", "--access-logfile", os.devnull]
    counts = tempfile.TemporaryDirectory()  # of its own: a server empties the folder when it starts
    own = {"DATABASE_URL": database_url(), "API_RATE": "1000000", "PROMETHEUS_MULTIPROC_DIR": counts.name}
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "config.wsgi", *options],
        cwd=settings.BASE_DIR,
        env=os.environ | own | environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said: list[str] = []
    reading = threading.Thread(target=said.extend, args=(process.stderr,), daemon=True)
    try:
        address = _started(process.stderr)
        reading.start()
        yield Served(address, said)
    finally:
        process.terminate()
        process.wait(60)
        if reading.ident:
            reading.join(60)
        process.stderr.close()
        counts.cleanup()


def _started(lines: Iterable[str]) -> str:
    """Its address, once every worker has started."""
    address, booted = "", 0
    for line in lines:
        if "answers at" in line:
            address = line.split()[3].removesuffix("/readyz")
        booted += line.strip() == BOOTED
        if address and booted == WORKERS:
            return address
    raise AssertionError("it did not start")
