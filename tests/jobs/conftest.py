from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.jobs.fleet import Fleet, new_fleet
from tests.jobs.scripted import SlowModel
from tests.model_server import ModelServer


@pytest.fixture(scope="session")
def databases() -> None:
    """The tests have PostgreSQL and Redis."""
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
def fleet(databases: None, model_server: ModelServer, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet without workers, whose agents have a slow model."""
    with new_fleet(tmp_path, OPENAI_BASE_URL=model_server.openai_url) as fleet:
        yield fleet
