"""An agent's memory file: a markdown log of its runs. Each line that begins with "## " starts an entry.

The bytes are never decoded, and the memory used does not depend on the size of the file. Our own writers hold the
file's lock. For writers that know no lock, the old file is read again after the new one has its place.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from memory.errors import FileFault
from memory.run_log import files

HEADER = b"\n## "  # the first line counts as if a newline preceded it
CHUNK = 1 << 18  # bytes read at a time
WRITER_SECONDS = 2.0  # how long a trim waits for another program that writes to the file


@dataclass(frozen=True, slots=True)
class FileState:
    """The content of a memory file when it was read: entries, bytes, and their SHA-256."""

    entries: int
    size: int
    digest: str
    stamp: tuple[int, ...] = ()  # an equal stamp later means that the file was not written


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The result of a trim. `after` is None if the file was not changed."""

    removed: int
    kept: int
    before: FileState
    after: FileState | None = None


class _Counter:
    """Counts the entries and bytes of a file that passes through in pieces, and hashes it."""

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
    """The state of the file; None if there is no file. Raises FileFault."""
    with files.file_errors("open", place), _opened(place) as opened:
        return None if opened is None else _state(opened.file)


def read(place: files.Place, state: FileState, start: int = 0) -> Iterator[bytes]:
    """The bytes of that state from `start` on, in pieces. Raises FileFault, also if the file is gone or shorter."""
    with files.file_errors("read", place), _required(place) as file:
        yield from _between(file, start, state.size)


def start_of_last(place: files.Place, state: FileState, entries: int) -> int:
    """The offset at which the last `entries` entries begin. Raises FileFault."""
    with files.file_errors("read", place), _required(place) as file:
        return _start_of_last(file, state.size, entries)


@contextmanager
def _required(place: files.Place) -> Iterator[BinaryIO]:
    with _opened(place) as opened:
        if opened is None:
            raise FileFault(f"{place} was removed meanwhile.")
        yield opened.file


def _state(file: BinaryIO, size: int | None = None) -> FileState:
    """The state of the first `size` bytes. The default is the size at the start, because other programs may append."""
    stamp, counter = _stamp(file), _Counter()
    for piece in _between(file, 0, _size(file) if size is None else size):
        counter.add(piece)
    return counter.state(stamp)


def _start_of_last(file: BinaryIO, size: int, entries: int) -> int:
    """Searches backwards. Each chunk is read with the start of the next one, so that no header is cut in two."""
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
    raise FileFault("The memory file was rewritten meanwhile.")


