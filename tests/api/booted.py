"""The service's gunicorn settings, and a line from each worker that has started. Only gunicorn imports this module."""

import os
import sys
from typing import Any

from config import gunicorn
from config.gunicorn import *  # noqa: F403  gunicorn reads the names of the module
from tests.api.serving import WORKER_STARTED

gunicorn.SILENT_SECONDS = int(os.environ.get("SILENT_SECONDS", gunicorn.SILENT_SECONDS))


def post_worker_init(worker: Any) -> None:
    gunicorn.post_worker_init(worker)
    sys.stderr.write(f"{WORKER_STARTED}\n")  # one write, because workers start at the same time
