"""A vault's folder, where it may lie, and held by one writer at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memory.errors import FileElsewhere, FileFault, VaultBusy
from memory.placing import Folder, Place, folder_of, lock, told
from memory.vault.disk import LOCK, Disk

PATIENCE = 1.0  # seconds for which whoever edits a memory waits for its vault: what is missed is caught up with


@contextmanager
def held(base: Path, roots: tuple[Path, ...]) -> Iterator[Disk]:
    """A vault's folder, which lies under the operator's roots wherever links lead, locked against other writers of
    ours. Raises FileFault, FileElsewhere, VaultBusy."""
    with folder_of(place_of(base, roots), create=True) as folder:
        if folder is None:
            raise FileFault(f"open {base}: there is no such folder", "there is no such folder")
        if folder.path != base:
            raise FileElsewhere(f"{base}: its {LOCK} is a link, which leads elsewhere", "a link leads elsewhere")
        with told("lock", base):
            number = _locked(folder)
        disk = Disk(folder, number)
        try:
            yield disk
        finally:
            disk.close()
            os.close(number)


def place_of(base: Path, roots: tuple[Path, ...]) -> Place:
    """A vault's folder, where nobody has put a link since. Raises FileElsewhere."""
    if Path(os.path.realpath(base)) != base:
        raise FileElsewhere(f"{base}: a link leads elsewhere since it was chosen", "a link leads elsewhere")
    return Place(base / LOCK, roots)


def _locked(folder: Folder) -> int:
    """The lock, held: another one where it was removed while it was waited for, which others would not see."""
    while True:
        number = folder.open(LOCK, os.O_RDWR | os.O_CREAT)
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
