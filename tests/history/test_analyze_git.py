"""The command `project analyze_git`, and the analysis as a part of `project init`."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from memory.agents import lifecycle
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.writing import operations
from tests.commands.calling import Ran, run
from tests.conftest import OPERATOR
from tests.history.repositories import commit, git, new_repository
from tests.rules import recordings
from tests.steps import fresh, last_entry

ON = "project_support__git_history_analysis__enabled"


@pytest.fixture
def ada(tmp_path: Path, transactional_db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Agent:
    settings.VAULT_ROOTS = [str(tmp_path)]
    monkeypatch.delenv("MEMORY_PROJECT", raising=False)
    vault = str(tmp_path / "vault")
    agent, key = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR, vault_path=vault)
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    return recordings.settings(agent, **{ON: True})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = new_repository(tmp_path / "site")
    git(folder, "remote", "add", "origin", "git@git.test:acme/site.git")
    commit(folder, "feat: winds", {"winds.py": "1"})
    commit(folder, "fix: gusts", {"winds.py": "2"})
    monkeypatch.chdir(folder)
    return folder


def analyze(*args: str) -> Ran:
    return run("project", "analyze_git", "acme/ada", *args)


def test_a_recorded_session_has_a_memory_and_a_file(ada: Agent, site: Path) -> None:
    ran = analyze()
    assert ran.code == 0, ran.err
    result = ran.json
    assert (result["id"], result["project"], result["commits"], result["new"]) == (1, "git.test/acme/site", 2, True)
    assert result["head"] == git(site, "rev-parse", "HEAD").strip()
    file = Path(result["file"])
    assert file.parts[-2:] == ("git_history", "000001.md")
    text = file.read_text()
    assert text.startswith("# Git History Analysis: git.test/acme/site - history - ")
    for line in ("- **Source System**: git_history_analysis", "**Time Range**: 20", "feature 1, fix 1"):
        assert line in text
    assert "2 commits from" in ran.err
    assert "Not analyzed, because these settings are off: track_branch_evolution, include_author_info." in ran.err
    assert "winds" not in ran.err + ran.out.replace(result["file"], "")


def test_a_second_analysis_runs_only_after_new_commits(ada: Agent, site: Path) -> None:
    analyze()
    before = last_entry(ada).seq
    ran = analyze()
    assert (ran.json["unchanged"], "--again" in ran.err, last_entry(ada).seq) == (True, True, before)
    ran = analyze("--dry-run")
    assert "Nothing was committed since the analysis of" in ran.err
    assert "--dry-run --again" in ran.err
    assert "Git history of" in analyze("--dry-run", "--again").out
    commit(site, "docs: winds", {"winds.md": "3"})
    result = analyze().json
    assert (result["id"], result["commits"], result["new"], Memory.objects.count()) == (1, 3, False, 1)


def test_a_dry_run_prints_and_stores_nothing_and_arguments_override_limits_and_parts(ada: Agent, site: Path) -> None:
    ran = analyze("--commits", "1", "--days", "3", "--authors", "--branches", "--dry-run")
    for text in ("1 commit from", "the newest; there are more in the last 3 days", "Ada Quay 100%"):
        assert text in ran.out
    assert (ran.code, ran.out.startswith("## Analysis Summary\n"), "Not analyzed" in ran.err) == (0, True, False)
    assert not Memory.objects.exists()
    assert analyze("--seconds", "0").code == 2


def test_while_the_analysis_is_off_consent_is_needed(ada: Agent, site: Path) -> None:
    recordings.settings(ada)
    ran = analyze()
    assert (ran.code, ran.out, Memory.objects.count()) == (0, "", 0)
    assert "The input is not a terminal" in ran.err
    assert analyze("--yes").json["id"] == 1
    assert analyze().json["unchanged"]  # it is on now


def test_a_folder_without_commits_or_an_invalid_project_is_refused(ada: Agent, site: Path, tmp_path: Path) -> None:
    assert "is not in a git repository" in analyze("--project-dir", str(tmp_path)).err
    assert "is not a folder" in analyze("--project-dir", str(tmp_path / "no")).err
    ran = analyze("--project-dir", str(new_repository(tmp_path / "empty")))
    assert (ran.code, ran.out, "has no commits" in ran.err, "--days" in ran.err) == (0, "", True, False)
    ran = analyze("--project", "../no", "--project-dir", str(site))
    assert (ran.code, "project" in ran.err, "commits from" in ran.err) == (2, True, False)


def test_an_old_history_is_analyzed(ada: Agent, tmp_path: Path) -> None:
    commit(new_repository(tmp_path / "old"), "long ago", {"a": "1"}, at=1_000_000_000)
    ran = analyze("--project-dir", str(tmp_path / "old"))
    assert (ran.json["commits"], "all older than the last 90 days" in ran.err) == (1, True)


def init(*args: str) -> dict[str, str]:
    """The result of each step."""
    ran = run("project", "init", "acme/ada", "--json", *args)
    assert ran.code == 0, ran.err
    return {each["step"]: each["found"] for each in ran.json["steps"]}


def test_init_analyzes_and_stores_new_commits(ada: Agent, site: Path) -> None:
    steps = init()
    assert steps["Git history"].startswith("2 commits from ")
    assert steps["Git memories"].startswith("memory 1, ")
    assert steps["Git memories"].endswith(".md")
    steps = init()
    assert steps["Git history"].startswith("nothing was committed since the analysis of")
    assert steps["Git memories"] == "none"
    commit(site, "fix: tides", {"tides.py": "1"})
    assert init()["Git memories"].startswith("memory 1, updated, ")


def test_init_skips_the_analysis_if_it_is_off_or_the_project_is_known(ada: Agent, site: Path, tmp_path: Path) -> None:
    unknown_only = f"{ON.rpartition('__')[0]}__trigger_on_unknown_context"
    assert init("--project-dir", str(tmp_path))["Git history"] == "not analyzed: this is not a git repository"
    operations.remember(fresh(ada), [Draft(f"Berth {n}.", project="git.test/acme/site") for n in range(10)], OPERATOR)
    assert init()["Git history"] == "not analyzed: the project already has 10 memories"
    recordings.off(ada, "git_history", **{ON: True, unknown_only: False})
    assert init()["Git history"] == "not analyzed: the category git_history is off"
    recordings.settings(ada, **{ON: True, unknown_only: False})
    assert init()["Git history"].startswith("2 commits")
    recordings.settings(ada)
    assert init()["Git history"] == "not analyzed: git_history_analysis is off"
