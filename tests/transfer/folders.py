"""Folders with files of other systems, and the memories that are found there."""

from collections.abc import Mapping
from pathlib import Path

from memory.transfer.formats.parts import Found, LeftOut
from memory.transfer.reading import Detection, detect, unique


class Link(str):
    """The target of a symlink."""


def put(folder: Path, path: str, content: str | bytes) -> Path:
    """Create a file, with its folders, or a symlink."""
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Link):
        place.symlink_to(content)
    elif isinstance(content, bytes):
        place.write_bytes(content)
    else:
        place.write_text(content, "utf-8", newline="")
    return place


def put_all(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for path, content in files.items():
        put(folder, path, content)


def read(look: Detection) -> tuple[list[Found], dict[str, str]]:
    """The memories, and the keys that are left out, with the reasons."""
    parts = [item.part for item in unique(look.parts())]
    left = [*look.left_out, *(part for part in parts if isinstance(part, LeftOut))]
    reasons = {each.key: each.why for each in left}
    assert len(reasons) == len(left)
    return [part for part in parts if isinstance(part, Found)], reasons


def found(
    folder: Path, systems: tuple[str, ...] = (), plain: tuple[str, ...] = ()
) -> tuple[dict[str, Found], dict[str, str]]:
    with detect(folder, systems, plain) as look:
        memories, left_out = read(look)
    return {memory.key: memory for memory in memories}, left_out
