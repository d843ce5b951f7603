"""A folder for the tests, with new keys and a new database. It is removed at the end.

It is in memory where Linux has space there, because tests commit thousands of times and each commit waits for the disk.
`tmp_path` is beside it. `-p tests.environment` (pyproject.toml) loads this module before Django reads its settings.
Workers of pytest-xdist inherit the environment and share the keys. Each has its own database.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from config.keyfiles import NAMES, create_key_file

_REMOVED = ("SECRET_KEY", "SILO_KEYS", "AUDIT_KEY", "PEPPER_KEY", "HEADS_KEY", "EMAIL_URL", "METRICS_TOKEN")
_FOLDER = "PALIMPSEST_TEST_FOLDER"
REDIS = "PALIMPSEST_TEST_REDIS"  # the suite's REDIS_URL, for services that tests start
_IN_MEMORY = Path("/dev/shm")  # noqa: S108  the tests make a folder of their own in it
_ENOUGH = 2**31  # bytes


def _prepare() -> Path:
    if _FOLDER in os.environ:
        return Path(os.environ[_FOLDER])
    root = Path(tempfile.mkdtemp(prefix="palimpsest-", dir=_IN_MEMORY if _is_fit(_IN_MEMORY) else None))
    root.chmod(0o755)  # a PostgreSQL server that tests start has its folder here and runs as another user
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    folder, temporary = root / "service", root / "tmp"
    folder.mkdir()
    temporary.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    for name in NAMES:
        create_key_file(folder / "keys", name)
    os.environ[REDIS] = os.environ.pop("REDIS_URL", "")
    for name in _REMOVED:
        os.environ.pop(name, None)
    os.environ |= {_FOLDER: str(folder), "VAR_DIR": str(folder), "KEYS_DIR": str(folder / "keys")}
    return folder


def _is_fit(folder: Path) -> bool:
    """Whether the folder has space, and programs can run from it: tests plant programs there."""
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free > _ENOUGH


FOLDER = _prepare()
