"""What a memory's file is called, and where it is first put (seed 004, "Memory Routing", "Credential Naming")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from memory.markdown import sections
from memory.models import Memory
from memory.policy import paths
from memory.silo.silo import Opened
from memory.vault.disk import ASIDE

_WORDS = 8  # of a memory's beginning that name its file
_BEGAN = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d):(\d\d):(\d\d)Z to ")


def candidates(memory: Memory, opened: Opened, rules: Mapping[str, Any]) -> Iterator[PurePosixPath]:
    """Its path, and others for when something of somebody else's is there."""
    folder = paths.folder(memory.category, memory.project, rules)
    first = _name(memory, opened, rules)
    yield folder / first
    stem = first.removesuffix(".md")
    numbered = stem if stem.startswith(f"{memory.number:06}") else f"{stem}-{memory.number:06}"
    if numbered != stem:
        yield folder / f"{numbered}.md"
    yield from (folder / f"{numbered}-{nth}.md" for nth in range(2, 100))


def moved_to(path: PurePosixPath, memory: Memory, rules: Mapping[str, Any]) -> Iterator[PurePosixPath]:
    """Where a file with this path belongs, as the settings have it now, and others for when something is there."""
    folder = paths.folder(memory.category, memory.project, rules)
    yield folder / path.name
    yield from (folder / f"{path.stem}-{nth}{path.suffix}" for nth in range(2, 1_000))


def aside(path: PurePosixPath) -> PurePosixPath:
    return path if path.parts[0] == ASIDE else PurePosixPath(ASIDE, path)


def back(path: PurePosixPath) -> PurePosixPath:
    return PurePosixPath(*path.parts[1:]) if path.parts[0] == ASIDE else path


def _name(memory: Memory, opened: Opened, rules: Mapping[str, Any]) -> str:
    tags = dict(tag.split(":", 1) for tag in reversed(opened.tags) if ":" in tag)
    if memory.category in paths.NAMED_BY_SERVICE and "service" in tags:
        kind = tags.get("credential", "key")
        # The project as it was given: one of its own is for that project alone.
        named = paths.credential_name(tags["service"], memory.project, kind)
        if named and named != paths.INDEX:
            return named
    if paths.is_private(memory.category, rules):  # a name would say what the file does not
        return paths.file_name(memory.number)
    return paths.file_name(memory.number, _title(memory, opened, tags))


def _title(memory: Memory, opened: Opened, tags: Mapping[str, str]) -> str:
    if memory.category == "session":  # by when it began: it may go on
        period = sections.told(opened.content, memory.category, "Session Overview", "Period")
        return f"{began[1]}-{began[2]}{began[3]}{began[4]}" if (began := _BEGAN.match(period)) else _dated(memory)
    if memory.category == "user_interaction":
        return _dated(memory)
    if memory.category == "topic" and tags.get("topic"):
        return tags["topic"]
    if memory.category == "git_history" and tags.get("analysis"):  # which is said anew as there is more
        return f"git {tags['analysis']}"
    said = sections.parted(opened.content[:2_000], memory.category)
    text = said.get(sections.main_section(memory.category)) or next(iter(said.values()), "")
    return " ".join(text.split()[:_WORDS])


def _dated(memory: Memory) -> str:
    return paths.dated(memory.origin)
