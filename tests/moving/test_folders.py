"""Folders with long, large, linked and strangely named files: which memories are found, and why others are not."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from memory.errors import Invalid
from memory.policy.validation import MAX_CONTENT, checked_tags
from memory.transfer import reading, walk
from memory.transfer.reading import detect
from tests.moving.looking import Link, found, put, put_all

SENTENCE = "The ferry to the outer island waits for the tide, and for nobody else. "
OUTSIDE = "is a symlink that points outside the folder"


def words(characters: int) -> str:
    """Sentences on one line, with this number of characters."""
    return (SENTENCE * (characters // len(SENTENCE) + 1))[: characters - 1] + "."


@dataclass
class Case:
    files: dict[str, str | bytes]
    keys: list[str]  # of the memories
    left_out: dict[str, str] = field(default_factory=dict)
    systems: tuple[str, ...] = ()
    folder: str = "."


SECTIONS = ("Berths", "Fares & refunds", "Winter", "Winter")
LONG_ENTRY = {"results": [{"id": "a", "memory": words(12_000)}, {"id": "b", "memory": "Short."}]}
LONG_WORDS = "word " * 2_500
SETTINGS = "memory-rules/settings.json"
BASE_PATH_OUTSIDE = {SETTINGS: "sets base_path to a place outside the folder"}

CASES = {
    # Texts that are too long for one memory.
    "a long page is split at headings, but not in code": Case(
        {
            "CLAUDE.md": "# Harbour desk\n\nFor everyone at the desk.\n\n"
            + "\n".join(f"## {name}\n\n```\n## no heading\n```\n\n{words(3_500)}\n" for name in SECTIONS)
        },
        [f"CLAUDE.md#{slug}" for slug in ("harbour-desk", "fares-refunds", "winter", "winter-2")],
    ),
    "a long section is split at the next level": Case(
        {
            "AGENTS.md": f"# Fares\n\n### Children\n\n{words(6_000)}\n\n### Cars\n\n{words(6_000)}\n"
            "\n# Tides\n\nAsk at eleven.\n"
        },
        ["AGENTS.md#fares", "AGENTS.md#cars"],
    ),
    "a text without headings is numbered": Case(
        {".cursorrules": words(25_000)}, [".cursorrules", ".cursorrules#2", ".cursorrules#3"]
    ),
    "a word of more than 10,000 characters": Case(
        {".windsurfrules": "\N{DUCK}" * (MAX_CONTENT + 1)}, [".windsurfrules", ".windsurfrules#2"]
    ),
    "a text of the maximum length, and one with a description": Case(
        {
            ".cursor/rules/fits.mdc": words(MAX_CONTENT),
            ".cursor/rules/long.mdc": f"---\ndescription: Of the desk\n---\n{words(MAX_CONTENT)}",
        },
        [".cursor/rules/fits.mdc", ".cursor/rules/long.mdc", ".cursor/rules/long.mdc#2"],
    ),
    "a long entry of an export": Case(
        {"mem0.json": json.dumps(LONG_ENTRY)}, ["mem0.json#a", "mem0.json#a-2", "mem0.json#b"]
    ),
    "long pages and entries of plain JSON": Case(
        {"a.json": json.dumps({"text": LONG_WORDS}), "b.json": json.dumps([{"id": "x", "text": f"b {LONG_WORDS}"}])},
        ["a.json", "a.json#2", "b.json#x", "b.json#x-2"],
        systems=("plain",),
    ),
    "a file of ten megabytes": Case({"AGENTS.md": "x" * (10 * 2**20 + 1)}, [], {"AGENTS.md": "is too large"}),
    "a file in the hundredth folder": Case({"quay/" * 100 + "AGENTS.md": "Far.\n"}, ["quay/" * 100 + "AGENTS.md"]),
    # Bytes, symlinks and names.
    "binary files": Case(
        {"AGENTS.md": b"\x00\x01quay\x00", "CLAUDE.md": bytes(range(128, 256))},
        [],
        {"AGENTS.md": "contains a NUL character", "CLAUDE.md": "is not UTF-8 text"},
    ),
    "a folder with the name of a file": Case({"AGENTS.md/README.md": "A page.\n"}, [], {"AGENTS.md": "is not a file"}),
    "symlinks in a loop": Case(
        {".cursor/rules/quays.mdc": "A quay.\n", ".cursor/rules/again": Link("."), "CLAUDE.md": Link("CLAUDE.md")},
        [".cursor/rules/quays.mdc"],
        {
            "CLAUDE.md": "is a symlink whose target is missing or skipped",
            ".cursor/rules/again": "is a symlink to .cursor/rules",
        },
    ),
    "a symlink to another memory": Case(
        {"AGENTS.md": "One text.\n", "CLAUDE.md": Link("AGENTS.md")},
        ["AGENTS.md"],
        {"CLAUDE.md": "is a symlink to AGENTS.md"},
    ),
    "symlinks that lead out of the folder": Case(
        {
            "out/secret.md": "Of somebody else.\n",
            "out/rules/secret.mdc": "Of somebody else, too.\n",
            "in/.cursor/rules": Link("../../out/rules"),
            "in/CLAUDE.md": Link("../out/secret.md"),
        },
        [],
        {".cursor/rules": OUTSIDE, "CLAUDE.md": OUTSIDE},
        folder="in",
    ),
    "a symlink in the place of rules": Case(
        {
            "shared/a.mdc": "A rule.\n",
            ".cursor/rules": Link("../shared"),
            "docs": Link("shared"),
            ".claude/skills": Link("/usr"),
        },
        [],
        {".cursor/rules": "is a symlink to shared"},
    ),
    # Imports of other pages.
    "imports are paths outside code": Case(
        {
            "docs/a.md": "A.\n",
            "docs/b c.md": "B.\n",
            "Makefile": "C.\n",
            "CLAUDE.md": '@docs/a.md, @"docs/q.md" x@docs/q.md @Makefile @nobody `@docs/q.md` '
            "``@docs/q.md ` @docs/q.md``\n"
            "@docs/b\\ c.md (see @docs/a.md) @/etc/hostname @../x.md\n~~~\n@docs/q.md\n~~~\n` @types/node @.\n",
        },
        ["CLAUDE.md", "Makefile", "docs/a.md", "docs/b c.md"],
        {
            "CLAUDE.md#@/etc/hostname": "points to a file outside the folder",
            "CLAUDE.md#@../x.md": "points to a file outside the folder",
            "CLAUDE.md#@types/node": "points to a missing file",
        },
    ),
    "imports are followed four times": Case(
        {
            "CLAUDE.md": "@chain/1.md\n",
            **{f"chain/{n}.md": f"Link {n}.\n" + (f"@{n + 1}.md\n" if n < 6 else "") for n in range(1, 7)},
        },
        [f"chain/{n}.md" for n in range(1, 5)],
        {"CLAUDE.md": "has only headings and imports", "chain/4.md#@5.md": "is more than four imports away"},
    ),
    "an import through a symlink that leads out": Case(
        {
            "out/secret.md": "Of somebody else.\n",
            "in/CLAUDE.md": "See @docs/secret.md @one.md\n",
            "in/docs": Link("../out"),
            "in/one.md": Link("CLAUDE.md"),
        },
        ["CLAUDE.md"],
        {"CLAUDE.md#@docs/secret.md": "points to a file outside the folder"},
        folder="in",
    ),
    "an import of another memory": Case(
        {".cursor/rules/a.md": "A.\n", "CLAUDE.md": "See @.cursor/rules/a.md\n"}, [".cursor/rules/a.md", "CLAUDE.md"]
    ),
    # The tree of the framework.
    "settings name the folder of a tree": Case(
        {"notes/common/technical/a.md": "Tides.\n", SETTINGS: '{"storage": {"base_path": "./notes"}}'},
        ["notes/common/technical/a.md"],
    ),
    "settings name a relative folder outside": Case(
        {SETTINGS: '{"storage": {"base_path": "../other"}}'}, [], BASE_PATH_OUTSIDE
    ),
    "settings name an absolute folder outside": Case(
        {SETTINGS: '{"storage": {"base_path": "/etc"}}'}, [], BASE_PATH_OUTSIDE
    ),
    "broken settings": Case(
        {SETTINGS: "{"}, [], {SETTINGS: "is not valid JSON, so the folder of its memories is unknown"}
    ),
    # Plain JSON, and files of no system.
    "an empty object": Case({"a.json": "{}"}, [], {"a.json": "is empty"}, ("plain",)),
    "half a character": Case(
        {"a.json": '{"a": "\\ud83d"}'}, [], {"a.json": "contains an incomplete character"}, ("plain",)
    ),
    "a hundred thousand brackets": Case({"a.json": "[" * 100_000}, [], {"a.json": "is not valid JSON"}, ("plain",)),
    "files of two forms": Case(
        {
            "a.json": '{"results": [{"id": "1", "memory": "Of mem0."}]}',
            "b.json": '[{"id": "1", "text": "Of Letta.", "archive_id": "x"}]',
        },
        ["a.json#1", "b.json#1"],
        systems=("letta", "mem0"),
    ),
    "ordinary files of a project": Case(
        {
            "package.json": '{"name": "quay", "dependencies": {"memory": "1"}, "results": []}',
            "tsconfig.json": "{} // no JSON",
            "README.md": "# Quay\n\n## 2026\nSay **Task:** twice.\n",
            "bench.json": '{"results": [{"memory": "16 GB", "seconds": 1}]}',
            "rows.jsonl": '{"content": "x"}\n',
            ".cursor/mcp.json": '{"results": [{"id": "1", "memory": "x"}]}',
            ".claude/settings.json": '{"results": [{"id": "1", "memory": "x"}]}',
        },
        [],
    ),
    "a page that is not a log": Case({"README.md": "# Quay\n"}, [], {"README.md": "is not an axe log"}, ("axe",)),
    "settings of Claude": Case(
        {".claude/settings.json": '{"results": [{"id": "1", "memory": "x"}]}'}, [], folder=".claude"
    ),
    "the files of one system": Case({"AGENTS.md": "A.\n", "CLAUDE.md": "B.\n"}, ["CLAUDE.md"], systems=("claude",)),
    # The same text twice.
    "spaces and the language of code do not make another text": Case(
        {
            "AGENTS.md": "Run this:\n\n```sh\nmake\n```\n",
            "CLAUDE.md": "Run this:\n```\nmake\n```",
            "GEMINI.md": "Run this:\n```\nmake test\n```",
        },
        ["AGENTS.md", "GEMINI.md"],
        {"CLAUDE.md": "has the same text as AGENTS.md"},
    ),
    "a long text twice": Case(
        dict.fromkeys(("AGENTS.md", "CLAUDE.md"), f"# A\n\n{'word ' * 1_500}\n# B\n\n{'word ' * 1_500}"),
        ["AGENTS.md#a", "AGENTS.md#b"],
        {f"CLAUDE.md#{slug}": f"has the same text as AGENTS.md#{slug}" for slug in "ab"},
    ),
    "one text in two projects and in a private folder": Case(
        {
            SETTINGS: "{}",
            **{
                f"memory/{folder}/same.md": "The quay is closed.\n"
                for folder in ("projects/a/contextual", "projects/b/contextual", "common/technical", "private/keys")
            },
        },
        [
            f"memory/{folder}/same.md"
            for folder in ("common/technical", "private/keys", "projects/a/contextual", "projects/b/contextual")
        ],
    ),
    "pages with headings and imports alone": Case(
        {
            "AGENTS.md": "Say quay.\n",
            "a/CLAUDE.md": "# Only\n\n## Headings\n",
            "b/CLAUDE.md": "@../AGENTS.md\n",
            "CLAUDE.md": "# Rules\n@AGENTS.md\n---\n",
        },
        ["AGENTS.md"],
        dict.fromkeys(("a/CLAUDE.md", "b/CLAUDE.md", "CLAUDE.md"), "has only headings and imports"),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_memories_of_a_folder(tmp_path: Path, case: Case) -> None:
    put_all(tmp_path, case.files)
    memories, left_out = found(tmp_path / case.folder, case.systems)
    assert (list(memories), left_out) == (case.keys, case.left_out)
    for memory in memories.values():
        assert 0 < len(memory.content) <= MAX_CONTENT
        assert checked_tags(memory.tags) == memory.tags


def test_an_import_can_be_an_absolute_path(tmp_path: Path) -> None:
    put_all(tmp_path, {"CLAUDE.md": f"See @{tmp_path}/docs/a.md\n", "docs/a.md": "A.\n"})
    assert list(found(tmp_path)[0]) == ["CLAUDE.md", "docs/a.md"]


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "CLAUDE.md")
    assert found(tmp_path) == ({}, {"CLAUDE.md": "is not a file"})


def test_strange_names_of_files(tmp_path: Path) -> None:
    names = ["-rf.mdc", "  spaces  .mdc", "a#b.mdc", "e\N{COMBINING ACUTE ACCENT}.mdc", "q" * 251 + ".mdc"]
    names += ["two\nlines.mdc"]
    rules = tmp_path / ".cursor/rules"
    put_all(rules, {name: f"{n}: A rule.\n" for n, name in enumerate(names)})
    Path(os.fsdecode(os.fsencode(rules) + b"/\xff.mdc")).write_text("A rule.\n")
    memories, left_out = found(tmp_path)
    assert list(memories) == sorted(f".cursor/rules/{name}" for name in names)
    assert left_out == {".cursor/rules/\N{REPLACEMENT CHARACTER}.mdc": "has a name that is not valid text"}


# --- limits


def test_tags_above_the_limit_are_counted(tmp_path: Path) -> None:
    globs = "".join(f"  - quays/{n}/**\n" for n in range(300))
    put(tmp_path, ".cursor/rules/many.mdc", f"---\nglobs:\n{globs}---\nA rule for every quay.\n")
    [memory] = found(tmp_path)[0].values()
    assert (len(memory.tags), memory.tags[0]) == (256, "glob:quays/0/**")
    assert "not kept: 44 tags" in memory.transformed


def test_limits_of_imports_trees_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MAX_IMPORTS", 2)
    put(tmp_path / "imports", "CLAUDE.md", "See @a.md @b.md @c.md @d.md\n")
    assert found(tmp_path / "imports")[1] == {
        "CLAUDE.md#@a.md": "points to a missing file",
        "CLAUDE.md#@b.md": "points to a missing file",
        "CLAUDE.md#@": "has more than 2 imports; the others are skipped",
    }
    monkeypatch.setattr("memory.transfer.systems._MAX_TREES", 1)
    for name in "ab":
        put(tmp_path / "trees", f"{name}/{SETTINGS}", "{}")
        put(tmp_path / "trees", f"{name}/memory/common/technical/{name}.md", name)
    memories, left_out = found(tmp_path / "trees")
    assert list(memories) == ["a/memory/common/technical/a.md"]
    assert left_out == {f"b/{SETTINGS}": "exceeds the limit of 1 settings files"}
    put(tmp_path / "json", "a.json", '{"a": ' + '{"a": ' * 400 + "1" + "}" * 401)
    assert found(tmp_path / "json", ("plain",))[1] in ({}, {"a.json": "is nested too deeply"})
    monkeypatch.setattr(reading, "LARGEST", 10)
    assert found(tmp_path / "json", ("plain",))[1] == {"a.json": "is too large"}


def test_limits_of_entries_and_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files near the top are found first."""
    put_all(tmp_path, {f"data/{n}.bin": "" for n in range(9)})
    put_all(tmp_path, {"service/AGENTS.md": "Near.\n", "data/deep/a/AGENTS.md": "Far.\n"})
    monkeypatch.setattr(walk, "MAX_DEPTH", 2)
    assert found(tmp_path)[1] == {"data/deep": "is nested too deeply (2 folders)"}
    monkeypatch.setattr(walk, "MAX_ENTRIES", 6)
    memories, left_out = found(tmp_path)
    assert left_out == {".": "has more than 6 entries; the others are skipped"}
    assert "data/deep/a/AGENTS.md" not in memories


