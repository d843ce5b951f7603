"""A service of one's own, for commands run in processes of their own."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest

from tests import environment
from tests.commands.calling import Installation


@pytest.fixture(scope="session")
def _made() -> Path:
    """The first test process that needs one makes it, and all copy it."""
    folder = environment.FOLDER.with_name("installation")
    folder.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "data").exists():
            service = Installation(folder)
            for command in (("create_keys",), ("migrate", "--verbosity", "0")):
                ran = service.manage(*command)
                assert (ran.code, ran.out) == (0, ""), ran
    return folder


@pytest.fixture
def service(_made: Path, tmp_path: Path) -> Installation:
    """Keys and an empty, migrated database (a SQLite file) under a folder of its own."""
    shutil.copytree(_made, tmp_path / "service")
    return Installation(tmp_path / "service")
