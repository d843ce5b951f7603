from collections.abc import Iterator
from typing import Any

import pytest

from memory.agents import lifecycle
from memory.models import Agent
from refinement.llm import http
from tests.conftest import House
from tests.embedding.server import EmbeddingServer
from tests.model_server import NO_PAUSES
from tests.steps import ME, fresh

EMBEDDER = "ollama/nomic"


@pytest.fixture
def server(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    monkeypatch.setattr(http, "PAUSES", NO_PAUSES)
    with EmbeddingServer() as server:
        settings.OPENAI_BASE_URL, settings.OLLAMA_BASE_URL = f"{server.url}/v1", server.url
        settings.OPENAI_API_KEY = "k"
        yield server


@pytest.fixture
def ada(house: House, server: EmbeddingServer) -> Agent:
    """An agent with an embedder."""
    lifecycle.change(house.ada, ME, embedder=EMBEDDER)
    return fresh(house.ada)
