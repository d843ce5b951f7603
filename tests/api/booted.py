"""The service's own gunicorn settings, and a line from each worker once it has started.

For gunicorn alone: importing it sets this process up to count requests as one of many (`config.gunicorn`).
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Any

from config import connections, gunicorn
from config.gunicorn import *  # noqa: F403  what gunicorn reads are the module's names
from tests.api.serving import BOOTED

for seconds in ("WHOLE_SECONDS", "STILL_SECONDS"):
    if seconds in os.environ:
        setattr(connections, seconds, int(os.environ[seconds]))


def post_worker_init(worker: Any) -> None:
    gunicorn.post_worker_init(worker)
    if "FILES_LEFT" in os.environ:  # descriptors that it may still open
        most = int(os.environ["FILES_LEFT"]) + max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sys.stderr.write(f"{BOOTED}\n")
    sys.stderr.flush()
