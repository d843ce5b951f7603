"""What git cannot hold, or should not: made in a folder of the test's own.

Each function says what is to be found there, in the order of `expected.json`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

LIMIT = 10_000  # characters of a memory
HOPS = 4  # imports that are followed, one from another
TAGS = 256  # of a memory
_SENTENCE = "The ferry to the outer island waits for the tide, and for nobody else. "
_NAMED = "A rule whose file is named oddly.\n"


@dataclass(frozen=True, slots=True)
class Told:
    """The keys of the memories to be found, and of what is left out, with why."""

    keys: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def _written(folder: Path, path: str, text: str) -> None:
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, "utf-8", newline="")


def _words(characters: int) -> str:
    """Sentences on one line, so many characters."""
    return (_SENTENCE * (characters // len(_SENTENCE) + 1))[: characters - 1] + "."


def _mem0(folder: Path, path: str, results: Iterable[object]) -> None:
    _written(folder, path, json.dumps({"results": list(results)}))


# --- too long for one memory


def long_rules(folder: Path) -> Told:
    """A file that is parted at its second level: its one title goes with what follows. A line in a fence is no heading,
    and two headings of the same words are told apart."""
    sections = ["Berths", "Fares & refunds", "Winter", "Winter"]
    fenced = "```\n## no heading\n```\n\n"
    told = [f"## {name}\n\n{fenced}{_words(3_500)}\n" for name in sections]
    _written(folder, "CLAUDE.md", "\n".join(["# Harbour desk\n\nFor everyone at the desk.\n", *told]))
    slugs = ["harbour-desk", "fares-refunds", "winter", "winter-2"]
    return Told([f"CLAUDE.md#{slug}" for slug in slugs])


def long_section(folder: Path) -> Told:
    """One of two sections is still too long: it is parted at the next level. The other is short, and goes with it."""
    fares = "\n".join(f"### {name}\n\n{_words(6_000)}\n" for name in ("Children", "Cars"))
    _written(folder, "AGENTS.md", f"# Fares\n\n{fares}\n# Tides\n\nAsk at eleven.\n")
    return Told([f"AGENTS.md#{slug}" for slug in ("fares", "cars")])


def long_text(folder: Path) -> Told:
    """No heading, and no blank line: parted between sentences or words, into as few as hold it."""
    _written(folder, ".cursorrules", _words(25_000))
    return Told([".cursorrules", ".cursorrules#2", ".cursorrules#3"])


def long_word(folder: Path) -> Told:
    """Nowhere to part but in the middle, and no character may be cut in two."""
    _written(folder, ".windsurfrules", "\N{DUCK}" * (LIMIT + 1))
    return Told([".windsurfrules", ".windsurfrules#2"])


def at_the_limit(folder: Path) -> Told:
    """As long as a memory may be, to the character; and with a description that makes it too long."""
    _written(folder, ".cursor/rules/fits.mdc", _words(LIMIT))
    _written(folder, ".cursor/rules/too-long.mdc", f"---\ndescription: Of the desk\n---\n{_words(LIMIT)}")
    return Told([".cursor/rules/fits.mdc", ".cursor/rules/too-long.mdc", ".cursor/rules/too-long.mdc#2"])


def long_entry(folder: Path) -> Told:
    """An export's entry that is too long is parted, its neighbours are not."""
    _mem0(folder, "mem0.json", [{"id": "a", "memory": _words(12_000)}, {"id": "b", "memory": "Short."}])
    return Told(["mem0.json#a", "mem0.json#a-2", "mem0.json#b"])


# --- too much


