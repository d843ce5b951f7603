"""`memory_rules retrieve`: for the agent's key, seen from the project it is run in."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from memory.agents import rule_changes
from memory.management import working_folder
from memory.models import Agent
from memory.policy.projects import Surroundings, identify
from tests.commands.calling import Ran, failed, run
from tests.conftest import House
from tests.steps import PERSON, remember


@pytest.fixture
def tea(house: House, monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    monkeypatch.setenv("MEMORY_PROJECT", "a")
    remember(house.ada, "tea of a", category="contextual", project="a", tags=["hot"])
    remember(house.ada, "tea of b", category="contextual", project="b")
    return house.ada


def retrieve(*args: str) -> Ran:
    return run("recall", "acme/ada", *args)


def test_the_block_is_printed(tea: Agent) -> None:
    ran = retrieve("tea")
    assert (ran.code, ran.out) == (0, "# What you remember of this\n- tea of a\n")
    assert "1 memory, 2 tokens, seen from a." in ran.err


def test_the_project_may_be_said(tea: Agent) -> None:
    assert retrieve("tea", "--project", "b").out.endswith("- tea of b\n")
    assert retrieve("tea", "--project", "").out == ""


def test_as_json(tea: Agent) -> None:
    told = retrieve("tea", "--json", "--limit", "5", "--max-tokens", "9", "--tag", "hot").json
    assert [(each["id"], each["recalled"]) for each in told["results"]] == [(1, 1)]
    assert (told["project"], told["tokens"], told["left_out"]) == ("a", 2, 0)


@pytest.mark.parametrize("whose", ["", "bob", "nonsense"])
def test_without_the_agents_key_nothing_is_shown(
    tea: Agent, house: House, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.bob_key if whose == "bob" else whose)
    failed(retrieve("tea"), 2, "PALIMPSEST_AGENT_KEY")


def test_while_memory_is_off_it_is_asked_about(tea: Agent) -> None:
    rule_changes.change(tea, PERSON, enabled=False)
    ran = retrieve("tea")
    assert (ran.code, ran.out, "Nothing was done." in ran.err) == (0, "", True)
    with mock.patch("memory.management.agent_command.is_attended", return_value=True):
        ran = run("recall", "acme/ada", "tea", stdin=b"y\n")
    assert (rule_changes.QUESTION in ran.err, ran.out) == (True, "# What you remember of this\n- tea of a\n")


# --- where it is run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in a repository, where the process is."""
    monkeypatch.delenv("MEMORY_PROJECT", raising=False)
    inner = tmp_path / "shop" / "src"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return inner


def with_remote(git: Path, name: str = "origin") -> None:
    git.mkdir(parents=True, exist_ok=True)
    text = (
        f'[core]\n\tbare = false\n[remote "{name}"]\n\turl = https://me:secret@git.test/acme/shop.git\n\tfetch = +x\n'
    )
    (git / "config").write_text(text + '[branch "main"]\n\turl = no\n')


def test_the_project_is_that_of_the_repository(folder: Path) -> None:
    with_remote(folder.parent / ".git")
    assert working_folder.surroundings(Path.cwd()).directory == str(folder.parent)
    assert identify(working_folder.surroundings(Path.cwd())) == "git.test/acme/shop"


def test_a_worktree_has_its_repositorys_remote(folder: Path) -> None:
    git = folder.parent.parent / "main" / ".git"
    with_remote(git)
    (git / "worktrees" / "shop").mkdir(parents=True)
    (git / "worktrees" / "shop" / "commondir").write_text("../..\n")
    (folder.parent / ".git").write_text(f"gitdir: {git / 'worktrees' / 'shop'}\n")
    assert identify(working_folder.surroundings(Path.cwd())) == "git.test/acme/shop"


def test_without_a_remote_it_is_the_repositorys_folder(folder: Path) -> None:
    with_remote(folder.parent / ".git", "upstream")
    assert identify(working_folder.surroundings(Path.cwd())) == "shop"


def test_a_file_that_is_no_repositorys_is_passed_over(folder: Path) -> None:
    (folder.parent / ".git").write_bytes(b"\xff\0")
    assert identify(working_folder.surroundings(Path.cwd())) == "shop"


def test_what_the_environment_says_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PROJECT", "mine")
    assert working_folder.surroundings(Path.cwd()) == Surroundings(override="mine", directory=str(folder))
    assert identify(working_folder.surroundings(Path.cwd())) == "mine"
