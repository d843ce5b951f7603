"""A folder is searched, then read: sources, symlinks, tags, dates, and files that change between search and read."""

import os
import shutil
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.errors import FileFault
from memory.transfer.formats import parts
from memory.transfer.formats.parts import Found
from memory.transfer.reading import Item, detect
from tests.history.repositories import commit, git
from tests.transfer.folders import Link, found, put, put_all

QUAY = "Say quay.\n"


def text(item: Item) -> object:
    return (item.part.key, item.part.content) if isinstance(item.part, Found) else item.part


def test_sources_are_known_before_a_file_is_read(tmp_path: Path) -> None:
    place = put(tmp_path, "AGENTS.md", QUAY)
    os.utime(place, (1_700_000_000, 1_700_000_000))
    put(tmp_path, ".cursorrules", "Say sailing.\n")
    with detect(tmp_path) as look:
        sources = [(source.system, source.path) for source in look.sources]
        assert sources == [("cursor", ".cursorrules"), ("agents-md", "AGENTS.md")]
        assert look.sources[1].modified == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        items = list(look.parts())
        assert [item.source for item in items] == look.sources
        assert list(map(text, look.parts())) == list(map(text, items))  # parts can be read again
        assert "quay" not in repr([look, items])


def test_further_systems_are_found(tmp_path: Path) -> None:
    systems = {
        ".continue/rules/a.md": "continue",
        ".kiro/steering/product.md": "kiro",
        ".roo/rules-code/a.md": "roo",
        ".roo/rules/a.md": "roo",
        "GEMINI.md": "gemini",
        "web/AGENTS.override.md": "agents-md",
        "memory/common/technical/a.md": "framework",
    }
    put_all(tmp_path, dict.fromkeys(systems, QUAY) | {"modules/memory-rules/settings.json": "{}"})
    with detect(tmp_path) as look:
        assert {source.path: source.system for source in look.sources} == systems


def test_folders_of_dependencies_are_skipped_unless_they_are_named(tmp_path: Path) -> None:
    folders = [
        "node_modules",
        "vendor",
        ".venv",
        ".git",
        ".agents/skills",
        ".claude/skills",
        "tests/fixtures",
        "env/lib",
    ]
    put_all(tmp_path, {f"{folder}/AGENTS.md": "Of somebody else.\n" for folder in folders} | {"env/pyvenv.cfg": ""})
    assert found(tmp_path) == ({}, {})
    assert [list(found(tmp_path / folder)[0]) for folder in folders] == [["AGENTS.md"]] * len(folders)


def test_an_unreadable_file_or_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_all(tmp_path, {"AGENTS.md": QUAY, "closed/AGENTS.md": QUAY})
    real = os.open

    def refuse(path: object, *args: object, **options: object) -> int:
        if path in ("AGENTS.md", "closed"):
            raise PermissionError
        return real(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    assert found(tmp_path) == ({}, {"AGENTS.md": "cannot be read", "closed": "cannot be read"})


def test_a_disk_error_stops_the_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "AGENTS.md", QUAY)

    def fail(*_: object) -> object:
        raise OSError(5, "Input/output error")

    with detect(tmp_path) as look:
        monkeypatch.setattr(parts, "decoded", fail)
        with pytest.raises(FileFault, match=r"AGENTS.md: input/output error"):
            list(look.parts())


@pytest.mark.parametrize("swapped", [".cursor/rules/a.mdc", ".cursor/rules", ".cursor"])
def test_a_symlink_that_appears_after_the_search_is_not_followed(tmp_path: Path, swapped: str) -> None:
    put(tmp_path / "out", "rules/a.mdc", "Of somebody else.\n")
    put(tmp_path / "in", ".cursor/rules/a.mdc", "A rule.\n")
    with detect(tmp_path / "in") as look:
        shutil.move(tmp_path / "in" / swapped, tmp_path / "was")
        (tmp_path / "in" / swapped).symlink_to(tmp_path / "out" / swapped.removeprefix(".cursor").removeprefix("/"))
        with pytest.raises(FileFault):
            list(look.parts())


