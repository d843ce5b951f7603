"""An agent's memory file: a markdown log of its runs. Each line that begins with "## " starts an entry.

The file is read in pieces, so a large file does not need more RAM. Its bytes are never decoded. All writers of this
service lock the file. Other programs may write without a lock. So after the file is replaced, the old file is read
again, and late writes are copied to the new file.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import BinaryIO, NamedTuple

from memory.errors import FileFault
from memory.run_log import files
from memory.vault.disk import mark_in

HEADER = b"\n## "  # on the first line of a file, a header has no newline before it
CHUNK = 1 << 18  # bytes read at a time
WRITER_SECONDS = 2.0  # a trim waits at most this long for another program that writes to the file


class FileState(NamedTuple):
    """The state of a memory file at the time of reading: the number of entries, the size in bytes, and the SHA-256 of
    the content."""

    entries: int
    size: int
    digest: str
    stamp: tuple[int, ...] = ()  # if the stamp is the same later, nobody wrote to the file


class Trimmed(NamedTuple):
    """The result of a trim. `after` is None if the file was not changed."""

    removed: int
    kept: int
    before: FileState
    after: FileState | None = None


class _Counter:
    """Counts the entries and bytes of a file, and computes the file's hash. The content is added in pieces."""

    def __init__(self) -> None:
        self.entries, self.size, self._digest, self._end = 0, 0, hashlib.sha256(), b"\n"

    def add(self, piece: bytes) -> bytes:
        data = self._end + piece
        self._digest.update(piece)
        self.entries += data.count(HEADER)
        self.size += len(piece)
        self._end = data[1 - len(HEADER) :]
        return piece

    def state(self, stamp: tuple[int, ...] = ()) -> FileState:
        return FileState(self.entries, self.size, self._digest.hexdigest(), stamp)


# --- reading


def state_of(place: files.Place) -> FileState | None:
    """Return the state of the file, or None if there is no file. Raises FileFault."""
    with files.file_errors("open", place), suppress(FileNotFoundError), _opened(place) as opened:
        return _state(opened.file)
    return None


def read(place: files.Place, state: FileState, start: int = 0) -> Iterator[bytes]:
    """Yield the bytes of the file in pieces, from `start` to the size in `state`. Raises FileFault, also if somebody
    removed or shortened the file."""
    with files.file_errors("read", place), _opened(place) as opened:
        yield from _between(opened.file, start, state.size)


def start_of_last(place: files.Place, state: FileState, entries: int) -> int:
    """Return the offset at which the last N entries begin. N is `entries`. Raises FileFault."""
    with files.file_errors("read", place), _opened(place) as opened:
        return _start_of_last(opened.file, state.size, entries)


def _state(file: BinaryIO, size: int | None = None) -> FileState:
    """Return the state of the first `size` bytes of the file. The default is the size of the file at the start of
    reading. So bytes that other programs append during the reading are not included."""
    stamp, counter = _stamp(file), _Counter()
    for piece in _between(file, 0, _size(file) if size is None else size):
        counter.add(piece)
    return counter.state(stamp)


def _start_of_last(file: BinaryIO, size: int, entries: int) -> int:
    """Search backwards for the start of the last N entries. N is `entries`. Each chunk is read together with the start
    of the chunk after it, so that every header is complete in some chunk."""
    end = size
    while end > 0:
        start = max(0, end - CHUNK)
        data = b"".join(_between(file, start, min(size, end + len(HEADER) - 1)))
        data, first = (data, start) if start else (b"\n" + data, -1)
        found = data.count(HEADER)
        if found >= entries:
            at = len(data)
            for _ in range(entries):
                at = data.rindex(HEADER, 0, at)
            return first + at + 1
        entries, end = entries - found, start
    raise FileFault("The memory file was rewritten in the meantime.")


