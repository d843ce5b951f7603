"""An agent with a vault. Transactions really end, because files are written after a commit."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent

KEY = Actor.agent("runtime")


@pytest.fixture
def root(tmp_path: Path, settings: Settings) -> Path:
    settings.VAULT_ROOTS = [str(tmp_path)]
    return tmp_path


@pytest.fixture
def ada(root: Path, transactional_db: None) -> Agent:
    path = str(root / "vault")
    return lifecycle.create("acme", "ada", model="builtin/dedupe", actor=KEY, vault_path=path)[0]


@pytest.fixture
def vault(ada: Agent) -> Path:
    return Path(ada.vault_path)
