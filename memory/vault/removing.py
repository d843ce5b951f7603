"""What is removed for good is in no file of the vault either, whatever somebody made of the files; what is a person's
own stays.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from django.db.models import QuerySet

from audit.models import AuditEntry, Operation
from memory.errors import FileFault
from memory.models import Agent, Memory, VaultFile
from memory.vault import layout
from memory.vault.disk import NEW, Disk

# What editors put before the name of a file for its backup, or for what is not saved yet.
_BEFORE = r"(?:\.~lock\.|\.#|~\$|[.#~])?"
_NUMBERED = re.compile(rf"{_BEFORE}(\d{{6,}})(?![^\W_])")
_NAMED = re.compile(rf"{_BEFORE}(.+?)(?:-found-\d+)?\.md(?![^\W_])")  # … and behind it
_NUMBER_IN = re.compile(r"(?<!\d)(\d{6,})-")
_METADATA = re.compile(r"^[ \t>]*## Metadata[ \t]*$", re.MULTILINE)
_ID = re.compile(r"^[ \t>]*- \*\*(?:Memory|Interaction|Topic) ID\*\*: *(\d{1,18})[ \t]*$", re.MULTILINE)
_UTF_16 = (
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"#\0", "utf-16-le"),
    (b"\0#", "utf-16-be"),
)

Paths = Mapping[int, PurePosixPath | None]


def remove(disk: Disk, paths: Paths) -> None:
    """Every file of these memories: at its path (by number; None where none is known), or put aside from there; called
    by a memory's number, or as its file is but for what an editor adds; or saying it, be it a copy; and what a killed
    writer left, which may be of any. Raises FileFault where one of them cannot be removed, after all others are."""
    stems = {path.stem: path for path in paths.values() if path is not None}

    def is_of_them(path: PurePosixPath) -> bool:
        if path.name.startswith(NEW) or _number_of(path) in paths or _was_at(path, stems) or _has_name_of(path, paths):
            return True
        return _said(disk, path) in paths  # where one cannot be read it may be a copy: the removal is owed

    _remove_each(disk, is_of_them)


def remove_all(disk: Disk, agent: Agent) -> None:
    """Every file that is a memory's, or an index, or is called as one of this agent's is: what is somebody else's
    stays. Raises FileFault where one of them cannot be removed, after all others are."""

    def is_of_agent(path: PurePosixPath) -> bool:
        # A person's file may begin with a date: no number of a memory there was.
        is_called_so = 0 < _number_of(path) < agent.next_number
        return path.name.startswith(NEW) or is_called_so or _is_ours(disk, path)

    _remove_each(disk, is_of_agent)
    for above, _, _ in sorted(os.walk(disk.path), reverse=True):
        with suppress(OSError):  # what is not empty stays
            if Path(above) != disk.path:
                Path(above).rmdir()


def _remove_each(disk: Disk, is_to_go: Callable[[PurePosixPath], bool]) -> None:
    faults: list[FileFault] = []
    for path in list(disk.files(faults)):
        try:
            if is_to_go(path):
                disk.remove(path)
        except FileFault as fault:
            faults.append(fault)
    if faults:
        raise faults[0]


def owes(agent: Agent) -> bool:
    """Whether its vault has still a file, as far as is known, of what was redacted."""
    return owed(agent).exists()


def owed(agent: Agent) -> QuerySet[VaultFile]:
    """Those files."""
    redacted = Memory.objects.of(agent).filter(redacted_at__isnull=False).values("number")
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


def _was_at(path: PurePosixPath, stems: Mapping[str, PurePosixPath]) -> bool:
    """Whether a file is at one of these paths, is an editor's of one, or was put aside from there
    (`Disk.out_of_the_way`)."""
    named = _NAMED.match(path.name)
    known = stems.get(named[1]) if named is not None else None
    return known is not None and path.parent in {known.parent, layout.aside(known).parent, layout.back(known).parent}


def _has_name_of(path: PurePosixPath, paths: Paths) -> bool:
    """Whether one of the numbered names is in its own, as in that of a copy."""
    known = (paths.get(int(number)) for number in _NUMBER_IN.findall(path.name))
    return any(each is not None and each.stem in path.name for each in known)


def _is_ours(disk: Disk, path: PurePosixPath) -> bool:
    try:
        return _said(disk, path) is not None or layout.is_page(path, disk.read(path) or b"")
    except FileFault:  # that nobody lets this process read
        return False


def _said(disk: Disk, path: PurePosixPath) -> int | None:
    """The number of the memory that a file says it is of, however it is encoded by now, or quoted. Raises FileFault."""
    data = disk.read(path)
    if data is None:
        return None
    encoding = next((encoding for begun, encoding in _UTF_16 if data.startswith(begun)), "utf-8")
    text = re.sub(r"\r\n?", "\n", data.decode(encoding, "replace"))
    begun = _METADATA.search(text)
    said = _ID.search(text, begun.end()) if begun is not None else None
    return int(said[1]) if said is not None else None
