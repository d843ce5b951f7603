"""Cline: rules, and the pages of a memory bank (docs/migration-sources.md, "Cline")."""

from __future__ import annotations

from memory.transfer.pages import Front, reader
from memory.transfer.system import Answer, Places, System, Way
from memory.transfer.walk import Kind, Tree

_RULES, _BANK = ".clinerules", "memory-bank"
_FRONT = Front(globs="paths", switched_off="paths")
_RULE, _PAGE = Way(reader(_FRONT)), Way(reader())
_LOCAL = Way(reader(_FRONT, ("local",)))


def find(tree: Tree, *, is_named: bool) -> Places:  # noqa: ARG001  as all are called
    is_users = tree.root.parts[-2:] == ("Cline", "Rules")
    older = tree.entries.get(_RULES)
    is_older = older is not None and older.kind is not Kind.FOLDER

    def file(path: str) -> Answer:
        folder, _, name = path.rpartition("/")
        if path == _RULES:
            return _PAGE if is_older else None
        if name.endswith((".md", ".txt")) and (folder == _RULES or (is_users and not folder)):
            return _LOCAL if is_users else _RULE
        return _PAGE if path.startswith(f"{_BANK}/") and name.endswith(".md") else None

    return Places(file, lambda path: path in (_RULES, _BANK) or path.startswith(f"{_BANK}/"))


SYSTEM = System("cline", "Cline", "custom_agent_frameworks", "rules in .clinerules, and the pages of memory-bank", find)
