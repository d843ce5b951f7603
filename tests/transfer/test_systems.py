"""The files of each system are read as the tables (`systems/*/expected.json`) state, and imported by the commands."""

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from memory.models import Agent
from memory.policy.categories import PRIVATE, SCOPES
from memory.transfer.formats.parts import HERE, Found
from memory.transfer.reading import detect
from tests.history.repositories import commit, git
from tests.rules import recordings
from tests.steps import active, fresh, problems, row, says
from tests.transfer.calling import agent_with_a_vault, at_a_terminal, migrate, rules  # noqa: F401  a fixture
from tests.transfer.folders import read

TREES = Path(__file__).parent / "systems"

# The names of systems and the plain folders for each tree. Without both, files of all systems are found.
ASKED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "anthropic": (("memory-tool", "memory-store"), ()),
    "axe": (("axe",), ()),
    "letta": (("letta",), ()),
    "mem0": (("mem0",), ()),
    "own": (("own",), ()),
    "plain": (("plain",), ("notes",)),
}
ASKED |= {path.parent.name: ((), ()) for path in TREES.glob("*/expected.json") if path.parent.name not in ASKED}
APART = {"mixed", "cline-file"}  # their files have the same names as those of other trees
# Files that are found only if their system is named.
NAMED_ALONE = {
    *("axe/memory/empty.md", "exports/empty.json", "exports/profile.json", "exports/stopped.jsonl"),
    "memories/empty.md",
}


def table(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((TREES / name / "expected.json").read_text("utf-8"))
    return content


def assert_agrees(memory: Found, expected: dict[str, Any]) -> None:
    assert memory.key == expected["key"]
    assert memory.content.startswith(expected["begins"]), memory.key
    assert sorted(memory.transformed) == sorted(expected["transformed"]), memory.key
    date = None if expected["date"] is None else datetime.fromisoformat(expected["date"])
    project = expected.get("project_id") or (HERE if expected["project"] else "")
    fields = (memory.category, memory.project, list(memory.tags), memory.kind, memory.date)
    assert fields == (expected["category"], project, expected["tags"], expected.get("kind", "core"), date), memory.key


@pytest.mark.parametrize("name", sorted(ASKED))
def test_each_layout_of_files_is_imported(name: str) -> None:
    expected = table(name)
    with detect(TREES / name / "tree", *ASKED[name]) as look:
        memories, left_out = read(look)
        paths = {source.path for source in look.sources}
    for memory, each in zip(memories, expected["memories"], strict=True):
        assert_agrees(memory, each)
    assert left_out == {each["key"]: each["why"] for each in expected["left_out"]}
    assert not (paths | left_out.keys()) & set(expected.get("no_memory", []))


def test_all_trees_in_one_folder_are_read(tmp_path: Path) -> None:
    names = sorted(ASKED.keys() - APART)
    for name in names:
        shutil.copytree(TREES / name / "tree", tmp_path, dirs_exist_ok=True)
    tables = [table(name) for name in names]
    expected = {each["key"]: each for one in tables for each in one["memories"]}
    left = {each["key"]: each["why"] for one in tables for each in one["left_out"]}
    not_found = {key for key in [*expected, *left] if key.partition("#")[0] in NAMED_ALONE - {"memories/empty.md"}}
    with detect(tmp_path, plain=["notes"]) as look:
        memories, left_out = read(look)
        paths = [source.path for source in look.sources]
    assert paths == sorted(paths)
    assert {memory.key for memory in memories} == expected.keys() - not_found
    files = [memory.key.partition("#")[0] for memory in memories]
    assert files == sorted(files)
    for memory in memories:
        assert_agrees(memory, expected[memory.key])
    assert left_out == {key: why for key, why in left.items() if key not in not_found}


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
    recordings.settings(ada, project_support__git_history_analysis__enabled=True)
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
