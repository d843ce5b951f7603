"""Fixtures for commands: a git repository, an agent without a vault whose key is in the environment, and its vault."""

import subprocess
from pathlib import Path

import pytest

from memory.agents import lifecycle
from memory.models import Agent
from tests.rules.recordings import rules
from tests.vault.conftest import KEY

PROJECT = "git.example.org/acme/site"


@pytest.fixture(name="site")
def repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository that may contain a vault. It is the current folder."""
    folder = root / "site"
    folder.mkdir()
    for args in (["init", "-q"], ["remote", "add", "origin", f"https://jo:sesame@{PROJECT}.git"]):
        subprocess.run(["git", *args], cwd=folder, check=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MEMORY_PROJECT", raising=False)
    return folder


@pytest.fixture(name="ada")
def agent_without_vault(site: Path, transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Agent:
    agent, key = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=KEY)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    return agent


@pytest.fixture(name="vault")
def site_vault(ada: Agent, site: Path) -> Path:
    assert rules("init", "--vault", "--yes").code == 0
    return site / "memory"
