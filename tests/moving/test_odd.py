"""What git cannot hold, or should not: links, pipes, what is too long, too large, or oddly named."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from memory.policy.validation import MAX_CONTENT, checked_tags
from memory.transfer.formats.parts import Found
from memory.transfer.reading import detect
from tests.moving.looking import put as _put
from tests.moving.test_systems import read

LIMIT = 10_000  # characters of a memory
HOPS = 4  # imports that are followed, one from another
_SENTENCE = "The ferry to the outer island waits for the tide, and for nobody else. "
_NAMED = "A rule whose file is named oddly.\n"


def agrees(
    folder: Path, keys: list[str], left_out: dict[str, str] | None = None, systems: tuple[str, ...] = ()
) -> list[Found]:
    """The keys of the memories to be found, and of what is left out, with why."""
    with detect(folder, systems) as look:
        memories, why = read(look)
    assert [memory.key for memory in memories] == keys
    assert why == (left_out or {})
    assert all(
        0 < len(memory.content) <= MAX_CONTENT and checked_tags(memory.tags) == memory.tags for memory in memories
    )
    return memories


def _words(characters: int) -> str:
    """Sentences on one line, so many characters."""
    return (_SENTENCE * (characters // len(_SENTENCE) + 1))[: characters - 1] + "."


def _mem0(folder: Path, path: str, results: Iterable[object]) -> None:
    _put(folder, path, json.dumps({"results": list(results)}))


# --- too long for one memory


def test_long_rules(tmp_path: Path) -> None:
    """A file that is parted at its second level: its one title goes with what follows. A line in a fence is no heading,
    and two headings of the same words are told apart."""
    sections = ["Berths", "Fares & refunds", "Winter", "Winter"]
    fenced = "```\n## no heading\n```\n\n"
    told = [f"## {name}\n\n{fenced}{_words(3_500)}\n" for name in sections]
    _put(tmp_path, "CLAUDE.md", "\n".join(["# Harbour desk\n\nFor everyone at the desk.\n", *told]))
    slugs = ["harbour-desk", "fares-refunds", "winter", "winter-2"]
    agrees(tmp_path, [f"CLAUDE.md#{slug}" for slug in slugs])


def test_long_section(tmp_path: Path) -> None:
    """One of two sections is still too long: it is parted at the next level. The other is short, and goes with it."""
    fares = "\n".join(f"### {name}\n\n{_words(6_000)}\n" for name in ("Children", "Cars"))
    _put(tmp_path, "AGENTS.md", f"# Fares\n\n{fares}\n# Tides\n\nAsk at eleven.\n")
    agrees(tmp_path, [f"AGENTS.md#{slug}" for slug in ("fares", "cars")])


def test_long_text(tmp_path: Path) -> None:
    """No heading, and no blank line: parted between sentences or words, into as few as hold it."""
    _put(tmp_path, ".cursorrules", _words(25_000))
    agrees(tmp_path, [".cursorrules", ".cursorrules#2", ".cursorrules#3"])


def test_long_word(tmp_path: Path) -> None:
    """Nowhere to part but in the middle, and no character may be cut in two."""
    _put(tmp_path, ".windsurfrules", "\N{DUCK}" * (LIMIT + 1))
    agrees(tmp_path, [".windsurfrules", ".windsurfrules#2"])


def test_at_the_limit(tmp_path: Path) -> None:
    """As long as a memory may be, to the character; and with a description that makes it too long."""
    _put(tmp_path, ".cursor/rules/fits.mdc", _words(LIMIT))
    _put(tmp_path, ".cursor/rules/too-long.mdc", f"---\ndescription: Of the desk\n---\n{_words(LIMIT)}")
    agrees(tmp_path, [".cursor/rules/fits.mdc", ".cursor/rules/too-long.mdc", ".cursor/rules/too-long.mdc#2"])


def test_long_entry(tmp_path: Path) -> None:
    """An export's entry that is too long is parted, its neighbours are not."""
    _mem0(tmp_path, "mem0.json", [{"id": "a", "memory": _words(12_000)}, {"id": "b", "memory": "Short."}])
    agrees(tmp_path, ["mem0.json#a", "mem0.json#a-2", "mem0.json#b"])


# --- too much


