"""A project's folder with files of other systems, and the commands that an operator runs there."""

import os
from pathlib import Path
from unittest import mock

import pytest
from pytest_django.fixtures import Settings

from memory.agents import lifecycle
from memory.management.commands.memory_rules import COMMANDS
from memory.models import Agent
from tests.commands.calling import Ran, run
from tests.conftest import OPERATOR
from tests.transfer.folders import put

FILES = {
    ".cursor/rules/quays.mdc": "---\nglobs: quays/**\n---\nA quay has a letter.\n",
    ".cursor/rules/empty.mdc": "",
    "AGENTS.md": "The gate's test password is harbour-gate-not-real-77.\n",
    "CLAUDE.md": "Ferries wait for the tide.\n",
}
SECRET = "harbour-gate-not-real-77"


@pytest.fixture(name="ada")
def agent_with_a_vault(
    tmp_path: Path, transactional_db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Agent:
    settings.VAULT_ROOTS = [str(tmp_path)]
    monkeypatch.delenv("MEMORY_PROJECT", raising=False)
    vault = str(tmp_path / "vault")
    agent, key = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR, vault_path=vault)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    return agent


@pytest.fixture(name="site")
def site_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    for path, text in FILES.items():
        os.utime(put(folder, path, text), (1_772_600_000, 1_772_600_000))  # 4 March 2026
    monkeypatch.chdir(folder)
    return folder


def rules(command: str, *args: str) -> Ran:
    return run(*COMMANDS[command].split(), "acme/ada", *args)


def at_a_terminal(answers: str, command: str) -> Ran:
    with mock.patch("memory.management.agent_command.is_attended", return_value=True):
        return run(*COMMANDS[command].split(), "acme/ada", stdin=answers.encode())


def migrate(*args: str) -> Ran:
    return rules("migrate", "--how", "all", "--yes", *args)
