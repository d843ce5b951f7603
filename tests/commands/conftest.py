"""Separate services for commands that run in their own processes."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import environment, servers
from tests.commands.calling import ROOT, Installation
from tests.commands.serving import TOKEN, Serve, Served, start_serving, until_ready


@pytest.fixture(scope="session")
def _made() -> Path:
    """An installation that every test copies. The first test process that needs it makes it."""
    folder = environment.FOLDER.with_name("installation")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            draft = Installation(folder.with_suffix(".draft"))
            shutil.rmtree(draft.folder, ignore_errors=True)
            for command in (("create_keys",), ("migrate", "--verbosity", "0")):
                ran = draft.manage(*command)
                assert (ran.code, ran.out) == (0, ""), ran
            draft.folder.rename(folder)
    return folder


@pytest.fixture
def service(_made: Path, tmp_path: Path) -> Installation:
    """Keys and an empty, migrated SQLite database in a separate folder."""
    shutil.copytree(_made, tmp_path / "service")
    return Installation(tmp_path / "service")


@pytest.fixture
def serve(service: Installation) -> Iterator[Serve]:
    """A function that starts `manage.py serve` with environment variables and waits until it is ready."""
    started: list[Served] = []

    def start(at: Installation = service, cwd: Path = ROOT, **variables: str) -> Served:
        started.append(start_serving(at, cwd, METRICS_TOKEN=TOKEN, **variables))
        return until_ready(started[-1])

    yield start
    for serving in started:
        serving.kill()


@pytest.fixture
def scaled() -> Iterator[dict[str, str]]:
    """Variables of a new database on the PostgreSQL of the tests, and of their Redis."""
    url, redis_url = servers.given()
    if not url:
        pytest.skip("needs DATABASE_URL of PostgreSQL, and REDIS_URL")
    with servers.database(url, f"served_{os.getpid()}") as database_url:
        yield {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
