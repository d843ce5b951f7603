"""Repositories for the tests of git history."""

from pathlib import Path

import pytest

from tests.history.repositories import NOW, commit, made, new_repository


@pytest.fixture(scope="session")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("history") / "harbour.git", 700, ending=NOW - 60)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = new_repository(tmp_path / "work")
    commit(folder, "feat: winds", {"winds.py": "1", "tests/test_winds.py": "1"})
    return folder
