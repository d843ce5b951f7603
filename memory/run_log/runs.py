"""The log of an agent's runs: what an entry looks like (seed 001), and where it goes.

To the agent's memory file, where it has one; else to its journal, whose run memories are the entries of the log.
"""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path, PurePath

from django.conf import settings
from django.utils import timezone

from audit.trail import Actor
from memory.errors import FileFault, Invalid, MemoryDisabled
from memory.models import Agent, Kind, Source
from memory.policy.validation import Draft, checked_content
from memory.run_log import log_file
from memory.run_log.files import Place
from memory.run_log.log_file import Appending
from memory.run_log.replacement import PREFIX
from memory.writing import edits, operations

RESULT_CHARACTERS = 1_000
TASK_CHARACTERS = 2_000
_POSES = re.compile(r"(?<=[\n\r])(?=## )")


def log_run(agent: Agent, task: str, result: str, actor: Actor, file: Appending | None = None) -> int | None:
    """Write down what the agent was asked and what came of it. The journal memory's number; None in a file, which is
    locked here unless it is at hand.

    Raises Invalid, MemoryDisabled, FileFault, Erased.
    """
    told = body(task, result)
    if not agent.memory_path:
        return operations.remember(agent, [Draft(told, kind=Kind.JOURNAL, source=Source.RUN)], actor).memory.number
    _require_as_it_stands(agent)
    written = entry(timezone.now(), told).encode()
    if file is None:
        log_file.append(place_of(agent), written)
    else:
        file.add(written)
    return None


def _require_as_it_stands(agent: Agent) -> None:
    """That it may be written for it now, whenever its row was read."""
    row = Agent.objects.select_related("tenant").get(pk=agent.pk)
    edits.require_key(row)
    if not row.memory_enabled:
        raise MemoryDisabled
    if row.memory_path != agent.memory_path:
        raise FileFault("The memory file of this agent was changed meanwhile. Nothing was written.")


def at_hand(agent: Agent) -> AbstractContextManager[Appending | None]:
    """The agent's memory file, locked; None where it has none. To be taken before a transaction is begun.

    Raises Erased, MemoryDisabled, FileFault.
    """
    if agent.memory_path:
        _require_as_it_stands(agent)  # before anything is made
    return log_file.locked_to_append(place_of(agent)) if agent.memory_path else nullcontext()


def body(task: str, result: str) -> str:
    """What an entry says: the task on one line, the result cut at 1,000 characters, none of whose lines can pose as
    another entry. Raises Invalid."""
    one_line = " ".join(line.strip() for line in checked_content(task, "task").splitlines() if line.strip())
    if len(one_line) > TASK_CHARACTERS:
        raise Invalid("task", f"has {len(one_line):,} characters; at most {TASK_CHARACTERS:,} are allowed")
    if not isinstance(result, str):
        raise Invalid("result", "must be text")
    cut = result[:RESULT_CHARACTERS]
    return f"**Task:** {one_line}\n**Result:** {harmless(checked_content(cut, 'result')) if cut.strip() else ''}"


def harmless(text: str) -> str:
    """With a backslash before what would begin another entry."""
    return _POSES.sub(lambda _: "\\", text)


def entry(at: datetime, body: str) -> str:
    moment = at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")  # strftime has early years short
    return f"## {moment}Z\n{body}\n\n"


def place_of(agent: Agent) -> Place:
    """The agent's memory file, which lies under the operator's roots wherever links lead; one in its tenant's folder
    stays in there."""
    path, roots = Path(agent.memory_path), [Path(root) for root in settings.VAULT_ROOTS]
    real = Path(os.path.realpath(path.parent))
    folders = [root / agent.tenant.slug for root in roots]
    own = [each for each in folders if path.is_relative_to(each) or real.is_relative_to(os.path.realpath(each))]
    return Place(path, tuple(own or roots))


def path_in_roots(given: str) -> str:
    """A memory file's path as it is kept: absolute, under one of the operator's folders. Raises Invalid."""
    try:
        given = str(Path(given).expanduser()) + ("/" if given.endswith("/") else "") if given else ""
    except RuntimeError:
        raise Invalid("memory_path", "begins with a home that nobody has") from None
    return _checked(given, Path(settings.VAULT_ROOTS[0]), [Path(root) for root in settings.VAULT_ROOTS])


def path_in_tenant(tenant: str, given: str) -> str:
    """… under its tenant's folder there: what is named by others than the operator is nobody else's. Raises Invalid."""
    folders = [Path(root) / tenant for root in settings.VAULT_ROOTS]
    if given.startswith("~"):
        raise Invalid("memory_path", "must not begin with ~")
    return _checked(given, folders[0], folders)


def _checked(given: str, base: Path, folders: list[Path]) -> str:
    if not given:
        return ""
    if not given.isprintable():
        raise Invalid("memory_path", "must hold no control character")
    if PurePath(given).name.startswith(PREFIX):
        raise Invalid("memory_path", f"must not begin with {PREFIX}, as what a trim writes does")
    try:
        path = Path(os.path.normpath(base / given))
        real, is_folder = Path(os.path.realpath(path)), path.is_dir()
    except OSError:
        raise Invalid("memory_path", "is no path that the system can follow") from None
    if not any(real.is_relative_to(os.path.realpath(folder)) for folder in folders):
        raise Invalid("memory_path", f"must lie under {' or '.join(str(folder) for folder in folders)}")
    if is_folder or given.endswith(("/", os.sep)) or any(real == Path(os.path.realpath(each)) for each in folders):
        raise Invalid("memory_path", "is a folder; name a file")
    if any(above.is_file() for above in real.parents):
        raise Invalid("memory_path", "lies below a file")
    return str(path)
