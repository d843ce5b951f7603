"""Fixtures of sessions against a real model server, and of a service with a database of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from zlib import crc32

import pytest
import time_machine
from django.utils import timezone

from memory.models import Agent
from refinement import loop, providers
from refinement.llm import connections, http
from refinement.models import Mode, RefinementSession
from tests.commands.conftest import _made as _made
from tests.commands.conftest import scaled as scaled
from tests.commands.conftest import service as service
from tests.fault.whole_sessions import PROVIDERS, Play, assert_ended_well
from tests.model_server import NO_PAUSES, ModelServer, Script
from tests.refining import change
from tests.steps import fresh


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Retries do not pause, and no connection is left behind."""
    monkeypatch.setattr(http, "PAUSES", NO_PAUSES)
    yield
    connections.close_clients()


@pytest.fixture
def serve(no_pauses: None, settings: Any) -> Iterator[Callable[[Script], ModelServer]]:
    """Start a model server with a script; every provider has its address."""
    with ExitStack() as servers:

        def start(script: Script) -> ModelServer:
            server = servers.enter_context(ModelServer(script))
            settings.OPENAI_BASE_URL, settings.ANTHROPIC_BASE_URL = server.openai_url, server.anthropic_url
            settings.OLLAMA_BASE_URL = server.ollama_url
            settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = "sk-test"
            return server

        yield start


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(timezone.now(), tick=False) as traveller:
        yield traveller


@pytest.fixture
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, settings: Any) -> str:
    """The provider of the model: each one in `EACH_PROTOCOL`, else one that depends on the test's name."""
    monkeypatch.setattr(providers, "FIRST", timedelta(milliseconds=10))
    settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = "sk-test"
    usual = PROVIDERS[crc32(request.node.name.encode()) % len(PROVIDERS)]
    return str(getattr(request, "param", usual))


@pytest.fixture
def play(provider: str, ada: Agent, serve: Callable[[Script], ModelServer]) -> Play:
    """Refine ada with a model that follows a script. Returns the closed session, after checks that always hold."""

    def run(script: Script, mode: str = Mode.FULL, report: Any = print, **changes: Any) -> RefinementSession:
        change(ada, model=f"{provider}/scripted", **changes)
        server = serve(script)
        session = loop.refine(fresh(ada), trigger="manual", mode=mode, report=report)
        assert server.refused == []
        assert_ended_well(ada, session)
        return session

    return run
