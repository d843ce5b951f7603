"""Where a command is run, as far as it tells of a project: the environment, the git remote, the folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from memory.rules.projects import VARIABLE, Surroundings

_SECTION = re.compile(r'^\s*\[\s*remote\s+"origin"\s*\]\s*$')
_ANY_SECTION = re.compile(r"^\s*\[")
_URL = re.compile(r"^\s*url\s*=\s*(?P<url>\S.*?)\s*$", re.IGNORECASE)


def here() -> Surroundings:
    """Of the working directory. Git's files are read, and git itself is not run: nothing is configured to it here."""
    folder = Path.cwd()
    root = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    return Surroundings(
        override=os.environ.get(VARIABLE, ""),
        remote=_remote(root / ".git") if root else "",
        directory=str(root or folder),
    )


def _remote(git: Path) -> str:
    """The URL of the remote `origin`, "" where there is none, or its file cannot be read."""
    try:
        if git.is_file():  # of a worktree: it names the folder, which names the one that all worktrees share
            git = git.parent / git.read_text("utf-8").removeprefix("gitdir:").strip()
            shared = git / "commondir"
            git = git / shared.read_text("utf-8").strip() if shared.is_file() else git
        lines = (git / "config").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return ""
    is_origin = False
    for line in lines:
        if _ANY_SECTION.match(line):
            is_origin = bool(_SECTION.match(line))
        elif is_origin and (found := _URL.match(line)):
            return found["url"]
    return ""
