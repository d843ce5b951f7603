"""Check the path of a vault's folder, open the folder, and lock it. So only one process at a time writes to the
folder."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from audit.models import AuditEntry
from audit.trail import changes_digest
from audit.verify import follows
from config.keyring import keyring
from memory.errors import FileFault, Invalid, NotAFile, VaultBusy
from memory.models import Agent
from memory.run_log.files import Folder, Place, file_errors, lock, open_file, opened_below
from memory.vault.disk import CONTAINS, LOCK, Disk, mark_in

ROOM = 10_000_000  # free bytes that a new vault needs
LONGEST = 1_000  # bytes
FIELD = "vault_path"
_LEVELS = 4  # of the folders in which a vault has files
PATIENCE = 1.0  # seconds that an edit waits for the lock; after this time, the next sync writes the files


def roots() -> tuple[Path, ...]:
    return tuple(Path(root) for root in settings.VAULT_ROOTS)


def resolve_path(path: str, beside: Path | None = None, allowed: Sequence[Path] = ()) -> str:
    """Return the absolute path of a vault, with symlinks resolved. Return "" for "". A relative path is relative to the
    folder in `beside`. By default, this is the first allowed folder. ~ means the home folder. The resolved path must be
    inside one of the folders `allowed`. By default, these are VAULT_ROOTS. Raises Invalid."""
    if not path:
        return ""
    allowed = allowed or roots()
    beside = beside or allowed[0]
    if not path.isprintable() or any(part != part.strip() for part in Path(path).parts):
        raise Invalid(FIELD, "must not contain a control character, or a name that begins or ends with a space")
    try:
        real = Path(os.path.realpath(os.path.normpath(beside / Path(path).expanduser())))
        is_file = any(each.is_file() for each in (real, *real.parents))
    except (OSError, RuntimeError):
        raise Invalid(FIELD, "is not a valid path") from None
    if len(os.fsencode(real)) > LONGEST:
        raise Invalid(FIELD, f"must have at most {LONGEST:,} bytes")
    if ".git" in real.parts:
        raise Invalid(FIELD, "must not be inside a .git folder; choose a folder next to it")
    if not any(Path(os.path.realpath(root)) in real.parents for root in allowed):
        raise Invalid(FIELD, f"must be inside {' or '.join(map(str, allowed))} (setting VAULT_ROOTS)")
    if is_file:
        raise Invalid(FIELD, "is a file, or has a parent that is a file; choose a folder")
    return str(real)


def mark_of(agent: Agent) -> str:
    """Return the mark that identifies the agent's vault. The mark comes from the MAC of the first entry of the audit
    trail, so it never changes. Raises FileFault if somebody changed this entry."""
    return _mark(agent.pk, agent.created_at)


@lru_cache(1_000)
def _mark(agent_id: int, _: datetime) -> str:
    first = AuditEntry.objects.filter(agent_id=agent_id).order_by("seq").values()[0]
    if not follows(dict(first), b"", changes_digest([]), keyring().audit):
        raise FileFault("The first entry of the agent's trail was changed.", "the first entry of the trail was changed")
    return bytes(first["mac"]).hex()[:32]


def require_usable(path: str, agent: Agent) -> None:
    """Check that the vault can be at this path. The folder must exist, or this process must be able to create it. It
    must be writable, have enough free space, and not have the mark of another agent. This check removes everything that
    it creates. Raises FileFault, FileOutsideRoots."""
    folder = Path(path)
    missing = [each for each in (folder / LOCK, folder, *folder.parents) if not os.path.lexists(each)]
    try:
        with locked(folder) as disk:  # creates the folder, and writes to it
            disk.require_no_other_owner(mark_of(agent))
            free = shutil.disk_usage(path).free
    finally:
        with suppress(OSError):
            for each in missing:
                each.unlink() if each.name == LOCK else each.rmdir()
    if free < ROOM:
        raise FileFault(f"{path}: only {free:,} bytes are free; {ROOM:,} are needed", "no space left")


def require_no_other_owner(path: str, agent: Agent) -> None:
    """Check that the folder does not have the mark of another agent, is not inside another agent's vault, and contains
    none. A folder that does not exist is accepted. Changes nothing. Raises FileFault, FileOutsideRoots."""
    mark = mark_of(agent)
    with unlocked(Path(path)) as disk:
        if disk.require_no_other_owner(mark) or any(mark_in(above) == mark for above in disk.path.parents):
            return  # no vault begins inside the agent's own
    if any(each != mark for each in _marks_in(path, _LEVELS)):
        raise FileFault(f"{path}: {CONTAINS}", CONTAINS)


def _marks_in(folder: str, levels: int) -> Iterator[str]:
    """The marks of the vaults in a folder. No vault begins inside another one, so its folders are not read."""
    with suppress(OSError), os.scandir(folder) as entries:
        for each in entries:
            if each.is_dir(follow_symlinks=False):
                if mark := mark_in(Path(each.path)):
                    yield mark
                elif levels > 1:
                    yield from _marks_in(each.path, levels - 1)


def alternatives(agent: Agent) -> list[str]:
    """Return other paths at which the agent can have its vault."""
    found = []
    for root in roots():
        path = str(root / agent.tenant.slug / agent.slug)
        with suppress(FileFault):
            require_usable(path, agent)
            found.append(path)
    return found


# --- opening and locking


@contextmanager
def locked(base: Path) -> Iterator[Disk]:
    """Open a vault's folder and lock it against other writers of this service. Raises FileFault, FileOutsideRoots,
    VaultBusy."""
    with _folder_at(base, create=True) as folder:
        if folder is None:
            raise FileFault(f"open {base}: the folder does not exist", "the folder does not exist")
        with file_errors("lock", base):
            mark = _locked_mark(folder)
        with mark:
            disk = Disk(folder, mark.fileno())
            try:
                yield disk
            finally:
                disk.drop_staged()


@contextmanager
def unlocked(base: Path) -> Iterator[Disk]:
    """Open a vault's folder for reading, without the lock. The folder does not need to exist. Raises FileFault,
    FileOutsideRoots."""
    with _folder_at(base) as folder:
        yield Disk(folder or Folder(base, -1, ""), -1)


@contextmanager
def _folder_at(base: Path, *, create: bool = False) -> Iterator[Folder | None]:
    """Open a folder inside VAULT_ROOTS. Each folder of the path is opened relative to its parent folder. So a symlink
    that somebody creates later is not followed."""
    trusted, below = Place(base, roots()).real()
    folder = None
    with file_errors("open", base), suppress(FileNotFoundError):
        folder = opened_below(trusted, below / LOCK, create=create)
    with closing(folder) if folder else nullcontext():
        yield folder


def _locked_mark(folder: Folder) -> BinaryIO:
    """Open and lock the lock file. While this function waits for the lock, somebody may remove the file. Other writers
    would not notice the lock of a removed file. So a new file is created and locked."""
    while True:
        try:
            file = open_file(folder, LOCK, folder.path, os.O_RDWR | os.O_CREAT)
        except NotAFile:
            raise FileFault(f"{folder.path}: its {LOCK} is not a file", "its mark is not a file") from None
        is_held = False
        try:
            if os.fstat(file.fileno()).st_nlink > 1:  # a write would also change the other file
                raise FileFault(f"{folder.path}: its {LOCK} has a second hard link", "its mark has a second hard link")
            lock(file.fileno(), PATIENCE)
            is_held = folder.has(LOCK, file.fileno())
        except BlockingIOError:
            reason = "is locked by another program"
            raise VaultBusy(f"{folder.path}: {reason}. Try again.", reason) from None
        finally:
            if not is_held:
                file.close()
        if is_held:
            return file
