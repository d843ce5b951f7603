from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.jobs.fleet import Fleet, new_fleet
from tests.jobs.scripted import SlowModel
from tests.model_server import ModelServer


@pytest.fixture(scope="session")
def given() -> None:
    """PostgreSQL and Redis, as the service is run with several workers."""
    if not servers.given()[0]:
        pytest.skip("needs DATABASE_URL of PostgreSQL, and REDIS_URL")


@pytest.fixture
def model() -> SlowModel:
    return SlowModel()


@pytest.fixture
def model_server(model: SlowModel) -> Iterator[ModelServer]:
    with ModelServer(model) as server:
        yield server


@pytest.fixture
def fleet(given: None, model_server: ModelServer, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on PostgreSQL and Redis, whose agents have a slow model. It has no worker yet."""
    with new_fleet(tmp_path, OPENAI_BASE_URL=model_server.openai_url) as made:
        yield made
