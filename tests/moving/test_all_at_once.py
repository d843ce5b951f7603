"""The commands import a folder with the files of all systems, and a repository with a history."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from memory.models import Agent
from memory.policy.categories import PRIVATE, SCOPES
from tests.history.repositories import commit, git
from tests.moving.calling import agent_with_a_vault, at_a_terminal, migrate, rules  # noqa: F401  a fixture
from tests.moving.test_systems import APART, ASKED, NAMED_ALONE, TREES, table
from tests.rules import talking
from tests.steps import active, fresh, problems, row, says

NAMES = sorted(ASKED.keys() - APART)


@pytest.fixture
def everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "everything"
    for name in NAMES:
        shutil.copytree(TREES / name / "tree", folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    return folder


def expected_memories() -> dict[str, dict[str, Any]]:
    """The memories of all tables, by key."""
    memories = [each for name in NAMES for each in table(name)["memories"]]
    return {each["key"]: each for each in memories if each["key"].partition("#")[0] not in NAMED_ALONE}


def test_each_memory_is_found_and_stored_as_its_table_states(ada: Agent, everything: Path) -> None:
    found, wanted = rules("detect", "--plain", "notes", "--json").json["memories"], expected_memories()
    assert {each["key"] for each in found} == wanted.keys()
    for each in found:
        expected = wanted[each["key"]]
        project = expected.get("project_id") or ("everything" if expected["project"] else "")
        fields = (each["state"], each["category"], each["kind"], each["project"])
        assert fields == ("new", expected["category"], expected.get("kind", "core"), project)
        assert expected["date"] is None or each["origin"] == expected["date"].replace(".118Z", ".118000Z")
        assert set(expected["transformed"]) <= set(each["transformed"])

    ran = migrate("--plain", "notes", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["stored"] == len(wanted)
    assert problems(ada) == []
    for number, each in zip(active(ada), found, strict=True):
        expected, opened, memory = wanted[each["key"]], says(ada, number), row(ada, number)
        assert opened.content.startswith(expected["begins"]) or expected.get("secrets")
        assert set(expected["tags"]) <= set(opened.tags)
        assert (memory.category, memory.kind) == (expected["category"], expected.get("kind", "core"))

    again = migrate("--plain", "notes", "--json").json
    assert (again["entry"], again["stored"], again["same"]) == (None, 0, len(wanted))


def test_no_secret_is_in_a_file_or_a_preview(ada: Agent, everything: Path) -> None:
    wanted = expected_memories().values()
    secrets = [secret for each in wanted for secret in each.get("secrets", ())]
    assert len(secrets) > 5
    preview = rules("migrate", "--plain", "notes", "--dry-run")
    migrate("--plain", "notes")
    files = [path.read_text() for path in Path(ada.vault_path).rglob("*.md")]
    assert len(files) > len(wanted)
    assert not [secret for secret in secrets for text in (preview.out, preview.err, *files) if secret in text]
    private = [says(ada, number).content for number in active(ada) if SCOPES[row(ada, number).category] == PRIVATE]
    assert len(private) == len([each for each in wanted if SCOPES[each["category"]] == PRIVATE])
    assert not [text for text in private if "[masked" in text]


def test_init_runs_all_its_steps(ada: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talking.settings(ada, project_support__git_history_analysis__enabled=True)
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.chdir(site)
    git(site, "init", "--quiet", "--initial-branch=main")
    commit(site, "feat: winds", {"winds.py": "1", ".cursorrules": "Say quay, never dock.\n"})
    commit(site, "fix: gusts", {"winds.py": "2"})
    ran = at_a_terminal("all\ny\n", "init")
    assert ran.code == 0, ran.err
    lines = [line.split(". ", 1)[1].partition(": ") for line in ran.out.splitlines() if line[2:3] == "."]
    steps = {name: text for name, _, text in lines}
    assert len(lines) == 12
    assert steps["Git history"].startswith("2 commits")
    assert steps["Other systems"] == "Cursor (1 file): 1 memory to import"
    assert "   1  .cursorrules → contextual of site" in ran.err
    assert "Store 1 memory? (y/n)" in ran.err
    assert steps["Migrated"].startswith("1 memory stored, 0 revised")
    assert steps["Git memories"].startswith("memory 2")
    assert steps["Index"] == "2 files listed, 0 repaired"
    assert [row(ada, number).category for number in active(ada)] == ["contextual", "git_history"]
    page = next(Path(fresh(ada).vault_path).glob("projects/site/index.md")).read_text()
    assert "quay" in page
    assert "git-history" in page
