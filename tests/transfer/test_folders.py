"""Folders with long, large, linked and strangely named files: which memories are found, and why others are not."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from memory.errors import Invalid
from memory.policy.validation import MAX_CONTENT, checked_tags
from memory.transfer import reading, walk
from memory.transfer.reading import detect
from tests.transfer.folders import Link, found, put, put_all

OUTSIDE = "is a symlink that points outside the folder"
FILE_OUTSIDE = "points to a file outside the folder"
ONLY_HEADINGS = "has only headings and imports"


def words(characters: int, who: str = "ferry") -> str:
    """Sentences on one line, with this number of characters."""
    sentence = f"The {who} to the outer island waits for the tide, and for nobody else. "
    return (sentence * (characters // len(sentence) + 1))[: characters - 1] + "."


@dataclass
class Case:
    files: dict[str, str | bytes]
    keys: list[str]  # of the memories
    left_out: dict[str, str] = field(default_factory=dict)
    systems: tuple[str, ...] = ()
    folder: str = "."


SECTIONS = "\n".join(
    f"## {name}\n\n```\n## code\n```\n\n{words(3_500)}\n" for name in ("Berths", "Fares & x", "Fog", "Fog")
)
FARES = "\n".join(f"### {name}\n\n{words(6_000)}\n" for name in ("Children", "Cars"))
LONG_ENTRIES = [{"id": "a", "memory": words(12_000)}, {"id": "b", "memory": "Short."}]
SETTINGS = "memory-rules/settings.json"
BASE_PATH_OUTSIDE = "sets base_path to a place outside the folder"
ALIKE = "Run this:\n```\nmake{}\n```"
TREE_FOLDERS = ("common/technical", "private/keys", "projects/a/contextual", "projects/b/contextual")

CASES = {
    "texts that are too long for one memory": Case(
        {
            ".cursor/rules/fits.mdc": words(MAX_CONTENT, "gull"),
            ".cursor/rules/long.mdc": f"---\ndescription: Of the desk\n---\n{words(MAX_CONTENT, 'pilot')}",
            ".cursorrules": words(25_000, "boat"),
            ".windsurfrules": "\N{DUCK}" * (MAX_CONTENT + 1),
            "AGENTS.md": f"# Fares\n\n{FARES}\n# Tides\n\nAsk at eleven.\n",
            "CLAUDE.md": f"# Harbour desk\n\nFor everyone at the desk.\n\n{SECTIONS}",
            "mem0.json": json.dumps({"results": LONG_ENTRIES}),
        },
        [
            *(".cursor/rules/fits.mdc", ".cursor/rules/long.mdc", ".cursor/rules/long.mdc#2"),
            *(".cursorrules", ".cursorrules#2", ".cursorrules#3", ".windsurfrules", ".windsurfrules#2"),
            *("AGENTS.md#fares", "AGENTS.md#cars"),
            *("CLAUDE.md#harbour-desk", "CLAUDE.md#fares-x", "CLAUDE.md#fog", "CLAUDE.md#fog-2"),
            *("mem0.json#a", "mem0.json#a-2", "mem0.json#b"),
        ],
    ),
    "plain JSON": Case(
        {
            "a.json": json.dumps({"text": words(12_000)}),
            "b.json": json.dumps([{"id": "x", "text": words(12_000, "boat")}]),
            "c.json": "{}",
            "d.json": '{"a": "\\ud83d"}',
            "e.json": "[" * 100_000,
        },
        ["a.json", "a.json#2", "b.json#x", "b.json#x-2"],
        {"c.json": "is empty", "d.json": "contains an incomplete character", "e.json": "is not valid JSON"},
        ("plain",),
    ),
    "large, deep and binary files, and symlinks": Case(
        {
            ".cursor/rules/again": Link("."),
            ".cursor/rules/quays.mdc": "A quay.\n",
            "AGENTS.md": "x" * (10 * 2**20 + 1),
            "CLAUDE.md": Link("CLAUDE.md"),
            "a/AGENTS.md/README.md": "A page.\n",
            "b/.cursor/rules": Link("../shared"),
            "b/docs": Link("shared"),
            "b/shared/a.mdc": "A rule.\n",
            "binary/AGENTS.md": b"\x00\x01quay\x00",
            "binary/CLAUDE.md": bytes(range(128, 256)),
            "c/.claude/skills": Link("/usr"),
            "quay/" * 100 + "AGENTS.md": "Far.\n",
            "quay/CLAUDE.md": Link("quay/" * 99 + "AGENTS.md"),
        },
        [".cursor/rules/quays.mdc", "quay/" * 100 + "AGENTS.md"],
        {
            ".cursor/rules/again": "is a symlink to .cursor/rules",
            "AGENTS.md": "is too large",
            "CLAUDE.md": "is a symlink whose target is missing or skipped",
            "a/AGENTS.md": "is not a file",
            "b/.cursor/rules": "is a symlink to b/shared",
            "binary/AGENTS.md": "contains a NUL character",
            "binary/CLAUDE.md": "is not UTF-8 text",
            "quay/CLAUDE.md": f"is a symlink to {'quay/' * 100}AGENTS.md",
        },
    ),
    "symlinks and imports that lead out of the folder": Case(
        {
            "out/secret.md": "Of somebody else.\n",
            "out/rules/secret.mdc": "Of somebody else, too.\n",
            "in/.cursor/rules": Link("../../out/rules"),
            "in/AGENTS.md": Link("../out/secret.md"),
            "in/CLAUDE.md": "See @docs/secret.md @one.md\n",
            "in/docs": Link("../out"),
            "in/one.md": Link("CLAUDE.md"),
        },
        ["CLAUDE.md"],
        {".cursor/rules": OUTSIDE, "AGENTS.md": OUTSIDE, "CLAUDE.md#@docs/secret.md": FILE_OUTSIDE},
        folder="in",
    ),
    "imports": Case(
        {
            ".cursor/rules/a.md": "Rule A.\n",
            "CLAUDE.md": '@docs/a.md, @"docs/q.md" x@docs/q.md @Makefile @nobody `@docs/q.md` '
            "``@docs/q.md ` @docs/q.md``\n"
            "@docs/b\\ c.md (see @docs/a.md) @/etc/hostname @../x.md\n~~~\n@docs/q.md\n~~~\n` @types/node @.\n",
            "Makefile": "C.\n",
            "chain/CLAUDE.md": "@1.md\n",
            **{f"chain/{n}.md": f"Link {n}.\n@{n + 1}.md\n" for n in range(1, 7)},
            "docs/a.md": "A.\n",
            "docs/b c.md": "B.\n",
            "sub/CLAUDE.md": "See @../.cursor/rules/a.md\n",
        },
        [
            *(".cursor/rules/a.md", "CLAUDE.md", "Makefile", "chain/1.md", "chain/2.md", "chain/3.md", "chain/4.md"),
            *("docs/a.md", "docs/b c.md", "sub/CLAUDE.md"),
        ],
        {
            "CLAUDE.md#@/etc/hostname": FILE_OUTSIDE,
            "CLAUDE.md#@../x.md": FILE_OUTSIDE,
            "CLAUDE.md#@types/node": "points to a missing file",
            "chain/CLAUDE.md": ONLY_HEADINGS,
            "chain/4.md#@5.md": "is more than four imports away",
        },
    ),
    "settings of the framework": Case(
        {
            f"a/{SETTINGS}": '{"storage": {"base_path": "./notes"}}',
            "a/notes/common/technical/a.md": "Tides.\n",
            f"b/{SETTINGS}": '{"storage": {"base_path": "../../other"}}',
            f"c/{SETTINGS}": '{"storage": {"base_path": "/etc"}}',
            f"d/{SETTINGS}": "{",
        },
        ["a/notes/common/technical/a.md"],
        {
            f"b/{SETTINGS}": BASE_PATH_OUTSIDE,
            f"c/{SETTINGS}": BASE_PATH_OUTSIDE,
            f"d/{SETTINGS}": "is not valid JSON, so the folder of its memories is unknown",
        },
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
    "a tool's folder with settings": Case(
        {".claude/settings.json": '{"results": [{"id": "1", "memory": "x"}]}'}, [], folder=".claude"
    ),
    "files of named systems": Case(
        {
            "AGENTS.md": "A.\n",
            "CLAUDE.md": "B.\n",
            "README.md": "# Quay\n",
            "a.json": '{"results": [{"id": "1", "memory": "Of mem0."}]}',
            "b.json": '[{"id": "1", "text": "Of Letta.", "archive_id": "x"}]',
        },
        ["CLAUDE.md", "a.json#1", "b.json#1"],
        dict.fromkeys(("AGENTS.md", "README.md"), "is not an axe log"),
        ("letta", "mem0", "claude", "axe"),
    ),
    "the same text": Case(
        {
            "AGENTS.md": ALIKE.format("").replace("\n```\n", "\n\n```sh\n", 1),
            "CLAUDE.md": ALIKE.format(""),
            "GEMINI.md": ALIKE.format(" test"),
            **dict.fromkeys(("a/AGENTS.md", "a/CLAUDE.md"), f"# A\n\n{'word ' * 1_500}\n# B\n\n{'word ' * 1_500}"),
            "link/CLAUDE.md": Link("../AGENTS.md"),
            SETTINGS: "{}",
            **{f"memory/{folder}/same.md": "The quay is closed.\n" for folder in TREE_FOLDERS},
        },
        [
            *("AGENTS.md", "GEMINI.md", "a/AGENTS.md#a", "a/AGENTS.md#b"),
            *(f"memory/{folder}/same.md" for folder in TREE_FOLDERS),
        ],
        {
            "CLAUDE.md": "has the same text as AGENTS.md",
            **{f"a/CLAUDE.md#{slug}": f"has the same text as a/AGENTS.md#{slug}" for slug in "ab"},
            "link/CLAUDE.md": "is a symlink to AGENTS.md",
        },
    ),
    "pages with headings and imports alone": Case(
        {
            "AGENTS.md": "Say quay.\n",
            "a/CLAUDE.md": "# Only\n\n## Headings\n",
            "b/CLAUDE.md": "@../AGENTS.md\n",
            "CLAUDE.md": "# Rules\n@AGENTS.md\n---\n",
        },
        ["AGENTS.md"],
        dict.fromkeys(("a/CLAUDE.md", "b/CLAUDE.md", "CLAUDE.md"), ONLY_HEADINGS),
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


TOOL_FOLDERS: dict[str, tuple[str, tuple[str, ...]]] = {
    ".claude": ("CLAUDE.md", ("local",)),
    ".copilot": ("copilot-instructions.md", ("local",)),
    ".codeium": ("windsurf/memories/global_rules.md", ("local",)),
    "Documents/Cline/Rules": ("a.md", ("local",)),
    "project/.cursor": ("rules/a.mdc", ()),
}


def test_a_tools_own_folder_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder, (path, tags) in TOOL_FOLDERS.items():
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
