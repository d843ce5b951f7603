"""The log of an agent's runs: what an entry looks like (seed 001), and where it goes.

To the agent's memory file, where it has one; else to its journal, whose run memories are the entries of the log.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.utils import timezone

from audit.trail import Actor
from memory import memory_file, store
from memory.errors import FileElsewhere, Invalid, MemoryDisabled
from memory.intake import Draft, checked_content
from memory.models import Agent, Kind, Source

RESULT_CHARACTERS = 1_000
TASK_CHARACTERS = 2_000
_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+\s*")
_POSES = re.compile(r"(?<=[\n\r])(?=## )")


def log_run(agent: Agent, task: str, result: str, actor: Actor) -> int | None:
    """Write down what the agent was asked and what came of it. The journal memory's number; None in a file.

    Raises Invalid, MemoryDisabled, FileFault, Erased.
    """
    told = body(task, result)
    if not agent.memory_path:
        return store.remember(agent, [Draft(told, kind=Kind.JOURNAL, source=Source.RUN)], actor).memory.number
    if not agent.memory_enabled:
        raise MemoryDisabled
    memory_file.append(file_of(agent), entry(timezone.now(), told).encode())
    return None


def body(task: str, result: str) -> str:
    """What an entry says: the task on one line, the result cut at 1,000 characters, none of whose lines can pose as
    another entry. Raises Invalid."""
    one_line = _BREAKS.sub(" ", checked_content(task, "task")).strip()
    if len(one_line) > TASK_CHARACTERS:
        raise Invalid("task", f"has {len(one_line):,} characters; at most {TASK_CHARACTERS:,} are allowed")
    if not isinstance(result, str):
        raise Invalid("result", "must be text")
    cut = checked_content(result[:RESULT_CHARACTERS], "result") if result.strip() else ""
    escaped = _POSES.sub(lambda _: "\\", cut)
    return f"**Task:** {one_line}\n**Result:** {escaped}"


def entry(at: datetime, body: str) -> str:
    return f"## {at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}\n{body}\n\n"


def file_of(agent: Agent) -> Path:
    """The agent's memory file, which lies under the operator's roots wherever links lead. Raises FileElsewhere."""
    real = Path(os.path.realpath(agent.memory_path))
    if not any(real.is_relative_to(os.path.realpath(root)) for root in settings.VAULT_ROOTS):
        raise FileElsewhere(f"{agent.memory_path}: does not lie under VAULT_ROOTS")
    return Path(agent.memory_path)


def path_in_roots(given: str) -> str:
    """A memory file's path as it is kept: absolute, under one of the operator's folders. Raises Invalid."""
    return _checked(given, Path(settings.VAULT_ROOTS[0]), [Path(root) for root in settings.VAULT_ROOTS])


def path_in_tenant(tenant: str, given: str) -> str:
    """… under its tenant's folder there: what is named by others than the operator is nobody else's. Raises Invalid."""
    folders = [Path(root) / tenant for root in settings.VAULT_ROOTS]
    return _checked(given, folders[0], folders)


def _checked(given: str, base: Path, folders: list[Path]) -> str:
    if not given:
        return ""
    if not given.isprintable():
        raise Invalid("memory_path", "must hold no control character")
    try:
        path = Path(os.path.normpath(base / Path(given).expanduser()))
        real, is_folder = Path(os.path.realpath(path)), path.is_dir()
    except (OSError, RuntimeError):  # RuntimeError: of a home that nobody has
        raise Invalid("memory_path", "is no path that the system can follow") from None
    if not any(real.is_relative_to(os.path.realpath(folder)) for folder in folders):
        raise Invalid("memory_path", f"must lie under {' or '.join(str(folder) for folder in folders)}")
    if is_folder:
        raise Invalid("memory_path", "is a folder; name a file")
    return str(path)
