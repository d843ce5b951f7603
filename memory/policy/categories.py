"""Categories and where each is kept (seed 004, "Memory Categories")."""

from __future__ import annotations

from memory.errors import Invalid

COMMON, PRIVATE, PROJECT = "common", "private", "project"

SCOPES: dict[str, str] = {
    "technical": COMMON,
    "behavioral": COMMON,
    "personal": PRIVATE,
    "credentials": PRIVATE,
    "sensitive": PRIVATE,
    "keys": PRIVATE,
    "session": PROJECT,
    "topic": PROJECT,
    "user_interaction": PROJECT,
    "contextual": PROJECT,
    "git_history": PROJECT,
}

NAMES = ", ".join(SCOPES)

# Never shown to a model that refines or analyses, and never merged (60-memory-rules, Categories).
UNREFINED = frozenset({"credentials", "keys", "sensitive"})

DEFAULT_PROJECT = "default-project"


def scope_of(category: object) -> str:
    """The scope a category's memories have. Raises Invalid for a category there is none of."""
    scope = SCOPES.get(category) if isinstance(category, str) else None
    if scope is None:
        raise Invalid("category", f"unknown; choose one of {NAMES}")
    return scope


def default_category(project: str) -> str:
    """What a memory stored without a category is."""
    return "contextual" if project else "behavioral"
