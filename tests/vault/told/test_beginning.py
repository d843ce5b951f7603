"""What the steps of `init` say: of categories that are off, and of a vault that would be committed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from memory.models import Agent
from tests.steps import remember
from tests.vault.test_commands import found, rules

PARTS = ["/memory/common/", "/memory/private/", "/memory/projects/", "/memory/.discarded/", "/memory/index.md"]


def step(name: str) -> str:
    return found(rules("init", "--json"))[name]


def test_what_is_off_is_counted_as_that(ada: Agent, site: Path) -> None:
    remember(ada, "a", category="technical")
    remember(ada, "b", "c", category="topic", project="git.test/acme/site")
    rules("disable", "--category", "topic")
    assert step("Memories") == "technical 1, topic (off) 2; 0 of this project"
    rules("enable", "--category", "topic", "--yes")
    assert step("Memories") == "technical 1, topic 2; 2 of this project"


def test_a_vault_that_would_be_committed_is_told(ada: Agent, vault: Path) -> None:
    assert step("Repository").endswith("add to .gitignore: /memory/")


@pytest.mark.parametrize("line", ["memory", "memory/", "/memory/", "memory/*", "memory/**"])
def test_a_vault_that_is_left_out_is_not(ada: Agent, vault: Path, site: Path, line: str) -> None:
    (site / ".gitignore").write_text(f"{line}\n")
    assert ".gitignore" not in step("Repository")
    shutil.rmtree(vault)
    assert ".gitignore" not in step("Repository")


def test_beside_a_package_of_the_project_its_own_files_are_named(ada: Agent, vault: Path, site: Path) -> None:
    (vault / "__init__.py").write_text("")
    subprocess.run(["git", "-C", str(site), "add", "memory/__init__.py"], check=True)
    lines = step("Repository").partition("add to .gitignore: ")[2].split()
    assert lines == [*PARTS, "/memory/.palimpsest"]
    (site / ".gitignore").write_text("\n".join(lines))
    rules("store", "The ferry", "--category", "technical")
    assert ".gitignore" not in step("Repository")
    told = subprocess.run(["git", "-C", str(site), "status", "-s", "-uall"], check=True, capture_output=True, text=True)
    assert told.stdout.splitlines() == ["A  memory/__init__.py", "?? .gitignore"]


def test_a_vault_that_is_the_repository_itself(ada: Agent, site: Path) -> None:
    rules("init", "--vault", ".")
    assert "add to .gitignore: /common/ /private/" in step("Repository")
