"""GitHub Copilot: instructions for a repository and for files (docs/migration-sources.md, "GitHub Copilot")."""

from __future__ import annotations

from memory.transfer.pages import Front, reader
from memory.transfer.system import Answer, Ignored, Places, System, Way, is_folder
from memory.transfer.walk import Tree

_WHOLE, _OF_FILES = ".github/copilot-instructions.md", ".github/instructions/"
_FRONT = Front(globs="applyTo")


def find(tree: Tree, *, is_named: bool) -> Places:  # noqa: ARG001  as all are called
    is_users = tree.root.name == ".copilot"
    before, tags = (".github/", ("local",)) if is_users else ("", ())
    whole, of_files = Way(reader(tags=tags)), Way(reader(_FRONT, tags))

    def file(path: str) -> Answer:
        path = before + path
        if path == _WHOLE or path.endswith(f"/{_WHOLE}"):
            return whole
        if not path.startswith(_OF_FILES):
            return None
        if path.endswith(".instructions.md"):
            return of_files
        return None if path.rpartition("/")[2].startswith(".") else Ignored("is no instruction file")

    return Places(file, lambda path: is_folder(before + path, _OF_FILES.rstrip("/")))


SYSTEM = System(
    "copilot",
    "GitHub Copilot",
    "github_copilot",
    ".github/copilot-instructions.md and .github/instructions",
    find,
)
