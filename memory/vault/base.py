"""The folder of a vault (seed 004, "Storage Path Handling"): where a path leads, whether a vault can be there, and who
holds it: one writer at a time."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from audit.models import AuditEntry
from memory.errors import FileFault, FileOutsideRoots, Invalid, VaultBusy
from memory.models import Agent
from memory.run_log.files import Folder, Place, file_errors, lock, opened_below
from memory.vault.disk import LOCK, Disk

ROOM = 10_000_000  # bytes that have to be free where one is begun
LONGEST = 1_000  # bytes
FIELD = "vault_path"
PATIENCE = 1.0  # seconds for which whoever edits a memory waits for its vault: what is missed is caught up with


def roots() -> tuple[Path, ...]:
    return tuple(Path(root) for root in settings.VAULT_ROOTS)


def resolved(given: str, beside: Path | None = None, allowed: Sequence[Path] = ()) -> str:
    """The absolute path: of a relative one below `beside` (the project's root), of ~ in the home, of an absolute one as
    it is. It lies under one of the `allowed` folders (default: the roots, relative ones in the first) wherever links
    lead, and is told without them, so that two names of one folder are seen to be one. Raises Invalid."""
    if not given:
        return ""
    allowed = allowed or roots()
    beside = beside or allowed[0]
    if not given.isprintable() or any(part != part.strip() for part in Path(given).parts):
        raise Invalid(FIELD, "has a control character in it, or a name that begins or ends with a blank")
    try:
        real = Path(os.path.realpath(os.path.normpath(beside / Path(given).expanduser())))
        is_file = any(each.is_file() for each in (real, *real.parents))
    except (OSError, RuntimeError):
        raise Invalid(FIELD, "is no path that the system can follow") from None
    if len(os.fsencode(real)) > LONGEST:
        raise Invalid(FIELD, f"must have at most {LONGEST:,} bytes")
    if ".git" in real.parts:
        raise Invalid(FIELD, "lies in what git keeps for itself; name a folder beside .git")
    if not any(_is_below(real, root) for root in allowed):
        raise Invalid(FIELD, f"must lie under {' or '.join(map(str, allowed))} (VAULT_ROOTS)")
    if is_file:
        raise Invalid(FIELD, "is a file, or lies below one; name a folder")
    return str(real)


def _is_below(real: Path, root: Path) -> bool:
    trusted = Path(os.path.realpath(root))
    return real.is_relative_to(trusted) and real != trusted


def mark_of(agent: Agent) -> str:
    """By which a vault's folder is known to be this agent's: opaque, and the same for ever, for it is how its trail
    begins."""
    return _mark(agent.pk, agent.created_at)


@lru_cache(1_000)
def _mark(agent_id: int, _: datetime) -> str:
    first = AuditEntry.objects.filter(agent_id=agent_id).order_by("seq").values_list("mac", flat=True)[0]
    return bytes(first).hex()[:32]


def require_usable(path: str, agent: Agent) -> None:
    """That it is there or can be made, is nobody else's vault, can be written to, and has room. What is made to find
    out is removed again. Raises FileFault, FileOutsideRoots."""
    folder = Path(path)
    missing = [each for each in (folder / LOCK, folder, *folder.parents) if not each.exists()]
    try:
        with held(folder) as disk:  # makes it, and writes to it
            disk.require_nobody_elses(mark_of(agent))
            free = shutil.disk_usage(path).free
    finally:
        with suppress(OSError):
            for each in missing:
                each.unlink() if each.name == LOCK else each.rmdir()
    if free < ROOM:
        raise FileFault(f"{path}: has {free:,} bytes left; {ROOM:,} are needed", "no space left")


def require_nobody_elses(path: str, agent: Agent) -> None:
    """That the folder, where there is one, has no mark but this agent's. Changes nothing. Raises FileFault,
    FileOutsideRoots."""
    with looked_at(Path(path)) as disk:
        if disk is not None:
            disk.require_nobody_elses(mark_of(agent))


def alternatives(agent: Agent) -> list[str]:
    """Other places where a vault could be."""
    found = []
    for root in roots():
        path = str(root / agent.tenant.slug / agent.slug)
        try:
            require_usable(path, agent)
        except FileFault:
            continue
        found.append(path)
    return found


# --- held


@contextmanager
def held(base: Path) -> Iterator[Disk]:
    """A vault's folder, locked against other writers of ours. Raises FileFault, FileOutsideRoots, VaultBusy."""
    with _folder_at(base, create=True) as folder:
        if folder is None:
            raise FileFault(f"open {base}: there is no such folder", "there is no such folder")
        with file_errors("lock", base):
            number = _locked(folder)
        disk = Disk(folder, number)
        try:
            yield disk
        finally:
            disk.drop_staged()
            os.close(number)


@contextmanager
def looked_at(base: Path) -> Iterator[Disk | None]:
    """A vault's folder without its lock, to read; None if it does not exist. Raises FileFault, FileOutsideRoots."""
    with _folder_at(base) as folder:
        yield None if folder is None else Disk(folder, -1)


@contextmanager
def _folder_at(base: Path, *, create: bool = False) -> Iterator[Folder | None]:
    """A folder below the operator's roots. From the root downward each part is opened in the one before it: no link
    that was put there since the folder was chosen is followed."""
    if os.path.realpath(base) != str(base):
        raise FileOutsideRoots(f"{base}: a link leads elsewhere since it was chosen", "a link leads elsewhere")
    trusted, below = Place(base, roots()).real()
    with file_errors("open", base):
        folder = opened_below(trusted, below / LOCK, create=create)
    try:
        yield folder
    finally:
        if folder is not None:
            folder.close()


def _locked(folder: Folder) -> int:
    """The lock, held: another one where it was removed while it was waited for, which others would not see."""
    while True:
        number = _lock_file(folder)
        is_held = False
        try:
            there = os.fstat(number)
            if not stat.S_ISREG(there.st_mode):
                raise FileFault(f"{folder.path}: its {LOCK} is no file", "its mark is no file")
            if there.st_nlink > 1:  # what is written to it would be written to the other
                raise FileFault(f"{folder.path}: its {LOCK} has another name, too", "its mark has another name, too")
            lock(number, PATIENCE)
            is_held = folder.has(LOCK, number)
        except BlockingIOError:
            reason = "is locked by another program"
            raise VaultBusy(f"{folder.path}: {reason}, which writes there. Try again.", reason) from None
        finally:
            if not is_held:
                os.close(number)
        if is_held:
            return number


def _lock_file(folder: Folder) -> int:
    try:
        return folder.open(LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise
    raise FileOutsideRoots(f"{folder.path}: its {LOCK} is a link, which leads elsewhere", "a link leads elsewhere")
