"""How memories refer to each other: by number, and with a link to the other's file where there is a vault."""

from __future__ import annotations

import posixpath

from memory.models import Agent
from memory.policy import paths, switches


def reference(row: Agent, number: int, category: str, project: str, title: str, *, within: str) -> str:
    """`memory 3`, or `[memory 3](000003-tea.md)`: from the file of a memory of the category `within`, in the same
    project. `title` is what its file is called by."""
    told = f"memory {number}"
    if not row.vault_path:
        return told
    rules = switches.rules_of(row)
    folder, here = (paths.folder(each, project, rules) for each in (category, within))
    file = folder / paths.name_of(number, category, title, rules)
    return f"[{told}]({posixpath.relpath(file, here)})"
