"""Agents with and without a vault. Transactions really end, because files are written after a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent
from tests.rules.talking import rules

KEY = Actor.agent("runtime")
PROJECT = "git.example.org/acme/site"  # of `site`


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


@pytest.fixture
def site(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository that may contain a vault. It is the current folder."""
    folder = root / "site"
    folder.mkdir()
    for args in (["init", "-q"], ["remote", "add", "origin", f"https://jo:sesame@{PROJECT}.git"]):
        subprocess.run(["git", *args], cwd=folder, check=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MEMORY_PROJECT", raising=False)
    return folder


@pytest.fixture
def without_vault(site: Path, transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent without a vault. Its key is in the environment."""
    agent, key = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=KEY)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    return agent


@pytest.fixture
def site_vault(without_vault: Agent, site: Path) -> Path:
    assert rules("init", "--vault").code == 0
    return site / "memory"
