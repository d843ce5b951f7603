"""A project's folder with what other systems left in it, and the commands that an operator runs there."""

from __future__ import annotations

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

FILES = {
    ".cursor/rules/quays.mdc": "---\nglobs: quays/**\n---\nA quay has a letter.\n",
    ".cursor/rules/empty.mdc": "",
    "AGENTS.md": "The gate's test password is harbour-gate-not-real-77.\n",
    "CLAUDE.md": "Ferries wait for the tide.\n",
}
MARKED = "harbour-gate-not-real-77"


def laid_out(folder: Path) -> None:
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        os.utime(folder / path, (1_772_600_000, 1_772_600_000))  # 4 March 2026


@pytest.fixture(name="ada")
def with_a_vault(tmp_path: Path, transactional_db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Agent:
    settings.VAULT_ROOTS = [str(tmp_path)]
    monkeypatch.delenv("MEMORY_PROJECT", raising=False)
    vault = str(tmp_path / "vault")
    made, key = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR, vault_path=vault)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    return made


@pytest.fixture(name="site")
def in_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    laid_out(folder)
    monkeypatch.chdir(folder)
    return folder


def rules(deed: str, *args: str) -> Ran:
    return run(*COMMANDS[deed].split(), "acme/ada", *args)


def at_a_terminal(answers: str, deed: str) -> Ran:
    with mock.patch("memory.management.agent_command.is_attended", return_value=True):
        return run(*COMMANDS[deed].split(), "acme/ada", stdin=answers.encode())


def migrate(*args: str) -> Ran:
    return rules("migrate", "--how", "all", "--yes", *args)
