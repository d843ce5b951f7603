"""Claude Code: instructions with what they import, rules, and what the tool noted itself (docs/migration-sources.md,
"Claude Code")."""

from __future__ import annotations

from memory.transfer.pages import Front, reader
from memory.transfer.system import Answer, Places, System, Way, below, is_at_home, is_folder, own_folder
from memory.transfer.walk import Tree

_FOLDER = ".claude"
_PAGES = ("CLAUDE.md", "CLAUDE.local.md")
_AGENTS = ("agent-memory", "agent-memory-local")
_RULE = Front(globs="paths")
_NOTE = Front(date="modified", tagged={"type": "type:", "metadata.type": "type:"})
_LOCAL = ("local",)


def find(tree: Tree, *, is_named: bool) -> Places:  # noqa: ARG001  as all are called
    before = own_folder(tree, _FOLDER)
    users = _LOCAL if before and is_at_home(tree) else ()
    page, local, rule = Way(reader(tags=users)), Way(reader(tags=_LOCAL)), Way(reader(_RULE, users))
    note = Way(reader(_NOTE, users))

    def file(path: str) -> Answer:
        name = path.rpartition("/")[2]
        if name in _PAGES:
            return page if name == _PAGES[0] else local
        own = below(before + path, _FOLDER) if name.endswith(".md") else ""
        if own.startswith("rules/"):
            return rule
        return note if _is_noted(own.split("/")) else None

    return Places(file, lambda path: is_folder(before + path, f"{_FOLDER}/rules", f"{_FOLDER}/memory"))


def _is_noted(parts: list[str]) -> bool:
    """Whether a path in the tool's folder is one of its notes."""
    if parts[0] == "projects":
        return len(parts) > 3 and parts[2] == "memory"
    return (parts[0] == "memory" and len(parts) > 1) or (parts[0] in _AGENTS and len(parts) > 2)


def imports_from(path: str) -> bool:
    return path.rpartition("/")[2] in _PAGES


SYSTEM = System(
    "claude",
    "Claude Code",
    "custom_agent_frameworks",
    "CLAUDE.md with what it imports, .claude/rules, and memories of .claude",
    find,
    follows_imports=True,
    imports_from=imports_from,
)
