"""Windsurf, now Devin Desktop: rules, and the older one file (docs/migration-sources.md, "Windsurf")."""

from __future__ import annotations

from memory.transfer.pages import Front, reader
from memory.transfer.system import Answer, Places, System, Way, below, is_folder, own_folder
from memory.transfer.walk import Tree

_RULES = (".windsurf/rules", ".devin/rules")
_USERS = ".codeium/windsurf/memories/global_rules.md"
_RULE = Way(reader(Front(globs="globs")))
_OLDER, _LOCAL = Way(reader()), Way(reader(tags=("local",)))


def find(tree: Tree, *, is_named: bool) -> Places:  # noqa: ARG001  as all are called
    before = own_folder(tree, ".windsurf") or own_folder(tree, ".devin") or own_folder(tree, ".codeium")

    def file(path: str) -> Answer:
        path = before + path
        if path == ".windsurfrules":
            return _OLDER
        if path == _USERS:
            return _LOCAL
        rules = filter(None, (below(path, folder) for folder in _RULES))
        return _RULE if any(rule.endswith(".md") and "/" not in rule for rule in rules) else None

    return Places(file, lambda path: is_folder(before + path, *_RULES))


SYSTEM = System(
    "windsurf",
    "Windsurf",
    "custom_agent_frameworks",
    "rules in .windsurf/rules and .devin/rules, and .windsurfrules",
    find,
)