def test_large_file(tmp_path: Path) -> None:
    page = (_SENTENCE + "\n") * 1_000
    with (tmp_path / "AGENTS.md").open("w", encoding="utf-8") as file:
        for _ in range(10 * 2**20 // len(page) + 1):
            file.write(page)
    agrees(tmp_path, [], {"AGENTS.md": "is too large"})


def test_many_globs(tmp_path: Path) -> None:
    """More than a memory's tags: the first are kept, and it says how many were not."""
    globs = "".join(f"  - quays/{n}/**\n" for n in range(300))
    _put(tmp_path, ".cursor/rules/many.mdc", f"---\nglobs:\n{globs}---\nA rule for every quay.\n")
    [memory] = agrees(tmp_path, [".cursor/rules/many.mdc"])
    assert (len(memory.tags), memory.tags[0]) == (256, "glob:quays/0/**")
    assert "not kept: 44 tags" in memory.transformed


def test_deep_folder(tmp_path: Path) -> None:
    path = "/".join(["quay"] * 100 + ["AGENTS.md"])
    _put(tmp_path, path, "Far from the shore.\n")
    agrees(tmp_path, [path])


# --- one file that takes in another


def test_import_chain(tmp_path: Path) -> None:
    """CLAUDE.md imports 1.md, which imports 2.md, and so on, further than the tool follows."""
    _put(tmp_path, "CLAUDE.md", "@chain/1.md\n")
    for n in range(1, 7):
        _put(tmp_path, f"chain/{n}.md", f"Link {n}.\n" + (f"@{n + 1}.md\n" if n < 6 else ""))
    left = {f"chain/{HOPS}.md#@{HOPS + 1}.md": "is more than four imports away"}
    agrees(
        tmp_path, [f"chain/{n}.md" for n in range(1, HOPS + 1)], {"CLAUDE.md": "has only headings and imports"} | left
    )


# --- no plain files


def test_binary_files(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_bytes(b"\x00\x01quay\x00")
    (tmp_path / "CLAUDE.md").write_bytes(bytes(range(128, 256)))
    agrees(tmp_path, [], {"AGENTS.md": "contains a NUL character", "CLAUDE.md": "is not UTF-8 text"})


def test_link_loop(tmp_path: Path) -> None:
    """A folder that holds itself, and a file that is a symlink to itself."""
    _put(tmp_path, ".cursor/rules/quays.mdc", "A quay has a letter.\n")
    (tmp_path / ".cursor/rules/again").symlink_to(tmp_path / ".cursor/rules", target_is_directory=True)
    (tmp_path / "CLAUDE.md").symlink_to(tmp_path / "CLAUDE.md")
    agrees(
        tmp_path,
        [".cursor/rules/quays.mdc"],
        {
            "CLAUDE.md": "is a symlink whose target is missing or skipped",
            ".cursor/rules/again": "is a symlink to .cursor/rules",
        },
    )


def test_link_within(tmp_path: Path) -> None:
    """One file under two names, as Claude Code's documentation advises: taken once."""
    _put(tmp_path, "AGENTS.md", "One text for both.\n")
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")
    agrees(tmp_path, ["AGENTS.md"], {"CLAUDE.md": "is a symlink to AGENTS.md"})


def test_a_link_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    """Neither a file nor a folder is read, and nothing of what they say is shown."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    _put(outside, "secret.md", "Of somebody else.\n")
    _put(outside, "rules/secret.mdc", "Of somebody else, too.\n")
    (inside / ".cursor").mkdir(parents=True)
    (inside / ".cursor/rules").symlink_to(outside / "rules", target_is_directory=True)
    (inside / "CLAUDE.md").symlink_to(outside / "secret.md")
    why = "is a symlink that points outside the folder"
    agrees(inside, [], {".cursor/rules": why, "CLAUDE.md": why})


def test_pipe(tmp_path: Path) -> None:
    """Who opens it waits for ever."""
    os.mkfifo(tmp_path / "CLAUDE.md")
    agrees(tmp_path, [], {"CLAUDE.md": "is not a file"})


def test_folder_for_a_file(tmp_path: Path) -> None:
    _put(tmp_path, "AGENTS.md/README.md", "A folder with a file's name.\n")
    agrees(tmp_path, [], {"AGENTS.md": "is not a file"})


def test_odd_names(tmp_path: Path) -> None:
    """Names that break what prints them on a line, or takes them for an option, or for text."""
    rules = tmp_path / ".cursor/rules"
    names = [
        "-rf.mdc",
        "  spaces  .mdc",
        "a#b.mdc",
        "e\N{COMBINING ACUTE ACCENT}.mdc",
        "q" * 251 + ".mdc",
        "two\nlines.mdc",
    ]
    for n, name in enumerate(names):
        _put(rules, name, f"{n}: {_NAMED}")
    Path(os.fsdecode(os.fsencode(rules) + b"/\xff.mdc")).write_text(_NAMED, "utf-8")
    keys = sorted(f".cursor/rules/{name}" for name in names)
    agrees(tmp_path, keys, {".cursor/rules/\N{REPLACEMENT CHARACTER}.mdc": "has a name that is not valid text"})
