"""Asking a person before something is switched on (seed 004: never by itself)."""

from __future__ import annotations

from collections.abc import Sequence

from config import commandline
from config.commandline import Task
from memory.rules import switches


def agreed(task: Task, paths: Sequence[str], *, yes: bool, question: str = switches.QUESTION) -> bool:
    """Whether a person says yes to these switches. Where nobody can be asked, and there is no --yes, it is no."""
    if yes:
        return True
    if not commandline.is_attended():
        task.say("Nobody can be asked here, which is a no; --yes says that a person wants it.")
        return False
    task.say(switches.GOOD_FOR)
    for path in paths:
        task.say(f"Would be switched on: {path}")
    task.stderr.write(f"{question} ", ending="")
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        return False
