"""What one sees of an agent's memory in a project (seed 004): what is common, what is private, and what is the
project's, never another project's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.policy import settings_document
from memory.policy.categories import DEFAULT_PROJECT, PROJECT, SCOPES


def seen_from(rules: Mapping[str, Any], project: str) -> dict[str, frozenset[str]] | None:
    """Of which projects a category's memories are seen from one; of a category that is not here, of any."""
    if not settings_document.is_on(rules, "project_support", "enabled"):
        return None
    own = frozenset({project} if project not in ("", DEFAULT_PROJECT) else {"", DEFAULT_PROJECT})
    seen = {}
    for name, scope in SCOPES.items():
        if scope == PROJECT:
            seen[name] = own
        elif not settings_document.is_on(rules, "categories", name, "share_across_projects"):
            seen[name] = own | {""}  # one that names no project is nobody else's
    return seen
