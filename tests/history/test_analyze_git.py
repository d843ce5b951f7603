"""`memory_rules analyze_git`, as an operator runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from memory.agents import lifecycle, rule_changes
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.writing import operations
from tests.commands.calling import Ran, run
from tests.conftest import OPERATOR
from tests.history.repositories import commit, git
from tests.rules import talking
from tests.steps import PERSON, fresh, last_entry

ON = "project_support__git_history_analysis__enabled"


@pytest.fixture
def ada(tmp_path: Path, transactional_db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Agent:
    settings.VAULT_ROOTS = [str(tmp_path)]
    monkeypatch.delenv("MEMORY_PROJECT", raising=False)
    vault = str(tmp_path / "vault")
    made, key = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR, vault_path=vault)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    return talking.settings(made, **{ON: True})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "remote", "add", "origin", "git@git.test:acme/site.git")
    commit(folder, "feat: winds", {"winds.py": "1"})
    commit(folder, "fix: gusts", {"winds.py": "2"})
    monkeypatch.chdir(folder)
    return folder


def analyze(*args: str) -> Ran:
    return run("project", "analyze_git", "acme/ada", *args)


def test_its_memory_and_its_file(ada: Agent, site: Path) -> None:
    ran = analyze()
    assert ran.code == 0, ran.err
    told = ran.json
    assert (told["id"], told["project"], told["commits"], told["new"]) == (1, "git.test/acme/site", 2, True)
    assert told["head"] == git(site, "rev-parse", "HEAD").strip()
    file = Path(told["file"])
    assert file.parts[-2:] == ("git_history", "000001.md")
    said = file.read_text()
    assert said.startswith("# Git History Analysis: git.test/acme/site - history - ")
    assert "- **Source System**: git_history_analysis" in said
    assert "**Time Range**: 20" in said
    assert "feature 1, fix 1" in said
    assert "2 commits from" in ran.err
    assert "Not analyzed, because it is off in the settings: track_branch_evolution, include_author_info." in ran.err
    assert "winds" not in ran.err + ran.out.replace(told["file"], "")


def test_nothing_is_done_twice(ada: Agent, site: Path) -> None:
    analyze()
    before = last_entry(ada).seq
    ran = analyze()
    assert ran.json["unchanged"] is True
    assert "--again" in ran.err
    assert last_entry(ada).seq == before
    commit(site, "docs: winds", {"winds.md": "3"})
    told = analyze().json
    assert (told["id"], told["commits"], told["new"]) == (1, 3, False)
    assert Memory.objects.count() == 1


def test_a_dry_run_of_what_is_known_says_how_to_see_it(ada: Agent, site: Path) -> None:
    analyze()
    ran = analyze("--dry-run")
    assert "Nothing was committed since the analysis of" in ran.err
    assert "--dry-run --again" in ran.err
    assert "Git history of" in analyze("--dry-run", "--again").out


def test_a_dry_run_prints_and_keeps_nothing(ada: Agent, site: Path) -> None:
    ran = analyze("--dry-run")
    assert ran.code == 0
    assert ran.out.startswith("## Analysis Summary\n")
    assert not Memory.objects.exists()


def test_limits_and_parts_are_arguments_too(ada: Agent, site: Path) -> None:
    ran = analyze("--commits", "1", "--days", "3", "--authors", "--branches", "--dry-run")
    assert "1 commit from" in ran.out
    assert "the newest; there are more in the last 3 days" in ran.out
    assert "Ada Quay 100%" in ran.out
    assert "Not analyzed" not in ran.err
    assert analyze("--seconds", "0").code == 2


def test_a_closed_switch_is_asked_about(ada: Agent, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talking.settings(ada)
    ran = analyze()
    assert ran.code == 0
    assert (ran.out, Memory.objects.count()) == ("", 0)
    assert "The input is not a terminal" in ran.err
    assert analyze("--yes").json["id"] == 1
    assert last_entry(ada).seq > 1
    assert analyze().json["unchanged"]  # it is on now


@pytest.mark.parametrize("off", ["memory", "category"])
def test_so_are_memory_and_its_category(ada: Agent, site: Path, off: str) -> None:
    if off == "memory":
        rule_changes.change(fresh(ada), PERSON, enabled=False)
    else:
        talking.off(ada, "git_history", **{ON: True})
    ran = analyze("--yes")  # which is for the analysis alone
    assert ran.code == 0
    assert "Nothing was done." in ran.err
    assert not Memory.objects.exists()


def test_where_there_is_nothing(ada: Agent, site: Path, tmp_path: Path) -> None:
    assert "is not in a git repository" in analyze("--project-dir", str(tmp_path)).err
    assert "is not a folder" in analyze("--project-dir", str(tmp_path / "no")).err
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "--quiet")
    ran = analyze("--project-dir", str(empty))
    assert (ran.code, ran.out) == (0, "")
    assert "has no commits" in ran.err
    assert "--days" not in ran.err


def test_an_old_history_is_analyzed_too(ada: Agent, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    git(old, "init", "--quiet")
    commit(old, "long ago", {"a": "1"}, at=1_000_000_000)
    ran = analyze("--project-dir", str(old))
    assert ran.json["commits"] == 1
    assert "all older than the last 90 days" in ran.err


# --- init


def steps(*args: str) -> dict[str, str]:
    ran = run("project", "init", "acme/ada", "--json", *args)
    assert ran.code == 0, ran.err
    return {each["step"]: each["found"] for each in ran.json["steps"]}


def test_init_analyses_and_keeps(ada: Agent, site: Path) -> None:
    told = steps()
    assert told["Git history"].startswith("2 commits from ")
    assert told["Git memories"].startswith("memory 1, ")
    assert told["Git memories"].endswith(".md")
    told = steps()
    assert told["Git history"].startswith("nothing was committed since the analysis of")
    assert told["Git memories"] == "none"
    commit(site, "fix: tides", {"tides.py": "1"})
    assert steps()["Git memories"].startswith("memory 1, updated, ")


def test_init_leaves_alone_what_is_off_or_known(ada: Agent, site: Path, tmp_path: Path) -> None:
    off = f"{ON.rpartition('__')[0]}__trigger_on_unknown_context"
    assert steps("--project-dir", str(tmp_path))["Git history"] == "not analyzed: this is not a git repository"
    operations.remember(fresh(ada), [Draft(f"Berth {n}.", project="git.test/acme/site") for n in range(10)], OPERATOR)
    assert steps()["Git history"] == "not analyzed: the project already has 10 memories"
    talking.off(ada, "git_history", **{ON: True, off: False})
    assert steps()["Git history"] == "not analyzed: the category git_history is off"
    talking.settings(ada, **{ON: True, off: False})
    assert steps()["Git history"].startswith("2 commits")
    talking.settings(ada)
    assert steps()["Git history"] == "not analyzed: git_history_analysis is off"


def test_a_project_that_is_none_is_refused_before_anything_is_read(ada: Agent, site: Path) -> None:
    ran = analyze("--project", "../no", "--project-dir", str(site))
    assert ran.code == 2
    assert "project" in ran.err
    assert "commits from" not in ran.err
