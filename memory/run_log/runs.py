"""Log an agent's runs. This module defines the format of a log entry, and chooses where the entry is written.

If the agent has a memory file, an entry is added to this file. Otherwise the entry is stored in the agent's journal as
a memory with the source "run".
"""

import os
import re
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path, PurePath

from django.conf import settings
from django.utils import timezone

from audit.models import ActorKind
from audit.trail import Actor
from memory.access import authority
from memory.access.authentication import require_valid_key
from memory.errors import FileFault, Invalid, MemoryDisabled
from memory.models import Agent, Kind, Source
from memory.policy.validation import Draft, checked_content
from memory.run_log import log_file
from memory.run_log.files import PREFIX, Place
from memory.writing import edits, operations

RESULT_CHARACTERS = 1_000
TASK_CHARACTERS = 2_000
_HEADER = re.compile(r"(?<=[\n\r])(?=## )")


def log_run(agent: Agent, task: str, result: str, actor: Actor, file: log_file.Opened | None = None) -> int | None:
    """Log a run. Return the number of the journal memory, or None if the run was logged in the memory file. If the
    caller has locked the memory file with `locked_file`, `file` is this locked file. Without `file`, this function
    locks the memory file.

    Raises Invalid, MemoryDisabled, FileFault, Erased.
    """
    text = body(task, result)
    if not agent.memory_path:
        return operations.remember(agent, [Draft(text, kind=Kind.JOURNAL, source=Source.RUN)], actor).memory.number
    data = entry(timezone.now(), text).encode()
    with nullcontext(file) if file else _locked(agent) as opened, edits.locked(agent) as row:
        _require_current(agent, row)  # while this waited for the locks, a claim may have changed the path
        opened.add(data)
    return None


def _require_current(agent: Agent, row: Agent | None = None) -> None:
    """Read the agent's row again, unless it is locked. Check that the key of the request is still valid, that the agent
    is not erased, that memory is on, and that the path of the memory file is the same. Raises KeyRejected, Erased,
    MemoryDisabled, FileFault."""
    if row is None:
        row = Agent.objects.select_related("tenant").get(pk=agent.pk)
        authority.require(row)
    require_valid_key(row)
    edits.require_key(row)
    if not row.memory_enabled:
        raise MemoryDisabled
    if row.memory_path != agent.memory_path:
        raise FileFault("The path of this agent's memory file was changed in the meantime. Nothing was written.")


def locked_file(agent: Agent) -> AbstractContextManager[log_file.Opened | None]:
    """Lock the agent's memory file. If the agent has no memory file, the block gets None instead. Callers must lock the
    file before they begin a transaction.

    Raises Erased, MemoryDisabled, FileFault.
    """
    return _locked(agent) if agent.memory_path else nullcontext()


def _locked(agent: Agent) -> AbstractContextManager[log_file.Opened]:
    _require_current(agent)  # check this before the file is created
    return log_file.locked_to_append(place_of(agent))


def body(task: str, result: str) -> str:
    """Return the text of an entry. This text has the task on one line, and the first 1,000 characters of the result.
    Headers in the result are escaped. Raises Invalid."""
    one_line = " ".join(line.strip() for line in checked_content(task, "task").splitlines() if line.strip())
    if len(one_line) > TASK_CHARACTERS:
        raise Invalid("task", f"has {len(one_line):,} characters; the maximum is {TASK_CHARACTERS:,}")
    if not isinstance(result, str):
        raise Invalid("result", "must be text")
    cut = result[:RESULT_CHARACTERS]
    return f"**Task:** {one_line}\n**Result:** {harmless(checked_content(cut, 'result')) if cut.strip() else ''}"


def harmless(text: str) -> str:
    """Return the text with a backslash before each line that would otherwise start another entry."""
    return _HEADER.sub(lambda _: "\\", text)


def entry(at: datetime, body: str) -> str:
    moment = at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")  # strftime does not pad early years
    return f"## {moment}Z\n{body}\n\n"


def place_of(agent: Agent) -> Place:
    """Return the place of the agent's memory file. The file must be inside one of the folders in VAULT_ROOTS."""
    return Place(Path(agent.memory_path), tuple(Path(root) for root in settings.VAULT_ROOTS))


def path_in_roots(text: str) -> str:
    """Check the path of a memory file, and return the absolute path, with symlinks resolved. The file must be inside
    one of the folders in VAULT_ROOTS. Raises Invalid."""
    try:
        text = str(Path(text).expanduser()) + ("/" if text.endswith("/") else "") if text else ""
    except RuntimeError:
        raise Invalid("memory_path", "starts with the home folder of an unknown user") from None
    return _checked(text, [Path(root) for root in settings.VAULT_ROOTS])


def path_in_tenant(tenant: str, text: str) -> str:
    """Check the path of a memory file, and return the absolute path, with symlinks resolved. The file must be inside
    the tenant's folder. Use this function if the path does not come from the operator. Raises Invalid."""
    folders = [Path(root) / tenant for root in settings.VAULT_ROOTS]
    if text.startswith("~"):
        raise Invalid("memory_path", "must not begin with ~")
    return _checked(text, folders)


def require_new(path: str, chosen_by: str) -> None:
    """Refuse a file that exists, because another agent may have left it. Only operators can choose such a file. Raises
    Invalid."""
    if path and chosen_by != ActorKind.OPERATOR and os.path.lexists(path):
        raise Invalid("memory_path", "is a file that exists already: choose another path, or ask an operator")


def _checked(text: str, folders: list[Path]) -> str:
    if not text:
        return ""
    if not text.isprintable():
        raise Invalid("memory_path", "must not have control characters")
    if PurePath(text).name.startswith(PREFIX):
        raise Invalid("memory_path", f"must not begin with {PREFIX}, which is for temporary files")
    try:
        real = Path(os.path.realpath(os.path.normpath(folders[0] / text)))
        is_folder = real.is_dir()
    except OSError:
        raise Invalid("memory_path", "is a path that cannot be opened") from None
    if not any(real.is_relative_to(os.path.realpath(folder)) for folder in folders):
        raise Invalid("memory_path", f"must be under {' or '.join(str(folder) for folder in folders)}")
    if is_folder or text.endswith(("/", os.sep)) or any(real == Path(os.path.realpath(each)) for each in folders):
        raise Invalid("memory_path", "is a folder; choose a file")
    if any(above.is_file() for above in real.parents):
        raise Invalid("memory_path", "has a parent that is a file, not a folder; choose another path")
    return str(real)
