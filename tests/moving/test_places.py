"""Folders that are a tool's own, the framework's tree, and folders that are plain: what counts there as a memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.errors import Invalid
from memory.transfer import reading
from memory.transfer.reading import detect
from tests.moving.looking import found, put


def test_a_tools_own_folder_is_read_where_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder, path, tags in (
        (".claude", "CLAUDE.md", ("local",)),
        (".copilot", "copilot-instructions.md", ("local",)),
        (".codeium", "windsurf/memories/global_rules.md", ("local",)),
        ("Documents/Cline/Rules", "a.md", ("local",)),
        ("project/.cursor", "rules/a.mdc", ()),
    ):
        put(tmp_path / folder, path, "Mine.\n")
        memories, left_out = found(tmp_path / folder)
        assert ({key: memory.tags for key, memory in memories.items()}, left_out) == ({path: tags}, {})


def test_a_memory_tools_folder_may_have_any_name(tmp_path: Path) -> None:
    put(tmp_path, "kept/a.py", "Any text.\n")
    put(tmp_path, "kept/.hidden/b.md", "Not shown.\n")
    assert found(tmp_path / "kept") == ({}, {})
    assert list(found(tmp_path / "kept", ("memory-tool",))[0]) == ["a.py"]


def test_settings_lead_to_a_tree_in_the_folder(tmp_path: Path) -> None:
    put(tmp_path, "notes/common/technical/a.md", "Tides.\n")
    put(tmp_path, "memory-rules/settings.json", '{"storage": {"base_path": "./notes"}}')
    assert (list(found(tmp_path)[0]), found(tmp_path)[1]) == (["notes/common/technical/a.md"], {})
    outside = "sets base_path to a place outside the folder"
    for settings, why in (
        ('{"storage": {"base_path": "../other"}}', outside),
        ('{"storage": {"base_path": "/etc"}}', outside),
        ("{", "is not valid JSON, so the folder of its memories is unknown"),
    ):
        put(tmp_path, "memory-rules/settings.json", settings)
        assert found(tmp_path) == ({}, {"memory-rules/settings.json": why})


def test_a_tree_without_settings_is_read_where_it_is_named(tmp_path: Path) -> None:
    for root in ("one", "two/memory"):
        put(tmp_path, f"{root}/projects/quay/topics/a.md", "Tides.\n")
        folder = tmp_path / root.partition("/")[0]
        put(folder, "README.md", "Not of the tree.\n")
        assert found(folder)[0] == {}
        [memory] = found(folder, ("framework",))[0].values()
        assert (memory.category, memory.project) == ("topic", "quay")


def test_trees_of_a_folder_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.transfer.systems._MAX_TREES", 1)
    for name in "ab":
        put(tmp_path, f"{name}/memory-rules/settings.json", "{}")
        put(tmp_path, f"{name}/memory/common/technical/{name}.md", name)
    memories, left_out = found(tmp_path)
    assert list(memories) == ["a/memory/common/technical/a.md"]
    assert left_out == {"b/memory-rules/settings.json": "exceeds the limit of 1 settings files"}


def test_a_folder_that_is_plain_is_one_below(tmp_path: Path) -> None:
    put(tmp_path, "notes/a.md", "A.\n")
    (tmp_path / "link").symlink_to("notes")
    for folder in ("none", "notes/a.md", "link", "..", "../x"):
        with pytest.raises(Invalid), detect(tmp_path, (), (folder,)):
            pass
    assert list(found(tmp_path, (), ("./notes/",))[0]) == ["notes/a.md"]
    assert list(found(tmp_path, ("plain",))[0]) == ["notes/a.md"]


def test_a_systems_own_files_are_its_own_in_a_plain_folder(tmp_path: Path) -> None:
    put(tmp_path, "AGENTS.md", "A.\n")
    put(tmp_path, "b.md", "B.\n")
    with detect(tmp_path, (), (".",)) as look:
        assert {source.path: source.system for source in look.sources} == {"AGENTS.md": "agents-md", "b.md": "plain"}


def test_json_of_any_kind_is_held_or_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, told in (
        ("{}", "is empty"),
        ('{"a": "\\ud83d"}', "contains an incomplete character"),
        ("[" * 100_000, "is not valid JSON"),
    ):
        put(tmp_path, "a.json", text)
        assert found(tmp_path, ("plain",)) == ({}, {"a.json": told})
    put(tmp_path, "a.json", '{"a": ' + '{"a": ' * 400 + "1" + "}" * 401)
    assert found(tmp_path, ("plain",))[1] in ({}, {"a.json": "is nested too deeply"})
    monkeypatch.setattr(reading, "LARGEST", 10)
    assert found(tmp_path, ("plain",))[1] == {"a.json": "is too large"}


def test_a_long_page_and_a_long_entry_are_numbered_each_in_its_way(tmp_path: Path) -> None:
    words = "word " * 2_500
    put(tmp_path, "a.json", f'{{"text": "{words}"}}')
    put(tmp_path, "b.json", f'[{{"id": "x", "text": "b {words}"}}]')
    assert list(found(tmp_path, ("plain",))[0]) == ["a.json", "a.json#2", "b.json#x", "b.json#x-2"]


def test_a_page_that_shows_what_a_log_looks_like_is_none(tmp_path: Path) -> None:
    entry = "## 2026-01-05T08:00:00Z\n**Task:** Count\n**Result:** Three\n"
    (tmp_path / "fenced.md").write_text(f"Logs:\n\n```\n{entry}```\n")
    (tmp_path / "guide.md").write_text(f"# Logs\n\n## Intro\n\nSo:\n\n## How\n\nLike this.\n\n{entry}\n## More\n")
    (tmp_path / "log.md").write_text(entry * 3)
    with detect(tmp_path) as look:
        assert [source.path for source in look.sources] == ["log.md"]
