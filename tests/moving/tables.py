"""Comparing what a reader found with the tables of `systems/NAME/expected.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from memory.transfer.formats.found import HERE, Found, LeftOut, Part

SYSTEMS = Path(__file__).parent / "systems"


def expected(system: str, *files: str) -> dict[str, list[dict[str, Any]]]:
    """Of these files of the tree alone, or of all."""
    told = json.loads((SYSTEMS / system / "expected.json").read_text("utf-8"))
    return {
        name: [each for each in told[name] if not files or each["key"].partition("#")[0] in files]
        for name in ("memories", "left_out")
    }


def once(parts: Iterable[Part]) -> tuple[list[Found], dict[str, str]]:
    """One memory of each text, the first, with the tags of all; and why the others are left out."""
    found: dict[str, Found] = {}
    left_out: dict[str, str] = {}
    for part in parts:
        if isinstance(part, LeftOut):
            left_out[part.key] = part.why
        elif (first := found.get(part.content)) is not None:
            left_out[part.key] = f"says the same as {first.key}"
            found[part.content] = replace(first, tags=tuple(dict.fromkeys((*first.tags, *part.tags))))
        else:
            found[part.content] = part
    return list(found.values()), left_out


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


def agree(parts: Iterable[Part], told: dict[str, list[dict[str, Any]]]) -> None:
    memories, left_out = once(parts)
    assert [memory.key for memory in memories] == [each["key"] for each in told["memories"]]
    for memory, each in zip(memories, told["memories"], strict=True):
        agrees(memory, each)
    assert left_out == {each["key"]: each["why"] for each in told["left_out"]}