# --- folders of tools, and plain folders


@pytest.mark.parametrize(
    ("folder", "path", "tags"),
    [
        (".claude", "CLAUDE.md", ("local",)),
        (".copilot", "copilot-instructions.md", ("local",)),
        (".codeium", "windsurf/memories/global_rules.md", ("local",)),
        ("Documents/Cline/Rules", "a.md", ("local",)),
        ("project/.cursor", "rules/a.mdc", ()),
    ],
)
def test_a_tools_own_folder_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, path: str, tags: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / folder, path, "Mine.\n")
    memories, left_out = found(tmp_path / folder)
    assert ({key: memory.tags for key, memory in memories.items()}, left_out) == ({path: tags}, {})


def test_a_folder_of_any_name_is_read_for_a_named_system(tmp_path: Path) -> None:
    put_all(tmp_path, {"kept/a.py": "Any text.\n", "kept/.hidden/b.md": "Hidden.\n"})
    assert found(tmp_path / "kept") == ({}, {})
    assert list(found(tmp_path / "kept", ("memory-tool",))[0]) == ["a.py"]
    for root in ("one", "two/memory"):
        folder = tmp_path / root.partition("/")[0]
        put_all(
            tmp_path, {f"{root}/projects/quay/topics/a.md": "Tides.\n", f"{folder.name}/README.md": "Not a memory.\n"}
        )
        assert found(folder)[0] == {}
        [memory] = found(folder, ("framework",))[0].values()
        assert (memory.category, memory.project) == ("topic", "quay")


