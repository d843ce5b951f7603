"""A service of one's own, for commands run in processes of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commands.calling import Installation


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installation")
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
