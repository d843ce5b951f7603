"""What each system leaves in a folder, read as the tables say."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from memory.transfer.formats.parts import HERE, Found, LeftOut
from memory.transfer.reading import Detection, detect, unique
from memory.transfer.systems import SYSTEMS

TREES = Path(__file__).parent / "systems"

# What is asked for: systems by name, and folders that are plain. Nothing: all systems, as they find their files.
ASKED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "agents": ((), ()),
    "anthropic": (("memory-tool", "memory-store"), ()),
    "axe": (("axe",), ()),
    "claude": ((), ()),
    "cline": ((), ()),
    "cline-file": ((), ()),
    "copilot": ((), ()),
    "cursor": ((), ()),
    "framework": ((), ()),
    "letta": (("letta",), ()),
    "mem0": (("mem0",), ()),
    "mixed": ((), ()),
    "own": (("own",), ()),
    "plain": (("plain",), ("notes",)),
    "windsurf": ((), ()),
}
APART = {"mixed", "cline-file"}  # trees with files of the same names as others have
# What is told where its system is named, and otherwise is nobody's.
NAMED_ALONE = {
    "axe/memory/empty.md",
    "exports/empty.json",
    "exports/profile.json",
    "exports/stopped.jsonl",
    "memories/empty.md",
}


def table(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TREES / name / "expected.json").read_text("utf-8"))
    return found


def agrees(memory: Found, told: dict[str, Any]) -> None:
    assert memory.key == told["key"]
    assert memory.category == told["category"], memory.key
    wanted = told.get("project_id") or (HERE if told["project"] else "")
    assert memory.project == wanted, memory.key
    assert memory.content.startswith(told["begins"]), memory.key
    assert list(memory.tags) == told["tags"], memory.key
    assert sorted(memory.transformed) == sorted(told["transformed"]), memory.key
    assert memory.kind == told.get("kind", "core"), memory.key
    date = None if told["date"] is None else datetime.fromisoformat(told["date"])
    assert memory.date == date, memory.key


def read(look: Detection) -> tuple[list[Found], dict[str, str]]:
    parts = [item.part for item in unique(look.parts())]
    left = [part for part in parts if isinstance(part, LeftOut)]
    assert len({each.key for each in [*look.left_out, *left]}) == len(look.left_out) + len(left)
    return [part for part in parts if isinstance(part, Found)], {each.key: each.why for each in [*look.left_out, *left]}


def test_all_trees_are_read() -> None:
    assert ASKED.keys() == {path.parent.name for path in TREES.glob("*/expected.json")}


@pytest.mark.parametrize("name", ASKED)
def test_a_tree_is_read_as_its_table_says(name: str) -> None:
    told = table(name)
    systems, plain = ASKED[name]
    with detect(TREES / name / "tree", systems, plain) as look:
        memories, left_out = read(look)
        named = {source.path for source in look.sources}
    assert [memory.key for memory in memories] == [each["key"] for each in told["memories"]]
    for memory, each in zip(memories, told["memories"], strict=True):
        agrees(memory, each)
    assert left_out == {each["key"]: each["why"] for each in told["left_out"]}
    assert not (named | left_out.keys()) & set(told.get("no_memory", []))


def test_all_trees_in_one_folder_are_found_by_place_and_form(tmp_path: Path) -> None:
    names = sorted(ASKED.keys() - APART)
    for name in names:
        shutil.copytree(TREES / name / "tree", tmp_path, dirs_exist_ok=True)
    told = [table(name) for name in names]
    expected = {each["key"]: each for one in told for each in one["memories"]}
    left = {each["key"]: each["why"] for one in told for each in one["left_out"]}
    gone = {key for key in [*expected, *left] if key.partition("#")[0] in NAMED_ALONE - {"memories/empty.md"}}
    with detect(tmp_path, plain=["notes"]) as look:
        memories, left_out = read(look)
        paths = [source.path for source in look.sources]
    assert paths == sorted(paths)
    assert {memory.key for memory in memories} == expected.keys() - gone
    assert [memory.key.partition("#")[0] for memory in memories] == sorted(
        memory.key.partition("#")[0] for memory in memories
    )
    for memory in memories:
        agrees(memory, expected[memory.key])
    assert left_out == {key: why for key, why in left.items() if key not in gone}


def test_systems_say_what_they_are() -> None:
    groups = {"cursor", "github_copilot", "custom_agent_frameworks", "legacy_memory_systems"}
    assert {each.group for each in SYSTEMS.values()} == groups
    assert [each.name for each in SYSTEMS.values()] == list(SYSTEMS)
    assert all(each.title and each.what for each in SYSTEMS.values())
