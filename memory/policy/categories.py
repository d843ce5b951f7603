"""The categories of memories, and the scope of each category."""

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

# Memories of these categories are never sent to a model that refines or analyzes, and are never merged.
UNREFINED = frozenset({"credentials", "keys", "sensitive"})

NAMED_BY_SERVICE = ("credentials", "keys")  # a tag has the name of a service, which becomes the file's name

DEFAULT_PROJECT = "default-project"


def default_category(project: str) -> str:
    """Return the category of a memory that is stored without a category."""
    return "contextual" if project else "behavioral"
