"""Where a command is run: the folder's git repository and remote, and what the environment says of the project."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory.rules.projects import VARIABLE, Surroundings, identify

_PATIENCE = 10  # seconds for git


def project_of(folder: Path, rules: Mapping[str, Any]) -> str:
    """The id of the project a folder belongs to (seed 004, "Project Identification"). Raises Invalid."""
    root = repository(folder)
    around = Surroundings(
        override=os.environ.get(VARIABLE, ""),
        remote=_git(folder, "remote", "get-url", "origin") if root else "",
        directory=str(root or folder.absolute()),
    )
    return identify(around, rules)


def repository(folder: Path) -> Path | None:
    """The root of the git repository a folder is in; None where it is in none, or there is no git."""
    found = _git(folder, "rev-parse", "--show-toplevel")
    return Path(found) if found else None


def is_ignored(path: Path) -> bool:
    """Whether git leaves a folder out."""
    return bool(_git(path, "check-ignore", str(path)))


def _git(folder: Path, *arguments: str) -> str:
    """What git says, on one line; "" where it says nothing. No hook, pager or prompt of the repository's is run."""
    command = ["git", "-c", "core.fsmonitor=", "-C", str(folder), *arguments]
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        ran = subprocess.run(command, capture_output=True, timeout=_PATIENCE, env=quiet, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.decode("utf-8", "replace").strip() if ran.returncode == 0 else ""
