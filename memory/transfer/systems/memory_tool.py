"""The files that a program keeps for Anthropic's memory tool (docs/migration-sources.md, "Anthropic's memory tool and
memory stores")."""

from __future__ import annotations

from memory.transfer.pages import reader
from memory.transfer.system import Answer, Places, System, Way, below
from memory.transfer.walk import Kind, Tree

_FOLDER = "memories"
_ENDINGS = (".md", ".txt", ".xml")  # where nobody said that the folder is one of these
_PAGE = Way(reader())


def find(tree: Tree, *, is_named: bool) -> Places:
    """The folder `memories`; where the system was named, at any depth, and with files of any name. Where there is none,
    the folder itself is meant."""
    is_whole = is_named and not any(
        entry.name == _FOLDER for entry in tree.entries.values() if entry.kind is not Kind.FILE
    )

    def file(path: str) -> Answer:
        inner = path if is_whole else _inner(path, is_named=is_named)
        if not inner or any(part.startswith(".") for part in inner.split("/")):
            return None
        return _PAGE if is_named or inner.endswith(_ENDINGS) else None

    return Places(file, lambda path: is_whole or path == _FOLDER or bool(_inner(path, is_named=is_named)))


def _inner(path: str, *, is_named: bool) -> str:
    if is_named:
        return below(path, _FOLDER)
    return path.removeprefix(f"{_FOLDER}/") if path.startswith(f"{_FOLDER}/") else ""


SYSTEM = System(
    "memory-tool",
    "Anthropic's memory tool",
    "custom_agent_frameworks",
    "files of the folder memories, as Anthropic's memory tool has them",
    find,
)
