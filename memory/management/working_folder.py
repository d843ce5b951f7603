"""The project and the git repository of the folder that a command runs in."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dulwich.config import ConfigFile

from memory.policy.projects import VARIABLE, Surroundings, identify

_GIT_TIMEOUT = 10  # seconds


def project_of(folder: Path, rules: Mapping[str, Any]) -> str:
    """The id of the folder's project. Raises Invalid."""
    return identify(surroundings(folder), rules)


def surroundings(folder: Path) -> Surroundings:
    """What identifies the folder's project: the environment variable, the git remote, the folder's name."""
    root = repository(folder)
    return Surroundings(
        override=os.environ.get(VARIABLE, ""),
        remote=_remote(root / ".git") if root else "",
        directory=str(root or folder.absolute()),
    )


def repository(folder: Path) -> Path | None:
    """The root of the git repository that the folder is in, or None."""
    folder = folder.absolute()
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def are_ignored(root: Path, paths: Sequence[str]) -> bool:
    """Whether git ignores all of these paths, which need not exist. False if git cannot be run."""
    command = ["git", "-c", "core.fsmonitor=", "-C", str(root), "check-ignore", "--", *paths]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=_GIT_TIMEOUT, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return len(ran.stdout.splitlines()) == len(paths)


def _remote(git: Path) -> str:
    """The URL of the remote `origin`, or "" if it is not set or the configuration cannot be read.

    The file is read without git, because git refuses the repositories of other users.
    """
    try:
        if git.is_file():  # a worktree: its file names its folder, which names the folder of the repository
            git = git.parent / git.read_text("utf-8").removeprefix("gitdir:").strip()
            shared = git / "commondir"
            git = git / shared.read_text("utf-8").strip() if shared.is_file() else git
        return ConfigFile.from_path(str(git / "config")).get((b"remote", b"origin"), b"url").decode()
    except (KeyError, OSError, ValueError):
        return ""
