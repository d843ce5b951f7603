"""Whole sessions against a real model server, in one of its three protocols."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from zlib import crc32

import pytest

from memory.models import Agent
from refinement import loop, providers
from refinement.llm import connections, http
from refinement.models import Mode, RefinementSession
from tests.fault.playing import PROVIDERS, Play, ended_well
from tests.model_server import NO_PAUSES, ModelServer, Script
from tests.refining import change
from tests.steps import fresh


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Retries without their pauses, and no connection left behind."""
    monkeypatch.setattr(providers, "FIRST", timedelta(milliseconds=10))
    monkeypatch.setattr(http, "PAUSES", NO_PAUSES)
    yield
    connections.close_clients()


@pytest.fixture
def provider(request: pytest.FixtureRequest, quick: None, settings: Any) -> str:
    """Whose protocol is spoken: each in `EACH_PROTOCOL`, else always the same one for a test.

    What a session makes of a reply is the same for all: `test_models.py` and tests/unit/test_llm_protocols.py have what
    is not.
    """
    settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = "sk-test"
    usual = PROVIDERS[crc32(request.node.name.encode()) % len(PROVIDERS)]
    return str(getattr(request, "param", usual))


@pytest.fixture
def play(provider: str, ada: Agent, settings: Any) -> Play:
    """Refine ada with a model that plays this script; the closed session, after what always holds was checked."""

    def run(script: Script, mode: str = Mode.FULL, report: Any = print, **changes: Any) -> RefinementSession:
        change(ada, model=f"{provider}/scripted", **changes)
        with ModelServer(script) as server:
            settings.OPENAI_BASE_URL, settings.ANTHROPIC_BASE_URL = server.openai_url, server.anthropic_url
            settings.OLLAMA_BASE_URL = server.ollama_url
            session = loop.refine(fresh(ada), trigger="manual", mode=mode, report=report)
            assert server.refused == []
        ended_well(ada, session)
        return session

    return run
