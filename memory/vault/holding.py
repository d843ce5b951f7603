"""A vault's folder, where it may lie, and held by one writer at a time."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memory.errors import FileElsewhere, FileFault, VaultBusy
from memory.run_log.files import Folder, lock, opened_below, told
from memory.vault.disk import LOCK, Disk

PATIENCE = 1.0  # seconds for which whoever edits a memory waits for its vault: what is missed is caught up with


@contextmanager
def held(base: Path, roots: tuple[Path, ...]) -> Iterator[Disk]:
    """A vault's folder, which lies under the operator's roots wherever links lead, locked against other writers of
    ours. Raises FileFault, FileElsewhere, VaultBusy."""
    with folder_at(base, roots, create=True) as folder:
        if folder is None:
            raise FileFault(f"open {base}: there is no such folder", "there is no such folder")
        with told("lock", base):
            number = _locked(folder)
        disk = Disk(folder, number)
        try:
            yield disk
        finally:
            disk.close()
            os.close(number)


@contextmanager
def folder_at(base: Path, roots: tuple[Path, ...], *, create: bool = False) -> Iterator[Folder | None]:
    """A vault's folder, open; None where there is none. It was chosen without links: from the root downward each part
    is opened in the one before it, so that none that was put there since is followed. Raises FileFault,
    FileElsewhere."""
    trusted = _root_of(base, roots)
    try:
        with told("open", base):
            folder = opened_below(trusted, base.relative_to(trusted) / LOCK, create=create)
    except FileFault:
        _require_no_link(base)  # which is what the system refused, if it is there
        raise
    try:
        yield folder
    finally:
        if folder is not None:
            folder.close()


def _root_of(base: Path, roots: tuple[Path, ...]) -> Path:
    for root in roots:
        trusted = Path(os.path.realpath(root))
        if base.is_relative_to(trusted) and base != trusted:
            return trusted
    _require_no_link(base)
    where = f"does not lie under {' or '.join(map(str, roots))} (VAULT_ROOTS)"
    raise FileElsewhere(f"{base}: {where}", where)


def _require_no_link(base: Path) -> None:
    if Path(os.path.realpath(base)) != base:
        raise FileElsewhere(f"{base}: a link leads elsewhere since it was chosen", "a link leads elsewhere")


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
