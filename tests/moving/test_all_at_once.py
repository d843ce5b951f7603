"""A folder that holds what all the systems left, and a repository with a history: moved in by the commands, whole."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from memory.models import Agent
from memory.policy.categories import PRIVATE, SCOPES
from tests.history.repositories import git
from tests.history.test_odd_repositories import commit
from tests.moving.calling import at_a_terminal, rules, with_a_vault  # noqa: F401  a fixture
from tests.moving.test_systems import APART, ASKED, NAMED_ALONE, TREES, table
from tests.rules import talking
from tests.steps import active, fresh, problems, row, says


@pytest.fixture
def everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "everything"
    for name in sorted(ASKED.keys() - APART):
        shutil.copytree(TREES / name / "tree", folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    return folder


def expected() -> list[dict[str, Any]]:
    """The memories of all the tables."""
    told = [each for name in sorted(ASKED.keys() - APART) for each in table(name)["memories"]]
    return [each for each in told if each["key"].partition("#")[0] not in NAMED_ALONE]


def test_each_is_what_its_table_says(ada: Agent, everything: Path) -> None:
    told = rules("detect", "--plain", "notes", "--json").json
    wanted = {each["key"]: each for each in expected()}
    assert {each["key"] for each in told["memories"]} == wanted.keys()
    for each in told["memories"]:
        there = wanted[each["key"]]
        assert each["state"] == "new"
        assert each["category"] == there["category"]
        assert each["kind"] == there.get("kind", "core")
        assert each["project"] == (there.get("project_id") or ("everything" if there["project"] else ""))
        assert there["date"] is None or each["origin"] == there["date"].replace(".118Z", ".118000Z")
        assert set(there["transformed"]) <= set(each["transformed"])

    ran = rules("migrate", "--plain", "notes", "--how", "all", "--yes", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["stored"] == len(wanted)
    assert problems(ada) == []
    stored = [row(ada, number) for number in active(ada)]
    in_order = [wanted[each["key"]] for each in told["memories"]]
    for memory, there in zip(stored, in_order, strict=True):
        assert says(ada, memory.number).content.startswith(there["begins"]) or there.get("secrets")
        assert set(there["tags"]) <= set(says(ada, memory.number).tags)
        assert (memory.category, memory.kind) == (there["category"], there.get("kind", "core"))

    again = rules("migrate", "--plain", "notes", "--how", "all", "--yes", "--json").json
    assert (again["entry"], again["stored"], again["same"]) == (None, 0, len(wanted))


def test_no_secret_is_in_a_file_or_a_preview(ada: Agent, everything: Path) -> None:
    secrets = [secret for each in expected() for secret in each.get("secrets", ())]
    assert len(secrets) > 5
    shown = rules("migrate", "--plain", "notes", "--dry-run")
    rules("migrate", "--plain", "notes", "--how", "all", "--yes")
    files = [path.read_text() for path in Path(ada.vault_path).rglob("*.md")]
    assert len(files) > len(expected())
    for secret in secrets:
        assert secret not in shown.out + shown.err
        assert not [text for text in files if secret in text]
    private = [each for each in expected() if SCOPES[each["category"]] == PRIVATE]
    kept = [says(ada, number).content for number in active(ada) if SCOPES[row(ada, number).category] == PRIVATE]
    assert len(kept) == len(private)
    assert not [text for text in kept if "[masked" in text]


def test_init_runs_its_twelve_steps_for_real(ada: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talking.settings(ada, project_support__git_history_analysis__enabled=True)
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.chdir(site)
    git(site, "init", "--quiet", "--initial-branch=main")
    commit(site, "feat: winds", {"winds.py": "1", ".cursorrules": "Say quay, never dock.\n"})
    commit(site, "fix: gusts", {"winds.py": "2"})
    ran = at_a_terminal("all\ny\n", "init")
    assert ran.code == 0, ran.err
    steps = [line.split(". ", 1)[1].partition(": ") for line in ran.out.splitlines() if line[2:3] == "."]
    told = {name: found for name, _, found in steps}
    assert len(steps) == 12
    assert told["Git history"].startswith("2 commits")
    assert told["Other systems"] == "Cursor (1 file): 1 memory to import"
    assert "   1  .cursorrules → contextual of site" in ran.err
    assert "“Say quay, never dock.”" in ran.err
    assert "Store 1 memory? (y/n)" in ran.err
    assert told["Migrated"].startswith("1 memory stored, 0 revised")
    assert told["Git memories"].startswith("memory 2")
    assert told["Index"] == "2 files listed, 0 repaired"
    assert [row(ada, number).category for number in active(ada)] == ["contextual", "git_history"]
    listed = next(Path(fresh(ada).vault_path).glob("projects/site/index.md")).read_text()
    assert "quay" in listed
    assert "git-history" in listed
