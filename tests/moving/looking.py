"""Folders that are looked at: files put there, and what is found of them."""

from __future__ import annotations

from pathlib import Path

from memory.transfer.formats.parts import Found
from memory.transfer.reading import detect
from tests.moving.test_systems import read


def put(folder: Path, path: str, text: str) -> Path:
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, "utf-8", newline="")
    return place


def found(
    folder: Path, systems: tuple[str, ...] = (), plain: tuple[str, ...] = ()
) -> tuple[dict[str, Found], dict[str, str]]:
    with detect(folder, systems, plain) as look:
        memories, left_out = read(look)
    return {memory.key: memory for memory in memories}, left_out
