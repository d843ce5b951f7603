"""What a file of instructions takes in by its `@path`s: what is followed, what is left out, and how far it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.transfer import walk
from tests.moving.looking import found, put


def test_imports_are_paths_and_nothing_else(tmp_path: Path) -> None:
    put(tmp_path, "docs/a.md", "A.\n")
    put(tmp_path, "docs/b c.md", "B.\n")
    put(tmp_path, "Makefile", "C.\n")
    put(
        tmp_path,
        "CLAUDE.md",
        f'@docs/a.md, @"docs/q.md" x@docs/q.md @Makefile @nobody `@docs/q.md` ``@docs/q.md ` @docs/q.md``\n'
        f"@docs/b\\ c.md (see @{tmp_path}/docs/a.md) @/etc/hostname @../x.md\n~~~\n@docs/q.md\n~~~\n` @types/node @.\n",
    )
    memories, left_out = found(tmp_path)
    assert list(memories) == ["CLAUDE.md", "Makefile", "docs/a.md", "docs/b c.md"]
    assert left_out == {
        "CLAUDE.md#@/etc/hostname": "points to a file outside the folder",
        "CLAUDE.md#@../x.md": "points to a file outside the folder",
        "CLAUDE.md#@types/node": "points to a missing file",
    }


def test_an_import_by_a_link_that_leads_out_is_told(tmp_path: Path) -> None:
    put(tmp_path / "out", "secret.md", "Of somebody else.\n")
    put(tmp_path / "in", "CLAUDE.md", "See @docs/secret.md @one.md\n")
    (tmp_path / "in/docs").symlink_to(tmp_path / "out")
    (tmp_path / "in/one.md").symlink_to("CLAUDE.md")
    memories, left_out = found(tmp_path / "in")
    assert list(memories) == ["CLAUDE.md"]
    assert left_out == {
        "CLAUDE.md#@docs/secret.md": "points to a file outside the folder",
    }


def test_two_that_import_each_other_are_read_once(tmp_path: Path) -> None:
    put(tmp_path, "CLAUDE.md", "@a.md @b.md\n")
    put(tmp_path, "a.md", "A: @b.md\n")
    put(tmp_path, "b.md", "B: @a.md\n")
    memories, left_out = found(tmp_path)
    assert memories["a.md"].tags == ("imported-by:CLAUDE.md", "imported-by:b.md")
    assert memories["b.md"].tags == ("imported-by:CLAUDE.md", "imported-by:a.md")
    assert left_out == {"CLAUDE.md": "has only headings and imports"}


def test_imports_of_a_file_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MAX_IMPORTS", 2)
    put(tmp_path, "CLAUDE.md", "See @a.md @b.md @c.md @d.md\n")
    assert found(tmp_path)[1] == {
        "CLAUDE.md#@a.md": "points to a missing file",
        "CLAUDE.md#@b.md": "points to a missing file",
        "CLAUDE.md#@": "has more than 2 imports; the others are skipped",
    }


def test_the_tag_of_a_far_importer_is_told_and_not_kept(tmp_path: Path) -> None:
    far = "quays/" * 12 + "CLAUDE.md"
    put(tmp_path, far, "Tides: @tides.md\n")
    put(tmp_path, "quays/" * 12 + "tides.md", "T.\n")
    memory = found(tmp_path)[0]["quays/" * 12 + "tides.md"]
    assert (memory.tags, memory.transformed) == ((), ("not kept: imported-by",))


def test_left_out_is_told_once(tmp_path: Path) -> None:
    put(tmp_path, ".cursor/rules/a.md", "A.\n")
    put(tmp_path, "CLAUDE.md", "See @.cursor/rules/a.md\n")
    memories, left_out = found(tmp_path)
    assert (list(memories), left_out) == ([".cursor/rules/a.md", "CLAUDE.md"], {})