def _between(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    file.seek(start)
    while start < end:
        piece = file.read(min(CHUNK, end - start))
        if not piece:
            raise FileFault("The memory file was cut short meanwhile.")
        yield piece
        start += len(piece)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _stamp(file: BinaryIO) -> tuple[int, ...]:
    stat = os.fstat(file.fileno())
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


# --- trimming


def trim_entries(
    place: files.Place,
    keep_n: int,
    since: FileState | None = None,
    before_replace: Callable[[Trimmed], None] | None = None,
) -> Trimmed:
    """Keep only the last `keep_n` entries, and all that were added `since` a state. 0 keeps everything.

    The file is replaced as a whole or not at all. `before_replace` is called when the new file is complete; if it
    raises, the file stays as it was. Raises FileFault, and the file stays as it was, also if it vanished or was
    rewritten `since`.
    """
    if keep_n < 0:
        raise FileFault("keepN must be non-negative")
    with files.file_errors("open", place), _locked(place) as opened:
        if opened is None:
            if since is not None:
                raise FileFault(f"{place} was removed meanwhile. Nothing was trimmed.")
            return Trimmed(0, 0, _Counter().state())
        files.clear(opened.folder)
        now = _state_now(opened, since)
        keep = keep_n if since is None else max(keep_n, now.entries - since.entries)
        if keep_n == 0 or now.entries <= keep:
            return Trimmed(0, now.entries, now)
        return _replace(opened, now, keep, before_replace)


def _state_now(opened: Opened, since: FileState | None) -> FileState:
    if since is not None and since.stamp == _stamp(opened.file):
        return since
    now = _state(opened.file)
    if since is not None:
        _require_begins_with(opened, since)
    return now


def _require_begins_with(opened: Opened, state: FileState) -> None:
    if _size(opened.file) < state.size or _state(opened.file, state.size).digest != state.digest:
        raise FileFault(f"{opened.place} was rewritten meanwhile. Nothing was trimmed.")


def _require_one_name(opened: Opened) -> None:
    names = os.fstat(opened.file.fileno()).st_nlink
    if names > 1:
        raise FileFault(f"{opened.place} has {names} names (hard links), so it cannot be replaced.")


def _replace(opened: Opened, now: FileState, keep: int, before_replace: Callable[[Trimmed], None] | None) -> Trimmed:
    """Write the last entries to a new file, put it in the place of the old one, and add what others wrote meanwhile."""
    old, written = opened.file, _Counter()
    _require_one_name(opened)
    with files.file_errors("failed to write temp file in", opened.folder.path), files.Replacement(opened.folder) as new:
        for piece in _between(old, _start_of_last(old, now.size, keep), now.size):
            new.write(written.add(piece))
        new.be_like(old)
        if before_replace is not None:
            before_replace(Trimmed(now.entries - keep, keep, now, written.state()))
        with files.uninterrupted():
            with _writers_kept_out(opened):
                _require_unchanged(opened, now)
                new.put()
            _copy_late_writes(opened, now.size, new, written)
            with files.file_errors(f"{opened.place} was trimmed, but", "may not be on the disk yet"):
                new.sync()
    return Trimmed(now.entries - keep, written.entries, now, written.state())


@contextmanager
def _writers_kept_out(opened: Opened) -> Iterator[None]:
    """Where the system allows it, other programs that open the file for writing wait until the end of this block.
    Raises FileFault if a program has it open for writing for more than WRITER_SECONDS."""
    until = time.monotonic() + WRITER_SECONDS
    while (leased := files.lease(opened.file.fileno())) is False:
        if time.monotonic() >= until:
            problem = "is open for writing in another program, whose entries could be lost. Nothing was trimmed."
            raise FileFault(f"{opened.place} {problem}")
        time.sleep(0.001)
    try:
        yield
    finally:
        if leased:
            files.release(opened.file.fileno())


def _require_unchanged(opened: Opened, now: FileState) -> None:
    """The last check before the file is replaced."""
    if not opened.is_in_place():
        raise FileFault(f"{opened.place} was replaced or removed meanwhile. Nothing was trimmed.")
    _require_one_name(opened)
    if now.stamp != _stamp(opened.file):
        _require_begins_with(opened, now)


def _copy_late_writes(opened: Opened, copied: int, new: files.Replacement, written: _Counter) -> None:
    """Append what others write to the old file. It has no name any more, so only programs that have it open already
    can write to it. Where the system does not say whether there are any, they get a moment."""
    until = time.monotonic() + WRITER_SECONDS
    is_open: bool | None = True
    while is_open:
        is_open = files.is_written(opened.file.fileno())
        if is_open is None:
            time.sleep(WRITER_SECONDS / 20)
        size = _size(opened.file)
        if size > copied:
            _copy(opened, copied, size, new, written)
            copied = size
        elif is_open:
            time.sleep(0.001)
        if is_open and time.monotonic() >= until:
            raise FileFault(
                f"{opened.place} was trimmed, but another program still has the old file open for writing: what it "
                "writes there is lost."
            )


def _copy(opened: Opened, start: int, end: int, new: files.Replacement, written: _Counter) -> None:
    whole = new.size()
    lost = f"{end - start:,} bytes that another program appended meanwhile could not be written again"
    with files.file_errors(f"{opened.place} was trimmed, but", lost):
        try:
            for piece in _between(opened.file, start, end):
                new.write(written.add(piece))
        except OSError:
            new.cut(whole)
            raise


# --- appending


def append(place: files.Place, entry: bytes) -> None:
    """Add an entry at the end, all of it or nothing. Creates the file if it does not exist. Raises FileFault."""
    with locked_to_append(place) as file:
        file.add(entry)


@contextmanager
def locked_to_append(place: files.Place) -> Iterator[Opened]:
    """The file, opened, and created (mode 0600) if it does not exist. Raises FileFault, also if another process
    holds the lock for too long.

    Lock the file before the transaction begins: `gc` locks the file first and writes to the trail after that.
    """
    with files.file_errors("open", place), _locked(place, create=True) as opened:
        if opened is None:
            raise FileFault(f"{place} cannot be created.")
        yield opened


def _ends_a_line(file: BinaryIO, size: int) -> bool:
    return size == 0 or b"".join(_between(file, size - 1, size)) == b"\n"


# --- opening and locking


@dataclass(frozen=True, slots=True)
class Opened:
    """A memory file, open for reading, and its folder. If it is locked, it takes new entries."""

    place: files.Place
    folder: files.Folder
    file: BinaryIO

    def is_in_place(self) -> bool:
        """Whether the name still leads to this file."""
        return self.folder.has(self.folder.name, self.file.fileno())

    def add(self, entry: bytes) -> None:
        """Write an entry, which begins on a line of its own. Raises FileFault."""
        with files.file_errors("write", self.place):
            number = self.folder.open(self.folder.name, os.O_WRONLY | os.O_APPEND)
            try:
                if not self.folder.has(self.folder.name, number) or not self.is_in_place():
                    raise FileFault(f"{self.place} was replaced meanwhile. Nothing was written.")
                self._write(number, entry)
            finally:
                os.close(number)

    def _write(self, number: int, entry: bytes) -> None:
        before = os.fstat(number).st_size
        data = (b"" if _ends_a_line(self.file, before) else b"\n") + entry
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
def _opened(place: files.Place, *, create: bool = False) -> Iterator[Opened | None]:
    """The file; None if it does not exist."""
    with files.folder_of(place, create=create) as folder:
        file = None if folder is None else files.open_file(folder, os.O_RDONLY | (os.O_CREAT if create else 0), place)
        if folder is None or file is None:
            yield None
            return
        with file:
            yield Opened(place, folder, file)


@contextmanager
def _locked(place: files.Place, *, create: bool = False) -> Iterator[Opened | None]:
    """The file, locked; None if it does not exist. It is opened for reading, so that waiting for the lock does not make
    this process a writer. Opened again if it was replaced during the wait."""
    while True:
        with _opened(place, create=create) as opened:
            if opened is not None:
                files.lock(opened.file.fileno())
            if opened is None or opened.is_in_place():
                yield opened
                return
