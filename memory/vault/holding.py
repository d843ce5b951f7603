"""A vault's folder, where it may lie, and held by one writer at a time."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from memory.errors import FileElsewhere, FileFault, VaultBusy
from memory.run_log.files import Folder, Place, lock, opened_below, told
from memory.vault.disk import LOCK, Disk

PATIENCE = 1.0  # seconds for which whoever edits a memory waits for its vault: what is missed is caught up with


def roots() -> tuple[Path, ...]:
    return tuple(Path(root) for root in settings.VAULT_ROOTS)


@contextmanager
def held(base: Path) -> Iterator[Disk]:
    """A vault's folder, locked against other writers of ours. Raises FileFault, FileElsewhere, VaultBusy."""
    with _folder_at(base, create=True) as folder:
        if folder is None:
            raise FileFault(f"open {base}: there is no such folder", "there is no such folder")
        with told("lock", base):
            number = _locked(folder)
        disk = Disk(folder, number)
        try:
            yield disk
        finally:
            disk.drop_staged()
            os.close(number)


@contextmanager
def looked_at(base: Path) -> Iterator[Disk | None]:
    """A vault's folder without its lock, to read; None if it does not exist. Raises FileFault, FileElsewhere."""
    with _folder_at(base) as folder:
        yield None if folder is None else Disk(folder, -1)


@contextmanager
def _folder_at(base: Path, *, create: bool = False) -> Iterator[Folder | None]:
    """A folder below the operator's roots. From the root downward each part is opened in the one before it: no link
    that was put there since the folder was chosen is followed."""
    if os.path.realpath(base) != str(base):
        raise FileElsewhere(f"{base}: a link leads elsewhere since it was chosen", "a link leads elsewhere")
    trusted, below = Place(base, roots()).real()
    with told("open", base):
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
    raise FileElsewhere(f"{folder.path}: its {LOCK} is a link, which leads elsewhere", "a link leads elsewhere")
