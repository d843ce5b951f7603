"""The service's own gunicorn settings, and a line from each worker once it has started.

For gunicorn alone: importing it sets this process up to count requests as one of many (`config.gunicorn`).
"""

from __future__ import annotations

import os
import sys
from typing import Any

from config import gunicorn
from config.gunicorn import *  # noqa: F403  what gunicorn reads are the module's names
from tests.api.serving import BOOTED

gunicorn.SILENT_SECONDS = int(os.environ.get("SILENT_SECONDS", gunicorn.SILENT_SECONDS))


def post_worker_init(worker: Any) -> None:
    gunicorn.post_worker_init(worker)
    sys.stderr.write(f"{BOOTED}\n")
    sys.stderr.flush()
