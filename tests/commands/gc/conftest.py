"""Agents with a log, and a model server that analyses it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent
from refinement.llm import connections
from tests.commands.calling import Ran, run
from tests.model_server import ModelServer, Say
from tests.privacy.marker import MARKER
from tests.unit.test_memory_file import of

ME = Actor.operator("tests")
REPORT = "## Patterns Found\nTea.\n\n## Repeated Work\nNone.\n\n## Recommendations\nMore tea."
Make = Callable[..., Agent]


def log_of(agent: Agent) -> bytes:
    return Path(agent.memory_path).read_bytes()


def last_line(ran: Ran) -> str:
    return ran.out.splitlines()[-1]


def separators(ran: Ran) -> list[str]:
    return [line for line in ran.out.splitlines() if line.startswith("===")]


def sent_log(server: ModelServer) -> str:
    """The log in the only request to the model."""
    [received] = server.requests
    return str(received.body["messages"][-1]["content"])


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    connections.close_clients()


@pytest.fixture
def server(settings: Any, tmp_path: Path) -> Iterator[ModelServer]:
    settings.VAULT_ROOTS = [str(tmp_path)]
    with ModelServer(Say(REPORT)) as server:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        settings.ANTHROPIC_BASE_URL, settings.ANTHROPIC_API_KEY = server.anthropic_url, "any"
        settings.OLLAMA_BASE_URL = server.ollama_url
        settings.MODEL_CALL_SECONDS = 2
        yield server


@pytest.fixture
def make(db: None, server: ModelServer, tmp_path: Path) -> Make:
    """A function that creates an agent with a memory file of a number of entries."""

    def create(slug: str = "ada", entries: int | None = 10, tenant: str = "acme", **values: Any) -> Agent:
        path = tmp_path / f"{tenant}-{slug}.md"
        if entries is not None:
            path.write_bytes(of(entries))
        values = {"model": "openai/gpt", "memory_path": str(path)} | values
        return lifecycle.create(tenant, slug, actor=ME, **values)[0]

    return create


@pytest.fixture
def logged(server: ModelServer, db: None) -> Agent:
    """An agent with five logged runs in its journal. A trim keeps two."""
    agent, _ = lifecycle.create("acme", "ada", model="openai/gpt", actor=ME, last_n=2)
    for number in range(1, 6):
        run("log_run", "acme/ada", "--task", f"{MARKER} {number}", "--result", "done")
    return agent