def large_file(folder: Path, megabytes: int = 10) -> Told:
    page = (_SENTENCE + "\n") * 1_000
    with (folder / "AGENTS.md").open("w", encoding="utf-8") as file:
        for _ in range(megabytes * 2**20 // len(page) + 1):
            file.write(page)
    return Told(left_out={"AGENTS.md": "is too large"})


def many_entries(folder: Path, count: int = 20_000) -> Told:
    _mem0(folder, "mem0.json", ({"id": f"m{n}", "memory": f"Sailing {n} was on time."} for n in range(count)))
    return Told([f"mem0.json#m{n}" for n in range(count)])


def many_globs(folder: Path, count: int = 300) -> Told:
    """More than a memory's tags: the first are kept, and it says how many were not."""
    globs = "".join(f"  - quays/{n}/**\n" for n in range(count))
    _written(folder, ".cursor/rules/many.mdc", f"---\nglobs:\n{globs}---\nA rule for every quay.\n")
    return Told([".cursor/rules/many.mdc"])


def laughing(folder: Path) -> Told:
    """Front matter that grows to billions of words where a reader expands its aliases."""
    lines = ["a0: &a0 [quay, quay, quay, quay, quay, quay, quay, quay, quay, quay]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    _written(folder, ".cursor/rules/laughing.mdc", "---\n" + "\n".join(lines) + "\nglobs: *a11\n---\nQuays.\n")
    return Told([".cursor/rules/laughing.mdc"])


def deep_json(folder: Path, levels: int = 100_000) -> Told:
    """Deeper than a parser goes."""
    _written(folder, "mem0.json", '{"results": ' + "[" * levels + "]" * levels + "}")
    return Told(left_out={"mem0.json": "is not JSON"})


def long_number(folder: Path) -> Told:
    """A number with more digits than Python reads."""
    _written(folder, "mem0.json", '{"results": [{"id": ' + "7" * 5_000 + ', "memory": "Seven."}]}')
    return Told(left_out={"mem0.json": "is not JSON"})


def deep_folder(folder: Path, levels: int = 100) -> Told:
    path = "/".join(["quay"] * levels + ["AGENTS.md"])
    _written(folder, path, "Far from the shore.\n")
    return Told([path])


# --- one file that takes in another


def import_chain(folder: Path, files: int = 6) -> Told:
    """CLAUDE.md imports 1.md, which imports 2.md, and so on, further than the tool follows."""
    _written(folder, "CLAUDE.md", "@chain/1.md\n")
    for n in range(1, files + 1):
        _written(folder, f"chain/{n}.md", f"Link {n}.\n" + (f"@{n + 1}.md\n" if n < files else ""))
    left = {f"chain/{HOPS}.md#@{HOPS + 1}.md": "is more than four imports away"}
    return Told([f"chain/{n}.md" for n in range(1, HOPS + 1)], {"CLAUDE.md": "has only headings and imports"} | left)


def import_of_itself(folder: Path) -> Told:
    _written(folder, "CLAUDE.md", "See @CLAUDE.md and @./CLAUDE.md.\n")
    return Told(["CLAUDE.md"])


# --- no plain files


def binary_files(folder: Path) -> Told:
    (folder / "AGENTS.md").write_bytes(b"\x00\x01quay\x00")
    (folder / "CLAUDE.md").write_bytes(bytes(range(128, 256)))
    return Told(left_out={"AGENTS.md": "holds a NUL character", "CLAUDE.md": "is not UTF-8 text"})


def link_loop(folder: Path) -> Told:
    """A folder that holds itself, and a file that is a link to itself."""
    _written(folder, ".cursor/rules/quays.mdc", "A quay has a letter.\n")
    (folder / ".cursor/rules/again").symlink_to(folder / ".cursor/rules", target_is_directory=True)
    (folder / "CLAUDE.md").symlink_to(folder / "CLAUDE.md")
    return Told(
        [".cursor/rules/quays.mdc"],
        {
            "CLAUDE.md": "is a link that leads nowhere",
            ".cursor/rules/again": "is a link to .cursor/rules",
        },
    )


def link_within(folder: Path) -> Told:
    """One file under two names, as Claude Code's documentation advises: taken once."""
    _written(folder, "AGENTS.md", "One text for both.\n")
    (folder / "CLAUDE.md").symlink_to("AGENTS.md")
    return Told(["AGENTS.md"], {"CLAUDE.md": "is a link to AGENTS.md"})


def link_outside(folder: Path, outside: Path) -> Told:
    """A file and a folder that lead out: neither is read, and nothing of what they say is shown."""
    _written(outside, "secret.md", "Of somebody else.\n")
    _written(outside, "rules/secret.mdc", "Of somebody else, too.\n")
    (folder / ".cursor").mkdir(parents=True, exist_ok=True)
    (folder / ".cursor/rules").symlink_to(outside / "rules", target_is_directory=True)
    (folder / "CLAUDE.md").symlink_to(outside / "secret.md")
    why = "is a link that leads out of the folder"
    return Told(left_out={".cursor/rules": why, "CLAUDE.md": why})


def pipe(folder: Path) -> Told:
    """Who opens it waits for ever."""
    os.mkfifo(folder / "CLAUDE.md")
    return Told(left_out={"CLAUDE.md": "is no file"})


def folder_for_a_file(folder: Path) -> Told:
    _written(folder, "AGENTS.md/README.md", "A folder with a file's name.\n")
    return Told(left_out={"AGENTS.md": "is no file"})


def unreadable(folder: Path) -> Told:
    """Of somebody else's; who runs as root reads it all the same."""
    _written(folder, "AGENTS.md", "Not for everybody.\n")
    (folder / "AGENTS.md").chmod(0)
    return Told(left_out={"AGENTS.md": "cannot be read"})


def odd_names(folder: Path) -> Told:
    """Names that break what prints them on a line, or takes them for an option, or for text."""
    rules = folder / ".cursor/rules"
    names = [
        "-rf.mdc",
        "  spaces  .mdc",
        "a#b.mdc",
        "e\N{COMBINING ACUTE ACCENT}.mdc",
        "q" * 251 + ".mdc",
        "two\nlines.mdc",
    ]
    for n, name in enumerate(names):
        _written(rules, name, f"{n}: {_NAMED}")
    Path(os.fsdecode(os.fsencode(rules) + b"/\xff.mdc")).write_text(_NAMED, "utf-8")
    keys = sorted(f".cursor/rules/{name}" for name in names)
    return Told(keys, {".cursor/rules/\N{REPLACEMENT CHARACTER}.mdc": "has a name that is no text"})
