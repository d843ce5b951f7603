"""Where the tests run: a folder of their own with fresh keys and a fresh database, gone when they are.

It lies in memory where Linux has room there: tests commit thousands of times, and each commit waits for the disk.
Temporary folders (`tmp_path`) lie beside it.

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
_IN_MEMORY = Path("/dev/shm")  # noqa: S108  a folder of our own is made in it
_ENOUGH = 2**31  # bytes


def _prepare() -> Path:
    if _MARK in os.environ:
        return Path(os.environ[_MARK])
    root = Path(tempfile.mkdtemp(prefix="palimpsest-", dir=_IN_MEMORY if _is_fit(_IN_MEMORY) else None))
    root.chmod(0o755)  # a PostgreSQL that tests start runs as another user, and has its folder in it
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    folder, temporary = root / "service", root / "tmp"
    for each in (folder, temporary):
        each.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    for name in NAMES:
        create_key_file(folder / "keys", name)
    os.environ[REDIS] = os.environ.pop("REDIS_URL", "")
    for name in (*_SECRETS, "EMAIL_URL", "METRICS_TOKEN"):
        os.environ.pop(name, None)
    os.environ |= {_MARK: str(folder), "VAR_DIR": str(folder), "KEYS_DIR": str(folder / "keys")}
    return folder


def _is_fit(folder: Path) -> bool:
    """Whether there is room, and programs can be run from there: tests plant some, to see that they are not run."""
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free > _ENOUGH


FOLDER = _prepare()