CHANGES: dict[str, Callable[[Path], object]] = {
    "gone": lambda _: None,
    "pipe": os.mkfifo,
    "link": lambda place: place.symlink_to("/etc/hostname"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_is_replaced_after_the_search_is_an_error(change: str, tmp_path: Path) -> None:
    place = put(tmp_path, "AGENTS.md", QUAY)
    with detect(tmp_path) as look:
        place.unlink()
        CHANGES[change](place)
        with pytest.raises(FileFault, match=r"AGENTS.md") as refused:
            list(look.parts())
    assert "quay" not in str(refused.value)


def test_the_target_of_symlinks_is_read_once(tmp_path: Path) -> None:
    files = {"docs/rules.md": "One text.\n", ".agents/AGENTS.md": "For the whole project.\n"}
    links = {"CLAUDE.md": "docs/rules.md", "GEMINI.md": "docs/rules.md", "AGENTS.md": ".agents/AGENTS.md"}
    put_all(tmp_path, files | {path: Link(target) for path, target in links.items()})
    put(tmp_path, ".agents/CLAUDE.md", Link("AGENTS.md"))
    memories, left_out = found(tmp_path)
    assert {key: memory.tags for key, memory in memories.items()} == {
        ".agents/AGENTS.md": ("linked-from:AGENTS.md",),
        "docs/rules.md": ("linked-from:CLAUDE.md", "linked-from:GEMINI.md"),
    }
    links[".agents/CLAUDE.md"] = ".agents/AGENTS.md"
    assert left_out == {path: f"is a symlink to {target}" for path, target in links.items()}


def test_imported_pages_name_their_importers(tmp_path: Path) -> None:
    far = "quays/" * 12
    put_all(tmp_path, {"CLAUDE.md": "@a.md @b.md\n", "a.md": "A: @b.md\n", "b.md": "B: @a.md\n"})
    put_all(tmp_path, {f"{far}CLAUDE.md": "Tides: @tides.md\n", f"{far}tides.md": "T.\n"})
    memories, left_out = found(tmp_path)
    assert memories["a.md"].tags == ("imported-by:CLAUDE.md", "imported-by:b.md")
    assert memories["b.md"].tags == ("imported-by:CLAUDE.md", "imported-by:a.md")
    assert left_out == {"CLAUDE.md": "has only headings and imports"}
    tides = memories[f"{far}tides.md"]  # the path of its importer is too long for a tag
    assert (tides.tags, tides.transformed) == ((), ("not kept: imported-by",))


def test_any_page_can_have_front_matter(tmp_path: Path) -> None:
    no_front_matter = "---\nNote: between two lines\n---\nSay sailing."
    front_matter = '---\ndescription: Of the SDK.\nglobs: "*.ts,*.md"\nalwaysApply: true\n---\n'
    put_all(tmp_path, {"sdk/AGENTS.md": front_matter + QUAY, "AGENTS.md": f"{no_front_matter}\n"})
    memories, _ = found(tmp_path)
    assert memories["sdk/AGENTS.md"].content == "Of the SDK.\n\nSay quay."
    assert memories["sdk/AGENTS.md"].tags == ("glob:*.ts", "glob:*.md", "alwaysApply:true")
    assert memories["AGENTS.md"].content == no_front_matter


def test_one_text_of_three_systems_has_the_tags_of_all(tmp_path: Path) -> None:
    put(tmp_path, ".cursor/rules/a.mdc", "---\nglobs: a/**\n---\nOne text.\n")
    put(tmp_path, ".windsurf/rules/b.md", "---\nglobs: b/**\n---\nOne text.\n")
    put(tmp_path, "CLAUDE.local.md", "\r\nOne text.\r\n")
    memories, left_out = found(tmp_path)
    assert {key: memory.tags for key, memory in memories.items()} == {
        ".cursor/rules/a.mdc": ("glob:a/**", "glob:b/**", "local")
    }
    why = "has the same text as .cursor/rules/a.mdc"
    assert left_out == {".windsurf/rules/b.md": why, "CLAUDE.local.md": why}


def test_memories_of_a_large_file_are_not_held(tmp_path: Path) -> None:
    with (tmp_path / "mem0.json").open("w", encoding="utf-8") as file:
        file.write('{"results": [')
        for n in range(5_000):
            file.write(f'{"," if n else ""}{{"id": "m{n}", "memory": "{n} {"quay " * 400}"}}')
        file.write("]}")
    tracemalloc.start()
    try:
        with detect(tmp_path) as look:
            assert sum(1 for _ in look.parts()) == 5_000
        assert tracemalloc.get_traced_memory()[1] < 5 * 2**20 < (tmp_path / "mem0.json").stat().st_size
    finally:
        tracemalloc.stop()


def test_a_file_has_the_date_of_its_last_commit(tmp_path: Path) -> None:
    """As `git log` shows it, also for a file that changed in a merged branch."""
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    commit(tmp_path, "one", {"AGENTS.md": QUAY, "sub/GEMINI.md": "Tides.\n", "web/AGENTS.md": "W.\n"}, at=1_704_164_645)
    git(tmp_path, "checkout", "--quiet", "-b", "side")
    commit(tmp_path, "two", {"AGENTS.md": "Say dock.\n"}, at=1_735_787_045)
    git(tmp_path, "checkout", "--quiet", "main")
    commit(tmp_path, "three", {"sub/GEMINI.md": "Tides turn.\n"}, at=1_767_323_045)
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.c", "merge", "--quiet", "--no-ff", "-m", "merge", "side")
    os.utime(put(tmp_path, "CLAUDE.md", "Not yet in git.\n"), (1_700_000_000, 1_700_000_000))
    with detect(tmp_path, repository=tmp_path) as look:
        dates = {source.path: int(source.modified.timestamp()) for source in look.sources}
    assert dates.pop("CLAUDE.md") == 1_700_000_000
    assert dates == {path: int(git(tmp_path, "log", "-1", "--format=%ct", "--", path)) for path in dates}
    assert set(dates) == {"AGENTS.md", "sub/GEMINI.md", "web/AGENTS.md"}
    with detect(tmp_path / "web", repository=tmp_path) as look:
        assert [source.modified.year for source in look.sources] == [2024]


@pytest.mark.parametrize("broken", ["", "gitdir: nowhere\n"])
def test_a_broken_repository_gives_no_dates(tmp_path: Path, broken: str) -> None:
    put_all(tmp_path, {"AGENTS.md": QUAY, ".git": broken})
    with detect(tmp_path, repository=tmp_path) as look:
        assert [source.path for source in look.sources] == ["AGENTS.md"]
