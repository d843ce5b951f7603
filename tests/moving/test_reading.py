"""A folder is looked at, and read: what is found by what, what changed meanwhile, what is said of files twice."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.errors import FileFault, FolderChanged, Invalid
from memory.formats.found import Found
from memory.intake import MAX_TAGS
from memory.moving import imports, pages, walk
from memory.moving.reading import Item, looked_at
from memory.moving.systems import framework, plain
from tests.moving.test_systems import read


def put(folder: Path, path: str, text: str) -> Path:
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, "utf-8", newline="")
    return place


def found(
    folder: Path, systems: tuple[str, ...] = (), plain: tuple[str, ...] = ()
) -> tuple[dict[str, Found], dict[str, str]]:
    with looked_at(folder, systems, plain) as look:
        memories, left_out = read(look)
    return {memory.key: memory for memory in memories}, left_out


# --- what is looked at


def test_sources_are_told_before_anything_is_read(tmp_path: Path) -> None:
    place = put(tmp_path, "AGENTS.md", "Say quay.\n")
    os.utime(place, (1_700_000_000, 1_700_000_000))
    put(tmp_path, ".cursorrules", "Say sailing.\n")
    with looked_at(tmp_path) as look:
        assert [(source.system, source.path, source.size) for source in look.sources] == [
            ("cursor", ".cursorrules", 13),
            ("agents-md", "AGENTS.md", 10),
        ]
        assert look.sources[1].modified == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        items = list(look.parts())
        assert [(item.system, item.path) for item in items] == [("cursor", ".cursorrules"), ("agents-md", "AGENTS.md")]
        assert items[1].modified == look.sources[1].modified
        assert list(map(_said, look.parts())) == list(map(_said, items)), "as often as is wanted"


def _said(item: Item) -> object:
    return (item.part.key, item.part.content) if isinstance(item.part, Found) else item.part


def test_a_systems_name_leaves_the_others_alone(tmp_path: Path) -> None:
    put(tmp_path, "AGENTS.md", "A.\n")
    put(tmp_path, "CLAUDE.md", "B.\n")
    assert list(found(tmp_path, ("claude",))[0]) == ["CLAUDE.md"]
    with pytest.raises(Invalid), looked_at(tmp_path, ("clod",)):
        pass


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path / "none", put(tmp_path, "file", "x")):
        with pytest.raises(FileFault), looked_at(place):
            pass


def test_ordinary_files_are_nobodys(tmp_path: Path) -> None:
    put(tmp_path, "package.json", '{"name": "quay", "dependencies": {"memory": "1"}, "results": []}')
    put(tmp_path, "tsconfig.json", "{} // no JSON")
    put(tmp_path, "README.md", "# Quay\n\n## 2026\nSay **Task:** twice.\n")
    put(tmp_path, "bench.json", '{"results": [{"memory": "16 GB", "seconds": 1}]}')
    put(tmp_path, "rows.jsonl", '{"content": "x"}\n')
    put(tmp_path, ".cursor/mcp.json", '{"results": [{"id": "1", "memory": "x"}]}')
    assert found(tmp_path) == ({}, {})


def test_a_file_of_one_systems_form_is_not_anothers(tmp_path: Path) -> None:
    put(tmp_path, "a.json", '{"results": [{"id": "1", "memory": "Of mem0."}]}')
    put(tmp_path, "b.json", '[{"id": "1", "text": "Of Letta.", "archive_id": "x"}]')
    memories, left_out = found(tmp_path, ("letta", "mem0"))
    assert (list(memories), left_out) == (["a.json#1", "b.json#1"], {})


def test_a_readme_is_no_log_even_where_logs_are_asked_for(tmp_path: Path) -> None:
    put(tmp_path, "README.md", "# Quay\n\n## Install\n\nCall Ines.\n")
    assert found(tmp_path, ("axe",)) == ({}, {"README.md": "is no log of axe"})


@pytest.mark.parametrize("folder", ["node_modules", "vendor", ".venv", ".git"])
def test_what_is_somebody_elses_is_not_entered(folder: str, tmp_path: Path) -> None:
    put(tmp_path, f"{folder}/AGENTS.md", "Of somebody else.\n")
    put(tmp_path, "env/pyvenv.cfg", "")
    put(tmp_path, "env/lib/AGENTS.md", "Of somebody else.\n")
    assert found(tmp_path) == ({}, {})
    assert list(found(tmp_path / folder)[0]) == ["AGENTS.md"]


def test_entries_are_bounded_and_what_is_near_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MOST", 6)
    for n in range(9):
        put(tmp_path, f"data/{n}.bin", "")
    put(tmp_path, "service/AGENTS.md", "Near.\n")
    put(tmp_path, "data/deep/AGENTS.md", "Far.\n")
    memories, left_out = found(tmp_path)
    assert left_out == {".": "holds more than 6 entries; the rest is not looked at"}
    assert "data/deep/AGENTS.md" not in memories


def test_folders_are_entered_to_a_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "DEEPEST", 2)
    put(tmp_path, "a/b/c/AGENTS.md", "Deep.\n")
    assert found(tmp_path) == ({}, {"a/b": "lies 2 folders deep"})


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
    for name in ("CLAUDE.md", "AGENTS.md"):
        (tmp_path / name).symlink_to("docs/rules.md")
    memories, left_out = found(tmp_path)
    assert list(memories) == ["docs/rules.md"]
    assert left_out == dict.fromkeys(("CLAUDE.md", "AGENTS.md"), "is a link to docs/rules.md")


def test_a_folder_that_is_a_link_is_told_where_rules_would_be(tmp_path: Path) -> None:
    put(tmp_path, "shared/a.mdc", "A rule.\n")
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor/rules").symlink_to("../shared")
    (tmp_path / "docs").symlink_to("shared")
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/skills").symlink_to("/usr")
    assert found(tmp_path) == ({}, {".cursor/rules": "is a link to shared"})


def test_a_link_put_there_between_look_and_read_leads_nowhere(tmp_path: Path) -> None:
    put(tmp_path / "out", "rules/a.mdc", "Of somebody else.\n")
    for swapped in (".cursor/rules/a.mdc", ".cursor/rules", ".cursor"):
        shutil.rmtree(tmp_path / "in", ignore_errors=True)
        put(tmp_path / "in", ".cursor/rules/a.mdc", "A rule that is ours.\n")
        with looked_at(tmp_path / "in") as look:
            (tmp_path / "in" / swapped).rename(tmp_path / "in/was")
            (tmp_path / "in" / swapped).symlink_to(tmp_path / "out" / swapped.removeprefix(".cursor").removeprefix("/"))
            with pytest.raises(FolderChanged):
                list(look.parts())


@pytest.mark.parametrize("change", ["longer", "other", "gone", "pipe"])
def test_a_file_that_changed_is_refused_by_name_alone(change: str, tmp_path: Path) -> None:
    place = put(tmp_path, "AGENTS.md", "Say quay.\n")
    with looked_at(tmp_path) as look:
        assert len(list(look.parts())) == 1
        if change == "longer":
            place.write_text("Say quay, never dock.\n", "utf-8")
        else:
            place.unlink()
            if change == "other":
                place.write_text("Say dock.\n", "utf-8")
            elif change == "pipe":
                os.mkfifo(place)
        with pytest.raises(FolderChanged) as told:
            list(look.parts())
    assert "AGENTS.md" in str(told.value)
    assert "quay" not in str(told.value)


# --- the same text


def test_one_text_in_three_systems_has_the_tags_of_all(tmp_path: Path) -> None:
    put(tmp_path, ".cursor/rules/a.mdc", "---\nglobs: a/**\n---\nOne text.\n")
    put(tmp_path, ".windsurf/rules/b.md", "---\nglobs: b/**\n---\nOne text.\n")
    put(tmp_path, "CLAUDE.local.md", "\r\nOne text.\r\n")
    memories, left_out = found(tmp_path)
    assert list(memories) == [".cursor/rules/a.mdc"]
    assert memories[".cursor/rules/a.mdc"].tags == ("glob:a/**", "glob:b/**", "local")
    says = "says the same as .cursor/rules/a.mdc"
    assert left_out == {".windsurf/rules/b.md": says, "CLAUDE.local.md": says}


def test_a_long_text_twice_is_the_same_part_by_part(tmp_path: Path) -> None:
    text = "# A\n\n" + "word " * 1_500 + "\n# B\n\n" + "word " * 1_500
    put(tmp_path, "AGENTS.md", text)
    put(tmp_path, "CLAUDE.md", text)
    memories, left_out = found(tmp_path)
    assert list(memories) == ["AGENTS.md#a", "AGENTS.md#b"]
    assert left_out == {f"CLAUDE.md#{slug}": f"says the same as AGENTS.md#{slug}" for slug in "ab"}


def test_tags_of_many_are_bounded(tmp_path: Path) -> None:
    for n in range(3):
        globs = "".join(f"- {n}/{each}\n" for each in range(100))
        put(tmp_path, f".cursor/rules/{n}.mdc", f"---\nglobs:\n{globs}---\nOne text.\n")
    memory = found(tmp_path)[0][".cursor/rules/0.mdc"]
    assert len(memory.tags) == MAX_TAGS
    assert "not kept: 44 tags" in memory.transformed


def test_many_memories_are_not_held(tmp_path: Path) -> None:
    with (tmp_path / "mem0.json").open("w", encoding="utf-8") as file:
        file.write('{"results": [')
        for n in range(5_000):
            file.write(f'{"," if n else ""}{{"id": "m{n}", "memory": "{n} {"quay " * 400}"}}')
        file.write("]}")
    tracemalloc.start()
    try:
        with looked_at(tmp_path) as look:
            assert sum(1 for _ in look.parts()) == 5_000
        assert tracemalloc.get_traced_memory()[1] < 5 * 2**20 < (tmp_path / "mem0.json").stat().st_size
    finally:
        tracemalloc.stop()


def test_nothing_of_what_is_read_is_shown(tmp_path: Path) -> None:
    put(tmp_path, "AGENTS.md", "Quay seven.\n")
    with looked_at(tmp_path) as look:
        assert "seven" not in repr([look, list(look.parts())])


# --- what a file takes in


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
        "CLAUDE.md#@/etc/hostname": "imported file lies outside the folder",
        "CLAUDE.md#@../x.md": "imported file lies outside the folder",
        "CLAUDE.md#@types/node": "imported file is missing",
    }


def test_an_import_by_a_link_that_leads_out_is_told(tmp_path: Path) -> None:
    put(tmp_path / "out", "secret.md", "Of somebody else.\n")
    put(tmp_path / "in", "CLAUDE.md", "@docs/secret.md @one.md\n")
    (tmp_path / "in/docs").symlink_to(tmp_path / "out")
    (tmp_path / "in/one.md").symlink_to("CLAUDE.md")
    memories, left_out = found(tmp_path / "in")
    assert list(memories) == ["CLAUDE.md"]
    assert left_out == {
        "CLAUDE.md#@docs/secret.md": "imported file lies outside the folder",
        "CLAUDE.md#@one.md": "import cycle",
    }


def test_two_that_import_each_other_close_one_circle(tmp_path: Path) -> None:
    put(tmp_path, "CLAUDE.md", "@a.md @b.md\n")
    put(tmp_path, "a.md", "A: @b.md\n")
    put(tmp_path, "b.md", "B: @a.md\n")
    memories, left_out = found(tmp_path)
    assert memories["a.md"].tags == ("imported-by:CLAUDE.md",)
    assert memories["b.md"].tags == ("imported-by:a.md", "imported-by:CLAUDE.md")
    assert left_out == {"b.md#@a.md": "import cycle"}


def test_imports_of_a_file_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MOST", 2)
    put(tmp_path, "CLAUDE.md", "@a.md @b.md @c.md @d.md\n")
    assert found(tmp_path)[1] == {
        "CLAUDE.md#@a.md": "imported file is missing",
        "CLAUDE.md#@b.md": "imported file is missing",
        "CLAUDE.md#@": "has more than 2 imports; the rest is not looked at",
    }


def test_imports_of_a_folder_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MOST_IN_ALL", 3)
    for name in "abcde":
        put(tmp_path, f"{name}/CLAUDE.md", f"{name}: @one.md @two.md\n")
    left_out = found(tmp_path)[1]
    assert [key for key, why in left_out.items() if why == "imported file is missing"] == [
        "a/CLAUDE.md#@one.md",
        "a/CLAUDE.md#@two.md",
        "b/CLAUDE.md#@one.md",
    ]
    assert left_out["c/CLAUDE.md#@"] == "follows 3 imports; the rest is not looked at"


def test_settings_of_tools_are_not_opened(tmp_path: Path) -> None:
    put(tmp_path / ".claude", "settings.json", '{"results": [{"id": "1", "memory": "x"}]}')
    assert found(tmp_path / ".claude") == ({}, {})


def test_trees_of_a_folder_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "_MOST", 1)
    for name in "ab":
        put(tmp_path, f"{name}/memory-rules/settings.json", "{}")
        put(tmp_path, f"{name}/memory/common/technical/{name}.md", name)
    memories, left_out = found(tmp_path)
    assert list(memories) == ["a/memory/common/technical/a.md"]
    assert left_out == {"b/memory-rules/settings.json": "is one of more than 1 settings"}


def test_a_disk_that_fails_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "AGENTS.md", "Say quay.\n")

    def failing(*_: object) -> object:
        raise OSError(5, "Input/output error")

    with looked_at(tmp_path) as look:
        monkeypatch.setattr(pages, "page", failing)
        with pytest.raises(FileFault, match=r"AGENTS.md: input/output error"):
            list(look.parts())


def test_the_tag_of_a_far_importer_is_told_and_not_kept(tmp_path: Path) -> None:
    far = "quays/" * 12 + "CLAUDE.md"
    put(tmp_path, far, "Tides: @tides.md\n")
    put(tmp_path, "quays/" * 12 + "tides.md", "T.\n")
    memory = found(tmp_path)[0]["quays/" * 12 + "tides.md"]
    assert (memory.tags, memory.transformed) == ((), (f"imported-by of {12 + len(far)} characters not kept",))


# --- folders that are a tool's own


@pytest.mark.parametrize(
    ("folder", "path", "tags"),
    [
        (".claude", "CLAUDE.md", ("local",)),
        (".claude", "rules/a.md", ("local",)),
        (".claude", "projects/-quay/memory/MEMORY.md", ("local",)),
        (".copilot", "copilot-instructions.md", ("local",)),
        (".copilot", "instructions/a.instructions.md", ("local",)),
        (".codeium", "windsurf/memories/global_rules.md", ("local",)),
        ("Documents/Cline/Rules", "a.md", ("local",)),
        ("project/.cursor", "rules/a.mdc", ()),
        ("project/.claude", "rules/a.md", ()),
    ],
)
def test_a_tools_own_folder_is_read_where_it_is_given(
    folder: str, path: str, tags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / folder, path, "Mine.\n")
    memories, left_out = found(tmp_path / folder)
    assert ({key: memory.tags for key, memory in memories.items()}, left_out) == ({path: tags}, {})


def test_a_memory_tools_folder_may_have_any_name(tmp_path: Path) -> None:
    put(tmp_path, "kept/a.py", "Any text.\n")
    put(tmp_path, "kept/.hidden/b.md", "Not shown.\n")
    assert found(tmp_path / "kept") == ({}, {})
    assert list(found(tmp_path / "kept", ("memory-tool",))[0]) == ["a.py"]


# --- the framework


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ('{"storage": {"base_path": "./notes"}}', ""),
        ('{"storage": {"base_path": "../other"}}', "names a base_path outside the folder"),
        ('{"storage": {"base_path": "/etc"}}', "names a base_path outside the folder"),
        ("{", "is not JSON, so that nobody knows where memories are"),
    ],
)
def test_settings_lead_to_a_tree_in_the_folder(settings: str, why: str, tmp_path: Path) -> None:
    put(tmp_path, "memory-rules/settings.json", settings)
    put(tmp_path, "notes/common/technical/a.md", "Tides.\n")
    memories, left_out = found(tmp_path)
    assert list(memories) == ([] if why else ["notes/common/technical/a.md"])
    assert left_out == ({"memory-rules/settings.json": why} if why else {})


@pytest.mark.parametrize("folder", ["", "memory/"])
def test_a_tree_without_settings_is_read_where_it_is_named(folder: str, tmp_path: Path) -> None:
    put(tmp_path, f"{folder}projects/quay/topics/a.md", "Tides.\n")
    put(tmp_path, "README.md", "Not of the tree.\n")
    assert found(tmp_path)[0] == {}
    [memory] = found(tmp_path, ("framework",))[0].values()
    assert (memory.category, memory.project) == ("topic", "quay")


# --- plain


def test_a_folder_that_is_plain_is_one_below(tmp_path: Path) -> None:
    put(tmp_path, "notes/a.md", "A.\n")
    (tmp_path / "link").symlink_to("notes")
    for folder in ("none", "notes/a.md", "link", "..", "../x"):
        with pytest.raises(Invalid), looked_at(tmp_path, (), (folder,)):
            pass
    assert list(found(tmp_path, (), ("./notes/",))[0]) == ["notes/a.md"]
    assert list(found(tmp_path, ("plain",))[0]) == ["notes/a.md"]


def test_a_systems_own_files_are_its_own_in_a_plain_folder(tmp_path: Path) -> None:
    put(tmp_path, "AGENTS.md", "A.\n")
    put(tmp_path, "b.md", "B.\n")
    with looked_at(tmp_path, (), (".",)) as look:
        assert {source.path: source.system for source in look.sources} == {"AGENTS.md": "agents-md", "b.md": "plain"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "is empty"),
        ("", "is empty"),
        ("7", "is no object and no text"),
        ('{"text": 7}', "has no text"),
        ('{"a": "\\ud83d"}', "holds half a character"),
        ("[" * 100_000, "is not JSON"),
        ('{"a": ' + "7" * 5_000 + "}", "is not JSON"),
        ('{"a": ' + '{"a": ' * 400 + "1" + "}" * 401, None),
    ],
)
def test_json_of_any_kind_is_held_or_told(text: str, told: str | None, tmp_path: Path) -> None:
    put(tmp_path, "a.json", text)
    memories, left_out = found(tmp_path, ("plain",))
    assert left_out == ({"a.json": told} if told else {}) or left_out == {"a.json": "is nested too deeply"}
    assert not told or not memories


def test_a_long_page_and_a_long_entry_are_numbered_each_in_its_way(tmp_path: Path) -> None:
    words = "word " * 2_500
    put(tmp_path, "a.json", f'{{"text": "{words}"}}')
    put(tmp_path, "b.json", f'[{{"id": "x", "text": "b {words}"}}]')
    assert list(found(tmp_path, ("plain",))[0]) == ["a.json", "a.json#2", "b.json#x", "b.json#x-2"]


def test_too_large_json_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "LARGEST", 10)
    put(tmp_path, "a.json", '{"text": "longer"}')
    assert found(tmp_path, ("plain",))[1] == {"a.json": "is too large"}


def test_left_out_is_told_once(tmp_path: Path) -> None:
    put(tmp_path, ".cursor/rules/a.md", "A.\n")
    put(tmp_path, "CLAUDE.md", "@.cursor/rules/a.md\n")
    memories, left_out = found(tmp_path)
    assert (list(memories), left_out) == ([".cursor/rules/a.md", "CLAUDE.md"], {})


def test_the_same_words_of_two_projects_and_in_private_are_memories_of_their_own(tmp_path: Path) -> None:
    places = ("projects/a/contextual", "projects/b/contextual", "common/technical", "private/keys")
    for place in places:
        (tmp_path / "memory" / place).mkdir(parents=True)
        (tmp_path / "memory" / place / "same.md").write_text("The quay is closed.\n")
    (tmp_path / "memory-rules").mkdir()
    (tmp_path / "memory-rules" / "settings.json").write_text("{}")
    with looked_at(tmp_path) as look:
        found = [item.part.category for item in look.parts() if isinstance(item.part, Found)]
    assert sorted(found) == ["contextual", "contextual", "keys", "technical"]


def test_a_page_that_shows_what_a_log_looks_like_is_none(tmp_path: Path) -> None:
    entry = "## 2026-01-05T08:00:00Z\n**Task:** Count\n**Result:** Three\n"
    (tmp_path / "fenced.md").write_text(f"Logs:\n\n```\n{entry}```\n")
    (tmp_path / "guide.md").write_text(f"# Logs\n\n## Intro\n\nSo:\n\n## How\n\nLike this.\n\n{entry}\n## More\n")
    (tmp_path / "log.md").write_text(entry * 3)
    with looked_at(tmp_path) as look:
        assert [source.path for source in look.sources] == ["log.md"]
