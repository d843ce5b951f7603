"""The log of an agent's runs: the form of an entry, and where it is written.

An entry goes to the agent's memory file if there is one, and otherwise becomes a run memory in the agent's journal.
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
from memory.run_log.files import PREFIX, Place
from memory.run_log.log_file import Opened
from memory.writing import edits, operations

RESULT_CHARACTERS = 1_000
TASK_CHARACTERS = 2_000
_HEADER = re.compile(r"(?<=[\n\r])(?=## )")


def log_run(agent: Agent, task: str, result: str, actor: Actor, file: Opened | None = None) -> int | None:
    """Log a run. Returns the number of the journal memory, or None for a memory file. The file is locked here unless
    the caller has locked it (`locked_file`).

    Raises Invalid, MemoryDisabled, FileFault, Erased.
    """
    text = body(task, result)
    if not agent.memory_path:
        return operations.remember(agent, [Draft(text, kind=Kind.JOURNAL, source=Source.RUN)], actor).memory.number
    _require_current(agent)
    data = entry(timezone.now(), text).encode()
    if file is None:
        log_file.append(place_of(agent), data)
    else:
        file.add(data)
    return None


def _require_current(agent: Agent) -> None:
    """Check again what may have changed since the agent's row was read."""
    row = Agent.objects.select_related("tenant").get(pk=agent.pk)
    edits.require_key(row)
    if not row.memory_enabled:
        raise MemoryDisabled
    if row.memory_path != agent.memory_path:
        raise FileFault("The memory file of this agent was changed meanwhile. Nothing was written.")


def locked_file(agent: Agent) -> AbstractContextManager[Opened | None]:
    """The agent's memory file, locked; None if the agent has none. Lock it before a transaction begins.

    Raises Erased, MemoryDisabled, FileFault.
    """
    if agent.memory_path:
        _require_current(agent)  # before the file is created
        return log_file.locked_to_append(place_of(agent))
    return nullcontext()


def body(task: str, result: str) -> str:
    """The text of an entry: the task on one line, and the result cut at 1,000 characters, with its headers escaped.
    Raises Invalid."""
    one_line = " ".join(line.strip() for line in checked_content(task, "task").splitlines() if line.strip())
    if len(one_line) > TASK_CHARACTERS:
        raise Invalid("task", f"has {len(one_line):,} characters; at most {TASK_CHARACTERS:,} are allowed")
    if not isinstance(result, str):
        raise Invalid("result", "must be text")
    cut = result[:RESULT_CHARACTERS]
    return f"**Task:** {one_line}\n**Result:** {harmless(checked_content(cut, 'result')) if cut.strip() else ''}"


def harmless(text: str) -> str:
    """Puts a backslash before each line that would start another entry."""
    return _HEADER.sub(lambda _: "\\", text)


def entry(at: datetime, body: str) -> str:
    moment = at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")  # strftime shortens early years
    return f"## {moment}Z\n{body}\n\n"


def place_of(agent: Agent) -> Place:
    """The agent's memory file. It must lie under the operator's roots, or in its tenant's folder if it is there, also
    after symlinks are resolved."""
    path, roots = Path(agent.memory_path), [Path(root) for root in settings.VAULT_ROOTS]
    real = Path(os.path.realpath(path.parent))
    folders = [root / agent.tenant.slug for root in roots]
    own = [each for each in folders if path.is_relative_to(each) or real.is_relative_to(os.path.realpath(each))]
    return Place(path, tuple(own or roots))


def path_in_roots(given: str) -> str:
    """The absolute path of a memory file under one of the operator's folders. Raises Invalid."""
    try:
        given = str(Path(given).expanduser()) + ("/" if given.endswith("/") else "") if given else ""
    except RuntimeError:
        raise Invalid("memory_path", "begins with a home that nobody has") from None
    return _checked(given, Path(settings.VAULT_ROOTS[0]), [Path(root) for root in settings.VAULT_ROOTS])


def path_in_tenant(tenant: str, given: str) -> str:
    """The same under the tenant's folder, for a path that somebody else than the operator names. Raises Invalid."""
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
