"""Categories and where each is kept (seed 004, "Memory Categories")."""

from __future__ import annotations

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

NAMED_BY_SERVICE = ("credentials", "keys")  # their files have the name of a service, which a tag gives

DEFAULT_PROJECT = "default-project"


def default_category(project: str) -> str:
    """What a memory stored without a category is."""
    return "contextual" if project else "behavioral"
