"""Where a command is run, as far as it tells of a project: the environment, the git remote, the folder."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory.policy.projects import VARIABLE, Surroundings, identify

_PATIENCE = 10  # seconds for git

_SECTION = re.compile(r'^\s*\[\s*remote\s+"origin"\s*\]\s*$')
_ANY_SECTION = re.compile(r"^\s*\[")
_URL = re.compile(r"^\s*url\s*=\s*(?P<url>\S.*?)\s*$", re.IGNORECASE)


def project_of(folder: Path, rules: Mapping[str, Any]) -> str:
    """The id of the project a folder belongs to (seed 004, "Project Identification"). Raises Invalid."""
    return identify(of(folder), rules)


def repository(folder: Path) -> Path | None:
    """The root of the git repository a folder is in; None where it is in none."""
    folder = folder.absolute()
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def are_ignored(root: Path, paths: Sequence[str]) -> bool:
    """Whether git leaves all of these out, which need not be there; no, where git is not there to ask."""
    command = ["git", "-c", "core.fsmonitor=", "-C", str(root), "check-ignore", "--", *paths]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return len(ran.stdout.splitlines()) == len(paths)


def of(folder: Path) -> Surroundings:
    """What a folder tells of a project. Git's files are read, for git refuses the repositories of other users."""
    root = repository(folder)
    return Surroundings(
        override=os.environ.get(VARIABLE, ""),
        remote=_remote(root / ".git") if root else "",
        directory=str(root or folder.absolute()),
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
