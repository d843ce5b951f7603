"""Web servers for a bench: gunicorn as `make serve` starts it, two workers, on a free port of the loopback."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from tests.bench.places import ROOT

WORKERS = 2


@contextmanager
def served(application: str, **environment: str) -> Iterator[int]:
    """The application, answering; its port. What it says later is not read: it says nothing of what goes well."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "gunicorn", application, "--config", "python:config.gunicorn"),
            *("--bind", "127.0.0.1:0", "--workers", str(WORKERS), "--no-control-socket"),
            *("--access-logfile", os.devnull),
        ],
        cwd=ROOT,
        env=os.environ | environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr as errors:
        try:
            yield _port(errors, application)
        finally:
            process.terminate()
            process.wait(30)


def _port(errors: IO[str], application: str) -> int:
    said = ""
    for line in errors:
        said += line
        if address := re.search(r"answers at http://127\.0\.0\.1:(\d+)", line):
            return int(address[1])
    raise RuntimeError(f"{application} did not start: {said}")
