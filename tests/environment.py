"""Where the tests run: a folder of their own with fresh keys and a fresh database, gone when they are.

Loaded by `-p tests.environment` (pyproject.toml), before Django reads its settings. pytest-xdist's workers inherit
what the controller sets here, and share its keys; each has its own database.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from config.keyfiles import NAMES, create_key_file

_SECRETS = ("SECRET_KEY", "SILO_KEYS", "AUDIT_KEY", "PEPPER_KEY", "HEADS_KEY")
_MARK = "PALIMPSEST_TEST_FOLDER"
REDIS = "PALIMPSEST_TEST_REDIS"  # the REDIS_URL the suite was given, for services that tests start


def _prepare() -> Path:
    if _MARK in os.environ:
        return Path(os.environ[_MARK])
    folder = Path(tempfile.mkdtemp(prefix="palimpsest-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in NAMES:
        create_key_file(folder / "keys", name)
    os.environ[REDIS] = os.environ.pop("REDIS_URL", "")
    for name in (*_SECRETS, "EMAIL_URL", "METRICS_TOKEN"):
        os.environ.pop(name, None)
    os.environ |= {_MARK: str(folder), "VAR_DIR": str(folder), "KEYS_DIR": str(folder / "keys")}
    return folder


FOLDER = _prepare()
