"""AGENTS.md, in the root and in any folder below (docs/migration-sources.md, "AGENTS.md")."""

from __future__ import annotations

from memory.transfer.pages import reader
from memory.transfer.system import Answer, Places, System, Way
from memory.transfer.walk import Tree

_PAGE = Way(reader())


def find(tree: Tree, *, is_named: bool) -> Places:  # noqa: ARG001  as all are called
    return Places(_file)


def _file(path: str) -> Answer:
    return _PAGE if path == "AGENTS.md" or path.endswith("/AGENTS.md") else None


SYSTEM = System("agents-md", "AGENTS.md", "custom_agent_frameworks", "AGENTS.md, in any folder", find)