def test_a_plain_folder_is_inside_the_folder(tmp_path: Path) -> None:
    put_all(tmp_path, {"notes/a.md": "A.\n", "link": Link("notes")})
    for folder in ("none", "notes/a.md", "link", "..", "../x"):
        with pytest.raises(Invalid), detect(tmp_path, (), (folder,)):
            pass
    assert list(found(tmp_path, (), ("./notes/",))[0]) == ["notes/a.md"]
    assert list(found(tmp_path, ("plain",))[0]) == ["notes/a.md"]


def test_a_plain_folder_can_contain_files_of_systems(tmp_path: Path) -> None:
    put_all(tmp_path, {"AGENTS.md": "A.\n", "b.md": "B.\n"})
    with detect(tmp_path, (), (".",)) as look:
        assert {source.path: source.system for source in look.sources} == {"AGENTS.md": "agents-md", "b.md": "plain"}


def test_an_example_of_a_log_in_a_page_is_not_a_log(tmp_path: Path) -> None:
    entry = "## 2026-01-05T08:00:00Z\n**Task:** Count\n**Result:** Three\n"
    guide = f"# Logs\n\n## Intro\n\nSo:\n\n## How\n\nLike this.\n\n{entry}\n## More\n"
    put_all(tmp_path, {"fenced.md": f"Logs:\n\n```\n{entry}```\n", "guide.md": guide, "log.md": entry * 3})
    with detect(tmp_path) as look:
        assert [source.path for source in look.sources] == ["log.md"]
