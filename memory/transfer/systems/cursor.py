"""Cursor: rules of a project, and the older one file (docs/migration-sources.md, "Cursor")."""

from __future__ import annotations

from memory.transfer.pages import Front, reader
from memory.transfer.system import Answer, Ignored, Places, System, Way, below, is_folder, own_folder
from memory.transfer.walk import Tree

_RULES = ".cursor/rules"
_RULE = Way(reader(Front(globs="globs")))
_OLDER = Way(reader())


def find(tree: Tree, *, is_named: bool) -> Places:  # noqa: ARG001  as all are called
    before = own_folder(tree, ".cursor")

    def file(path: str) -> Answer:
        if path == ".cursorrules":
            return _OLDER
        rule = below(before + path, _RULES)
        if not rule:
            return None
        if rule.endswith((".mdc", "/RULE.md")):
            return _RULE
        return None if rule.rpartition("/")[2].startswith(".") else Ignored("is no rule file")

    return Places(file, lambda path: is_folder(before + path, _RULES))


SYSTEM = System("cursor", "Cursor", "cursor", "rules in .cursor/rules, and .cursorrules", find)
