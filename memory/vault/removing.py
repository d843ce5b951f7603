"""What is removed for good is in no file of the vault either, whatever somebody made of the files; what is a person's
own stays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from django.db.models import QuerySet

from audit.models import AuditEntry, Operation
from memory.errors import FileFault
from memory.models import Agent, Memory
from memory.rules.rows import VaultFile
from memory.vault import naming, pages, rendering
from memory.vault.disk import NEW, Disk

_NUMBERED = re.compile(r"(\d{6,})(-.*)?\.md\Z")


def remove(disk: Disk, paths: Mapping[int, PurePosixPath | None]) -> None:
    """Every file of these memories: at its path (by number; None where none is known), or put aside from there; called
    by a memory's number, or saying it, be it a copy; and what a killed writer left, which may be of any. Raises
    FileFault where one of them cannot be removed."""
    names = {path.stem: path for path in paths.values() if path is not None}
    others = []
    for path in list(disk.files()):
        if path.name.startswith(NEW) or _number_of(path) in paths or _was_at(path, names):
            disk.remove(path)
        else:
            others.append(path)
    for path in others:  # the last, for where one cannot be read it may be a copy: the removal is owed
        if _said(disk, path) in paths:
            disk.remove(path)


def remove_all(disk: Disk, agent: Agent) -> None:
    """Every file that is a memory's, or an index, or is called as one of this agent's is: what is somebody else's
    stays. Raises FileFault where one of them cannot be removed."""
    for path in list(disk.files()):
        # A person's file may begin with a date: no number of a memory there was.
        is_called_so = 0 < _number_of(path) < agent.next_number
        if path.name.startswith(NEW) or is_called_so or _is_ours(disk, path):
            disk.remove(path)
    for above, _, _ in sorted(os.walk(disk.path), reverse=True):
        with suppress(OSError):  # what is not empty stays
            if Path(above) != disk.path:
                Path(above).rmdir()


def owes(agent: Agent) -> bool:
    """Whether its vault has still a file, as far as is known, of what was redacted."""
    return owed(agent).exists()


def owed(agent: Agent) -> QuerySet[VaultFile]:
    """Those files."""
    redacted = Memory.objects.filter(agent_id=agent.pk, redacted_at__isnull=False).values("number")
    return VaultFile.objects.filter(agent_id=agent.pk, number__in=redacted)


def former(agent: Agent) -> tuple[str, ...]:
    """Folders that were its vault once, and are not: what they hold is not looked at, and no removal reaches it."""
    changes = AuditEntry.objects.filter(
        agent_id=agent.pk, operation__in=(Operation.AGENT_CREATED, Operation.AGENT_CHANGED)
    )
    told = changes.order_by("seq").values_list("detail", flat=True)
    paths = dict.fromkeys(detail.get("vault_path") or detail.get("changed", {}).get("vault_path") for detail in told)
    return tuple(path for path in paths if path and path != agent.vault_path)


def _number_of(path: PurePosixPath) -> int:
    """The number that a file's name begins with, as ours do; 0 where it has none."""
    named = _NUMBERED.match(path.name)
    return int(named[1]) if named is not None and named[1] == f"{int(named[1]):06}" else 0


def _was_at(path: PurePosixPath, names: Mapping[str, PurePosixPath]) -> bool:
    """Whether a file is at one of these paths, or was put aside from there (`Disk.out_of_the_way`)."""
    known = names.get(re.sub(r"-found-\d+\Z", "", path.stem))
    return known is not None and path.parent in {known.parent, naming.aside(known).parent, naming.back(known).parent}


def _is_ours(disk: Disk, path: PurePosixPath) -> bool:
    try:
        return _said(disk, path) is not None or pages.is_page(path, disk.read(path) or b"")
    except FileFault:  # that nobody lets this process read
        return False


def _said(disk: Disk, path: PurePosixPath) -> int | None:
    """The number of the memory that a file says it is of, however it is encoded by now. Raises FileFault."""
    data = disk.read(path)
    return None if data is None else rendering.number_in(data.decode(errors="replace"))