def _between(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    file.seek(start)
    while start < end:
        if not (piece := file.read(min(CHUNK, end - start))):
            raise FileFault("The memory file was shortened in the meantime.")
        yield piece
        start += len(piece)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _stamp(file: BinaryIO) -> tuple[int, ...]:
    stat = os.fstat(file.fileno())
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


# --- trimming


OnTrim = Callable[[Trimmed], None]


def trim_entries(
    place: files.Place, keep_n: int, since: FileState | None = None, before_replace: OnTrim | None = None
) -> Trimmed:
    """Keep the last `keep_n` entries of the file. Also keep all entries that are newer than the state `since` of the
    file. Remove all other entries. If `keep_n` is 0, remove nothing.

    The file is replaced as a whole or not at all. `before_replace` is called when the new file is complete, before the
    replacement. If `before_replace` raises an error, the file does not change. If the file was removed or rewritten
    after the state `since` was read, FileFault is raised and nothing changes. FileFault is also raised for other
    problems with the file.
    """
    if keep_n < 0:
        raise FileFault("keepN must be non-negative")
    with files.file_errors("open", place), suppress(FileNotFoundError), _locked(place) as opened:
        files.clear(opened.folder)
        now = _state_now(opened, since)
        keep = keep_n if since is None else max(keep_n, now.entries - since.entries)
        if keep_n == 0 or now.entries <= keep:
            return Trimmed(0, now.entries, now)
        return _replace(opened, now, keep, before_replace)
    if since is not None:
        raise FileFault(f"{place} was removed in the meantime. Nothing was trimmed.")
    return Trimmed(0, 0, _Counter().state())


def _state_now(opened: Opened, since: FileState | None) -> FileState:
    if since is not None and since.stamp == _stamp(opened.file):
        return since
    now = _state(opened.file)
    if since is not None:
        _require_begins_with(opened, since)
    return now


def _require_begins_with(opened: Opened, state: FileState) -> None:
    if _size(opened.file) < state.size or _state(opened.file, state.size).digest != state.digest:
        raise FileFault(f"{opened.place} was rewritten in the meantime. Nothing was trimmed.")


def _require_one_name(opened: Opened) -> None:
    """Raise FileFault if the file has several names, because it may also be another agent's file."""
    if (names := os.fstat(opened.file.fileno()).st_nlink) > 1:
        raise FileFault(f"{opened.place} has {names} names (hard links). Remove the other names.")


def _replace(opened: Opened, now: FileState, keep: int, before_replace: OnTrim | None) -> Trimmed:
    """Write the last entries to a new file, and replace the old file with it. Then copy the bytes that other programs
    wrote to the old file in the meantime."""
    old, written = opened.file, _Counter()
    with files.file_errors("failed to write temp file in", opened.folder.path), files.replacement(opened.folder) as new:
        for piece in _between(old, _start_of_last(old, now.size, keep), now.size):
            files.write(new, written.add(piece))
        files.be_like(new, old.fileno(), opened.folder.path / opened.folder.name)
        if before_replace is not None:
            before_replace(Trimmed(now.entries - keep, keep, now, written.state()))
        with files.uninterrupted():
            with _writers_kept_out(opened):
                _require_unchanged(opened, now)
                opened.folder.replace(opened.folder.name, by=files.name_beside(opened.folder.name))
            _copy_late_writes(opened, now.size, new, written)
            with files.file_errors(f"{opened.place} was trimmed, but", "may not be on the disk yet"):
                os.fsync(new)
                opened.folder.sync()
    return Trimmed(now.entries - keep, written.entries, now, written.state())


@contextmanager
def _writers_kept_out(opened: Opened) -> Iterator[None]:
    """If the system supports leases, a program that opens the file for writing waits until the end of this block.
    Raises FileFault if another program already has the file open for writing and does not close the file within
    WRITER_SECONDS."""
    until = time.monotonic() + WRITER_SECONDS
    while (leased := files.lease(opened.file.fileno())) is False:
        if time.monotonic() >= until:
            problem = "is open for writing in another program, and new entries could be lost. Nothing was trimmed."
            raise FileFault(f"{opened.place} {problem}")
        time.sleep(0.001)
    try:
        yield
    finally:
        if leased:
            files.release(opened.file.fileno())


def _require_unchanged(opened: Opened, now: FileState) -> None:
    """Check directly before the replacement that the file was not replaced, removed or rewritten. Raises FileFault."""
    if not opened.is_in_place():
        raise FileFault(f"{opened.place} was replaced or removed in the meantime. Nothing was trimmed.")
    _require_one_name(opened)
    if now.stamp != _stamp(opened.file):
        _require_begins_with(opened, now)


def _copy_late_writes(opened: Opened, copied: int, new: int, written: _Counter) -> None:
    """Copy to the new file all bytes that other programs still write to the old file. The old file has no name any
    more, so only a program that already has this file open can write to it. If the system does not report whether such
    a program exists, wait for a moment before copying."""
    until = time.monotonic() + WRITER_SECONDS
    is_open: bool | None = True
    while is_open:
        is_open = files.is_written(opened.file.fileno())
        if is_open is None:
            time.sleep(WRITER_SECONDS / 20)
        if (size := _size(opened.file)) > copied:
            _copy(opened, copied, size, new, written)
            copied = size
        elif is_open:
            time.sleep(0.001)
        if is_open and time.monotonic() >= until:
            lost = "another program still has the old file open, and what it writes there is lost"
            raise FileFault(f"{opened.place} was trimmed, but {lost}.")


def _copy(opened: Opened, start: int, end: int, new: int, written: _Counter) -> None:
    whole = os.fstat(new).st_size
    lost = f"{end - start:,} bytes that another program appended in the meantime could not be copied"
    with files.file_errors(f"{opened.place} was trimmed, but", lost):
        try:
            for piece in _between(opened.file, start, end):
                files.write(new, written.add(piece))
        except OSError:
            os.ftruncate(new, whole)
            raise


# --- appending


@contextmanager
def locked_to_append(place: files.Place) -> Iterator[Opened]:
    """Open the file and lock it. If the file does not exist, create it with mode 0600. Raises FileFault, also if
    another process holds the lock for too long.

    Callers must lock the file before they begin a transaction. `gc` uses the same order: first it locks the file, then
    it writes to the trail.
    """
    with files.file_errors("open", place), _locked(place, os.O_RDONLY | os.O_CREAT) as opened:
        yield opened


# --- opening and locking


class Opened(NamedTuple):
    """A memory file that is open for reading, and its folder. `add` needs the lock of `locked_to_append`."""

    place: files.Place
    folder: files.Folder
    file: BinaryIO

    def is_in_place(self) -> bool:
        """Return whether the path still leads to this file."""
        return self.folder.has(self.folder.name, self.file.fileno())

    def add(self, entry: bytes) -> None:
        """Write an entry at the end of the file, completely or not at all. The entry begins on a new line. Raises
        FileFault."""
        with files.file_errors("write", self.place):
            number = self.folder.open(self.folder.name, os.O_WRONLY | os.O_APPEND)
            try:
                if not self.folder.has(self.folder.name, number) or not self.is_in_place():
                    raise FileFault(f"{self.place} was replaced in the meantime. Nothing was written.")
                self._write(number, entry)
            finally:
                os.close(number)

    def _write(self, number: int, entry: bytes) -> None:
        before = os.fstat(number).st_size
        is_in_line = before > 0 and os.pread(self.file.fileno(), 1, before - 1) != b"\n"
        data = b"\n" * is_in_line + entry
        written = 0
        try:
            while written < len(data):
                written += os.write(number, data[written:])
            os.fsync(number)
        except OSError:
            if os.fstat(number).st_size == before + written:  # no other process appended to it
                os.ftruncate(number, before)
            raise
        if before == 0:
            self.folder.sync()


@contextmanager
def _opened(place: files.Place, flags: int = os.O_RDONLY) -> Iterator[Opened]:
    """Open the file. If the flags have O_CREAT, create the file and its folder if they do not exist. Raises OSError.
    Raises FileFault, also if the file is in a vault: SQL may have hidden the path when the vault was chosen."""
    if any(map(mark_in, place.path.parents)):
        raise FileFault(f"{place.path}: is inside a vault", "is inside a vault")
    folder = files.opened_below(*place.real(), create=bool(flags & os.O_CREAT))
    with closing(folder), files.open_file(folder, folder.name, place, flags) as file:
        opened = Opened(place, folder, file)
        _require_one_name(opened)
        yield opened


@contextmanager
def _locked(place: files.Place, flags: int = os.O_RDONLY) -> Iterator[Opened]:
    """Open the file and lock it. The file is opened only for reading, so that this process does not count as a writer
    while it waits for the lock. If the file is replaced during this time, open and lock the new file."""
    while True:
        with _opened(place, flags) as opened:
            files.lock(opened.file.fileno())
            if opened.is_in_place():
                yield opened
                return
