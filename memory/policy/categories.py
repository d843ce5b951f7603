"""The categories of memories, and where each is stored."""

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

# Never sent to a model that refines or analyzes, and never merged.
UNREFINED = frozenset({"credentials", "keys", "sensitive"})

NAMED_BY_SERVICE = ("credentials", "keys")  # their files are named after a service, from a tag

DEFAULT_PROJECT = "default-project"


def default_category(project: str) -> str:
    """The category of a memory that is stored without one."""
    return "contextual" if project else "behavioral"
