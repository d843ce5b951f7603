"""A folder is looked at, and read: what is found by what, what changed meanwhile, what is said of files twice."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.errors import FileFault
from memory.transfer import walk
from memory.transfer.formats import parts
from memory.transfer.formats.parts import Found
from memory.transfer.reading import Item, detect
from tests.history.repositories import git
from tests.history.test_odd_repositories import commit
from tests.moving.looking import found, put

# --- what is looked at


def test_sources_are_told_before_anything_is_read(tmp_path: Path) -> None:
    place = put(tmp_path, "AGENTS.md", "Say quay.\n")
    os.utime(place, (1_700_000_000, 1_700_000_000))
    put(tmp_path, ".cursorrules", "Say sailing.\n")
    with detect(tmp_path) as look:
        assert [(source.system, source.path) for source in look.sources] == [
            ("cursor", ".cursorrules"),
            ("agents-md", "AGENTS.md"),
        ]
        assert look.sources[1].modified == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        items = list(look.parts())
        assert [item.source for item in items] == look.sources
        assert list(map(_said, look.parts())) == list(map(_said, items)), "as often as is wanted"
        assert "quay" not in repr([look, items])


def _said(item: Item) -> object:
    return (item.part.key, item.part.content) if isinstance(item.part, Found) else item.part


def test_a_systems_name_leaves_the_others_alone(tmp_path: Path) -> None:
    put(tmp_path, "AGENTS.md", "A.\n")
    put(tmp_path, "CLAUDE.md", "B.\n")
    assert list(found(tmp_path, ("claude",))[0]) == ["CLAUDE.md"]


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path / "none", put(tmp_path, "file", "x")):
        with pytest.raises(FileFault), detect(place):
            pass


def test_ordinary_files_are_nobodys(tmp_path: Path) -> None:
    put(tmp_path, "package.json", '{"name": "quay", "dependencies": {"memory": "1"}, "results": []}')
    put(tmp_path, "tsconfig.json", "{} // no JSON")
    put(tmp_path, "README.md", "# Quay\n\n## 2026\nSay **Task:** twice.\n")
    put(tmp_path, "bench.json", '{"results": [{"memory": "16 GB", "seconds": 1}]}')
    put(tmp_path, "rows.jsonl", '{"content": "x"}\n')
    put(tmp_path, ".cursor/mcp.json", '{"results": [{"id": "1", "memory": "x"}]}')
    put(tmp_path, ".claude/settings.json", '{"results": [{"id": "1", "memory": "x"}]}')
    assert found(tmp_path) == ({}, {})
    assert found(tmp_path / ".claude") == ({}, {})
    assert found(tmp_path, ("axe",)) == ({}, {"README.md": "is not an axe log"})


def test_a_file_of_one_systems_form_is_not_anothers(tmp_path: Path) -> None:
    put(tmp_path, "a.json", '{"results": [{"id": "1", "memory": "Of mem0."}]}')
    put(tmp_path, "b.json", '[{"id": "1", "text": "Of Letta.", "archive_id": "x"}]')
    memories, left_out = found(tmp_path, ("letta", "mem0"))
    assert (list(memories), left_out) == (["a.json#1", "b.json#1"], {})


def test_what_is_somebody_elses_is_not_entered(tmp_path: Path) -> None:
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
    for folder in folders:
        put(tmp_path, f"{folder}/AGENTS.md", "Of somebody else.\n")
    put(tmp_path, "env/pyvenv.cfg", "")
    assert found(tmp_path) == ({}, {})
    assert [list(found(tmp_path / folder)[0]) for folder in folders] == [["AGENTS.md"]] * len(folders)


def test_entries_and_depth_are_bounded_and_what_is_near_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(9):
        put(tmp_path, f"data/{n}.bin", "")
    put(tmp_path, "service/AGENTS.md", "Near.\n")
    put(tmp_path, "data/deep/a/AGENTS.md", "Far.\n")
    monkeypatch.setattr(walk, "MAX_DEPTH", 2)
    assert found(tmp_path)[1] == {"data/deep": "is nested too deeply (2 folders)"}
    monkeypatch.setattr(walk, "MAX_ENTRIES", 6)
    memories, left_out = found(tmp_path)
    assert left_out == {".": "has more than 6 entries; the others are skipped"}
    assert "data/deep/a/AGENTS.md" not in memories


def test_what_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "AGENTS.md", "Not for everybody.\n")
    put(tmp_path, "closed/AGENTS.md", "Nor this.\n")
    opened = os.open

    def refusing(path: object, *given: object, **named: object) -> int:
        if path in ("AGENTS.md", "closed"):
            raise PermissionError
        return opened(path, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    assert found(tmp_path) == ({}, {"AGENTS.md": "cannot be read", "closed": "cannot be read"})


# --- links


def test_a_link_to_what_is_nobodys_is_read_once_as_what_it_leads_to(tmp_path: Path) -> None:
    put(tmp_path, "docs/rules.md", "One text.\n")
    put(tmp_path, ".agents/AGENTS.md", "For the whole project.\n")
    (tmp_path / "CLAUDE.md").symlink_to("docs/rules.md")
    (tmp_path / "GEMINI.md").symlink_to("docs/rules.md")
    (tmp_path / "AGENTS.md").symlink_to(".agents/AGENTS.md")
    (tmp_path / ".agents/CLAUDE.md").symlink_to("AGENTS.md")  # in the same folder
    memories, left_out = found(tmp_path)
    assert {key: memory.tags for key, memory in memories.items()} == {
        ".agents/AGENTS.md": ("linked-from:AGENTS.md",),
        "docs/rules.md": ("linked-from:CLAUDE.md", "linked-from:GEMINI.md"),
    }
    assert left_out == dict.fromkeys(("CLAUDE.md", "GEMINI.md"), "is a symlink to docs/rules.md") | dict.fromkeys(
        ("AGENTS.md", ".agents/CLAUDE.md"), "is a symlink to .agents/AGENTS.md"
    )


def test_a_folder_that_is_a_link_is_told_where_rules_would_be(tmp_path: Path) -> None:
    put(tmp_path, "shared/a.mdc", "A rule.\n")
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor/rules").symlink_to("../shared")
    (tmp_path / "docs").symlink_to("shared")
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/skills").symlink_to("/usr")
    assert found(tmp_path) == ({}, {".cursor/rules": "is a symlink to shared"})


def test_a_link_put_there_between_look_and_read_leads_nowhere(tmp_path: Path) -> None:
    put(tmp_path / "out", "rules/a.mdc", "Of somebody else.\n")
    for swapped in (".cursor/rules/a.mdc", ".cursor/rules", ".cursor"):
        shutil.rmtree(tmp_path / "in", ignore_errors=True)
        put(tmp_path / "in", ".cursor/rules/a.mdc", "A rule that is ours.\n")
        with detect(tmp_path / "in") as look:
            (tmp_path / "in" / swapped).rename(tmp_path / "in/was")
            (tmp_path / "in" / swapped).symlink_to(tmp_path / "out" / swapped.removeprefix(".cursor").removeprefix("/"))
            with pytest.raises(FileFault):
                list(look.parts())


# --- the same text


def test_blanks_and_the_language_of_code_make_no_other_text(tmp_path: Path) -> None:
    put(tmp_path, "AGENTS.md", "Run this:\n\n```sh\nmake\n```\n")
    put(tmp_path, "CLAUDE.md", "Run this:\n```\nmake\n```")
    put(tmp_path, "GEMINI.md", "Run this:\n```\nmake test\n```")
    memories, left_out = found(tmp_path)
    assert (list(memories), left_out) == (
        ["AGENTS.md", "GEMINI.md"],
        {"CLAUDE.md": "has the same text as AGENTS.md"},
    )


def test_front_matter_is_read_in_any_page_that_has_some(tmp_path: Path) -> None:
    put(
        tmp_path,
        "sdk/AGENTS.md",
        '---\ndescription: Of the SDK.\nglobs: "*.ts,*.md"\nalwaysApply: true\n---\nSay quay.\n',
    )
    put(tmp_path, "AGENTS.md", "---\nNote: between two lines\n---\nSay sailing.\n")
    memories, _ = found(tmp_path)
    assert memories["sdk/AGENTS.md"].content == "Of the SDK.\n\nSay quay."
    assert memories["sdk/AGENTS.md"].tags == ("glob:*.ts", "glob:*.md", "alwaysApply:true")
    assert memories["AGENTS.md"].content == "---\nNote: between two lines\n---\nSay sailing."


def test_one_text_in_three_systems_has_the_tags_of_all(tmp_path: Path) -> None:
    put(tmp_path, ".cursor/rules/a.mdc", "---\nglobs: a/**\n---\nOne text.\n")
    put(tmp_path, ".windsurf/rules/b.md", "---\nglobs: b/**\n---\nOne text.\n")
    put(tmp_path, "CLAUDE.local.md", "\r\nOne text.\r\n")
    memories, left_out = found(tmp_path)
    assert list(memories) == [".cursor/rules/a.mdc"]
    assert memories[".cursor/rules/a.mdc"].tags == ("glob:a/**", "glob:b/**", "local")
    says = "has the same text as .cursor/rules/a.mdc"
    assert left_out == {".windsurf/rules/b.md": says, "CLAUDE.local.md": says}


def test_a_long_text_twice_is_the_same_part_by_part(tmp_path: Path) -> None:
    text = "# A\n\n" + "word " * 1_500 + "\n# B\n\n" + "word " * 1_500
    put(tmp_path, "AGENTS.md", text)
    put(tmp_path, "CLAUDE.md", text)
    memories, left_out = found(tmp_path)
    assert list(memories) == ["AGENTS.md#a", "AGENTS.md#b"]
    assert left_out == {f"CLAUDE.md#{slug}": f"has the same text as AGENTS.md#{slug}" for slug in "ab"}


def test_many_memories_are_not_held(tmp_path: Path) -> None:
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


def test_a_disk_that_fails_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "AGENTS.md", "Say quay.\n")

    def failing(*_: object) -> object:
        raise OSError(5, "Input/output error")

    with detect(tmp_path) as look:
        monkeypatch.setattr(parts, "decoded", failing)
        with pytest.raises(FileFault, match=r"AGENTS.md: input/output error"):
            list(look.parts())


def test_the_same_words_of_two_projects_and_in_private_are_memories_of_their_own(tmp_path: Path) -> None:
    put(tmp_path, "memory-rules/settings.json", "{}")
    for place in ("projects/a/contextual", "projects/b/contextual", "common/technical", "private/keys"):
        put(tmp_path, f"memory/{place}/same.md", "The quay is closed.\n")
    assert sorted(memory.category for memory in found(tmp_path)[0].values()) == [
        *("contextual", "contextual", "keys", "technical")
    ]


@pytest.mark.parametrize("change", ["gone", "pipe", "link"])
def test_a_file_that_is_none_any_more_is_refused_by_name_alone(change: str, tmp_path: Path) -> None:
    place = put(tmp_path, "AGENTS.md", "Say quay.\n")
    with detect(tmp_path) as look:
        place.unlink()
        if change == "pipe":
            os.mkfifo(place)
        elif change == "link":
            place.symlink_to("/etc/hostname")
        with pytest.raises(FileFault, match=r"AGENTS.md") as refused:
            list(look.parts())
    assert "quay" not in str(refused.value)


def test_a_page_of_headings_and_imports_is_no_memory(tmp_path: Path) -> None:
    put(tmp_path, "AGENTS.md", "Say quay.\n")
    put(tmp_path, "docs/a.md", "Say sailing.\n")
    for text in ("# Only\n\n## Headings\n", "@AGENTS.md\n", "# Rules\n@AGENTS.md @docs/a.md\n---\n"):
        put(tmp_path, "CLAUDE.md", text)
        memories, left_out = found(tmp_path)
        assert "CLAUDE.md" not in memories
        assert left_out == {"CLAUDE.md": "has only headings and imports"}


def test_further_systems_are_found(tmp_path: Path) -> None:
    files = {
        ".continue/rules/a.md": "continue",
        ".kiro/steering/product.md": "kiro",
        ".roo/rules-code/a.md": "roo",
        ".roo/rules/a.md": "roo",
        "GEMINI.md": "gemini",
        "web/AGENTS.override.md": "agents-md",
    }
    for path in files:
        put(tmp_path, path, "Say quay.\n")
    put(tmp_path, "modules/memory-rules/settings.json", "{}")
    put(tmp_path, "memory/common/technical/a.md", "Tides.\n")
    with detect(tmp_path) as look:
        found = {source.path: source.system for source in look.sources}
    assert found == files | {"memory/common/technical/a.md": "framework"}


def test_a_file_is_dated_by_the_commit_that_changed_it_last(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    commit(tmp_path, "one", {"web/AGENTS.md": "Say quay.\n", "GEMINI.md": "Tides.\n"}, at=1_704_164_645)
    commit(tmp_path, "two", {"other.py": "1"}, at=1_735_787_045)
    commit(tmp_path, "three", {"GEMINI.md": "Tides turn.\n"}, at=1_767_323_045)
    put(tmp_path, "CLAUDE.md", "Not yet in git.\n")
    os.utime(tmp_path / "CLAUDE.md", (1_700_000_000, 1_700_000_000))
    with detect(tmp_path, repository=tmp_path) as look:
        years = {source.path: source.modified.year for source in look.sources}
    assert years == {"CLAUDE.md": 2023, "GEMINI.md": 2026, "web/AGENTS.md": 2024}
    with detect(tmp_path / "web", repository=tmp_path) as look:
        assert [source.modified.year for source in look.sources] == [2024]


def test_a_file_of_a_merged_branch_is_dated_as_git_log_does(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    commit(tmp_path, "one", {"AGENTS.md": "Say quay.\n", "sub/GEMINI.md": "Tides.\n"}, at=1_704_164_645)
    git(tmp_path, "checkout", "--quiet", "-b", "side")
    commit(tmp_path, "two", {"AGENTS.md": "Say dock.\n"}, at=1_735_787_045)
    git(tmp_path, "checkout", "--quiet", "main")
    commit(tmp_path, "three", {"sub/GEMINI.md": "Tides turn.\n"}, at=1_767_323_045)
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.c", "merge", "--quiet", "--no-ff", "-m", "merge", "side")
    with detect(tmp_path, repository=tmp_path) as look:
        dates = {source.path: str(int(source.modified.timestamp())) for source in look.sources}
    assert dates == {path: git(tmp_path, "log", "-1", "--format=%ct", "--", path).strip() for path in dates}
    assert len(dates) == 2


def test_a_repository_that_cannot_be_read_dates_nothing(tmp_path: Path) -> None:
    put(tmp_path, "AGENTS.md", "Say quay.\n")
    for broken in ("", "gitdir: nowhere\n"):
        put(tmp_path, ".git", broken)
        with detect(tmp_path, repository=tmp_path) as look:
            assert [source.path for source in look.sources] == ["AGENTS.md"]
