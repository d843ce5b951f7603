"""What git cannot hold: links, pipes, what is too long, too large, or oddly named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from memory.policy.validation import MAX_CONTENT, checked_tags
from memory.transfer.formats.found import Found
from memory.transfer.reading import looked_at
from tests.moving import odd
from tests.moving.odd import Told
from tests.moving.test_systems import read

ALL: list[Callable[[Path], Told]] = [
    odd.long_rules,
    odd.long_section,
    odd.long_text,
    odd.long_word,
    odd.at_the_limit,
    odd.long_entry,
    odd.large_file,
    odd.many_entries,
    odd.many_globs,
    odd.laughing,
    odd.deep_folder,
    odd.import_chain,
    odd.import_of_itself,
    odd.binary_files,
    odd.link_loop,
    odd.link_within,
    odd.pipe,
    odd.folder_for_a_file,
    odd.odd_names,
]


def _agrees(folder: Path, told: Told, systems: tuple[str, ...] = ()) -> list[Found]:
    with looked_at(folder, systems) as look:
        memories, left_out = read(look)
    assert [memory.key for memory in memories] == told.keys
    assert left_out == told.left_out
    assert all(
        0 < len(memory.content) <= MAX_CONTENT and checked_tags(memory.tags) == memory.tags for memory in memories
    )
    return memories


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.__name__)
def test_what_git_cannot_hold_is_read_or_told(made: Callable[[Path], Told], tmp_path: Path) -> None:
    _agrees(tmp_path, made(tmp_path))


@pytest.mark.parametrize("made", [odd.deep_json, odd.long_number], ids=lambda made: made.__name__)
def test_json_that_no_parser_reads_is_told_where_its_system_is_named(
    made: Callable[[Path], Told], tmp_path: Path
) -> None:
    _agrees(tmp_path, made(tmp_path), ("mem0",))


def test_a_link_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    _agrees(tmp_path / "in", odd.link_outside(tmp_path / "in", tmp_path / "out"))


def test_what_may_not_be_read_is_told(tmp_path: Path, as_nobody: None) -> None:
    _agrees(tmp_path, odd.unreadable(tmp_path))


def test_too_many_globs_are_told(tmp_path: Path) -> None:
    [memory] = _agrees(tmp_path, odd.many_globs(tmp_path))
    assert (len(memory.tags), memory.tags[0]) == (odd.TAGS, "glob:quays/0/**")
    assert "not kept: 44 tags" in memory.transformed


def test_all_of_odd_is_asked() -> None:
    names = {name for name, made in vars(odd).items() if getattr(made, "__annotations__", {}).get("return") == "Told"}
    others = {"deep_json", "long_number", "link_outside", "unreadable"}
    assert names == {made.__name__ for made in ALL} | others
