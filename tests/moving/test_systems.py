"""The files of each system are read as the tables (`systems/*/expected.json`) state."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from memory.transfer.formats.parts import HERE, Found
from memory.transfer.reading import detect
from tests.moving.looking import read

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
def test_a_tree_is_read_as_its_table_says(name: str) -> None:
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
