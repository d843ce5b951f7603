"""The name of a memory's file, and the folder it is written to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from memory.markdown import sections
from memory.models import Memory
from memory.policy import paths
from memory.policy.categories import NAMED_BY_SERVICE
from memory.silo.silo import Opened
from memory.vault.disk import ASIDE

_WORDS = 8  # of a memory's beginning, in its title
_BEGAN = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d):(\d\d):(\d\d)Z to ")


def candidates(memory: Memory, opened: Opened, rules: Mapping[str, Any]) -> Iterator[PurePosixPath]:
    """The path of its file, then other paths in case that one is taken."""
    folder = paths.folder(memory.category, memory.project, rules)
    first = _name(memory, opened, rules)
    yield folder / first
    stem = first.removesuffix(".md")
    numbered = stem if stem.startswith(f"{memory.number:06}") else f"{stem}-{memory.number:06}"
    if numbered != stem:
        yield folder / f"{numbered}.md"
    yield from (folder / f"{numbered}-{nth}.md" for nth in range(2, 100))


def title_in_index(memory: Memory, opened: Opened, path: PurePosixPath, rules: Mapping[str, Any]) -> str:
    """What its index calls the file: its title, which the file shows as well, or the name of the file if it is
    private."""
    if paths.is_private(memory.category, rules):
        return path.stem
    return paths.file_name(memory.number, _title(memory, opened)).removesuffix(".md")


def aside(path: PurePosixPath) -> PurePosixPath:
    return path if path.parts[0] == ASIDE else PurePosixPath(ASIDE, path)


def back(path: PurePosixPath) -> PurePosixPath:
    return PurePosixPath(*path.parts[1:]) if path.parts[0] == ASIDE else path


def _name(memory: Memory, opened: Opened, rules: Mapping[str, Any]) -> str:
    tags = _tags(opened)
    if memory.category in NAMED_BY_SERVICE and "service" in tags:
        named = paths.credential_name(tags["service"], memory.project, tags.get("credential", "key"))
        if named and named != paths.INDEX:
            return named
    return paths.name_of(memory.number, memory.category, _title(memory, opened), rules)


def _tags(opened: Opened) -> dict[str, str]:
    return dict(tag.split(":", 1) for tag in reversed(opened.tags) if ":" in tag)


def _title(memory: Memory, opened: Opened) -> str:
    if memory.category == "session":  # when it began: its end may still change
        period = sections.told(opened.content, memory.category, "Session Overview", "Period")
        began = _BEGAN.match(period)
        return f"{began[1]}-{began[2]}{began[3]}{began[4]}" if began else paths.dated(memory.origin)
    if memory.category == "user_interaction":
        return paths.dated(memory.origin)
    tags = _tags(opened)
    if memory.category == "topic" and tags.get("topic"):
        return tags["topic"]
    if memory.category == "git_history" and tags.get("analysis"):
        return f"git {tags['analysis']}"
    said = sections.parted(opened.content[:2_000], memory.category)
    text = said.get(sections.main_section(memory.category)) or next(iter(said.values()), "")
    return " ".join(text.split()[:_WORDS])
