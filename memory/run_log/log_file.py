"""An agent's memory file: a markdown log of its runs, an entry at each line that begins "## " (seed 001).

Its bytes are never decoded, and what is kept of them is kept as it is, in files of any size in bounded memory. Whoever
writes here holds the file's lock; for writers elsewhere the old file is looked at again once it is replaced.
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
from memory.run_log.files import Folder, Place, folder_of, is_written, lease, lock, opened, release, told, uninterrupted
from memory.run_log.replacement import Replacement, clear

HEADER = b"\n## "  # a newline is thought before the first line
CHUNK = 1 << 18  # bytes
STEP = 1 << 24  # bytes between two places that are remembered
OTHERS = 2.0  # seconds that another program may take to write what it is writing
HASH = "sha256"


@dataclass(frozen=True, slots=True)
class Seen:
    """A memory file as it was read: how many entries and bytes, and the SHA-256 of all of them."""

    entries: int
    size: int
    digest: str
    mark: tuple[int, ...] = ()  # by which it is told, without reading, that nobody wrote to it since
    places: tuple[tuple[int, int], ...] = ()  # here and there a byte at which a line begins, and the entries before it


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trim did: entries removed and kept, and the file before and after; no `after` where nothing was to do."""

    removed: int
    kept: int
    before: Seen
    after: Seen | None = None


# --- reading


def look(place: Place) -> Seen | None:
    """What is in the file; None where there is none. Raises FileFault."""
    with told("open", place), _reading(place) as file:
        return None if file is None else _look(file)


def pieces(place: Place, seen: Seen, start: int = 0) -> Iterator[bytes]:
    """What was seen in the file, from byte `start` on, some at a time. Raises FileFault if that is no longer there."""
    with told("read", place), _reading(place) as file:
        if file is None:
            raise FileFault(f"{place} vanished meanwhile.")
        yield from _between(file, start, seen.size)


def start_of_last(place: Place, seen: Seen, entries: int) -> int:
    """The byte at which the last so many entries begin."""
    with told("read", place), _reading(place) as file:
        if file is None:
            raise FileFault(f"{place} vanished meanwhile.")
        return _start_of(file, seen, seen.entries - entries)


def _look(file: BinaryIO) -> Seen:
    mark = _mark(file)
    digest, entries, size = hashlib.new(HASH), 0, 0
    places: list[tuple[int, int]] = []
    for at, data, new in _overlapping(file, end=os.fstat(file.fileno()).st_size):
        if at >= len(places) * STEP - 1:
            places.append((at, entries))
        digest.update(new)
        entries += data.count(HEADER)
        size = at + len(data)
    return Seen(entries, size, digest.hexdigest(), mark, tuple(places))


def _overlapping(file: BinaryIO, start: int = -1, end: int | None = None) -> Iterator[tuple[int, bytes, bytes]]:
    """The file from a byte on, to another (somebody may write to it for ever), in pieces with the end of the one
    before, so that each header is found whole in one of them, once: where a piece begins, the piece, and what is new of
    it. A newline is thought before the file, at -1."""
    file.seek(max(0, start))
    at, carried = start, b"\n" if start < 0 else b""
    while new := file.read(CHUNK if end is None else min(CHUNK, end - file.tell())):
        data = carried + new
        yield at, data, new
        carried = data[1 - len(HEADER) :]
        at += len(data) - len(carried)


def _start_of(file: BinaryIO, seen: Seen, number: int) -> int:
    """The byte at which an entry begins, counted from 0."""
    start, before = max(place for place in seen.places if place[1] <= number)
    number -= before
    for at, data, _ in _overlapping(file, start):
        there = data.count(HEADER)
        if number < there:
            place = -1
            for _ in range(number + 1):
                place = data.index(HEADER, place + 1)
            return at + place + 1
        number -= there
    raise FileFault("The memory file was rewritten meanwhile.")


def _mark(file: BinaryIO) -> tuple[int, ...]:
    found = os.fstat(file.fileno())
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


# --- trimming


def trim_entries(
    place: Place, keep_n: int, since: Seen | None = None, agreed: Callable[[Trimmed], None] | None = None
) -> Trimmed:
    """Keep the last entries alone (seed 001, requirement 1.1). 0 keeps all.

    Those that came `since` it was seen are kept, however many. `agreed` is told when all is ready, before the file is
    replaced, as a whole or not at all; what it raises leaves the file as it was.

    Raises FileFault, and the file is as it was: also when it vanished, or was rewritten, since it was seen.
    """
    if keep_n < 0:
        raise FileFault("keepN must be non-negative")
    with told("open", place), _holding(place) as held:
        if held is None:
            if since is not None:
                raise FileFault(f"{place} vanished meanwhile. Nothing was trimmed.")
            return Trimmed(0, 0, Seen(0, 0, hashlib.new(HASH).hexdigest()))
        clear(held.folder)
        now = _now(held.file, place, since)
        keep = keep_n if since is None else max(keep_n, now.entries - since.entries)
        if keep_n == 0 or now.entries <= keep:
            return Trimmed(0, now.entries, now)
        return _replaced(held, now, keep, agreed)


def _now(file: BinaryIO, place: Place, since: Seen | None) -> Seen:
    if since is not None and since.mark == _mark(file):
        return since
    now = _look(file)
    if since is not None and not _begins_with(file, since):
        raise FileFault(f"{place} was rewritten meanwhile. Nothing was trimmed.")
    return now


def _begins_with(file: BinaryIO, seen: Seen) -> bool:
    if os.fstat(file.fileno()).st_size < seen.size:
        return False
    digest = hashlib.new(HASH)
    for piece in _between(file, 0, seen.size):
        digest.update(piece)
    return digest.hexdigest() == seen.digest


def _replaced(held: _Held, now: Seen, keep: int, agreed: Callable[[Trimmed], None] | None) -> Trimmed:
    """Put the old file's last entries in its place, and what others appended to it until then."""
    old, written = held.file, _Written()
    _require_one_name(held)
    with told("failed to write temp file in", held.folder.path), Replacement(held.folder) as new:
        for piece in _between(old, _start_of(old, now, now.entries - keep), now.size):
            new.write(written.of(piece))
        written.entries = keep
        new.be_like(old)
        if agreed is not None:
            agreed(Trimmed(now.entries - keep, keep, now, written.seen()))
        with uninterrupted():
            with _kept_from_others(held):
                _require_as_seen(held, now)
                new.put(old)
            if not old.closed:
                _follow(held, now.size, new, written)
            _keep(held, new)
    after = written.seen()
    return Trimmed(now.entries - keep, after.entries, now, after)


def _require_one_name(held: _Held) -> None:
    names = os.fstat(held.file.fileno()).st_nlink
    if names > 1:
        raise FileFault(f"{held.place} has {names} names (hard links), which replacing it would part.")


@contextmanager
def _kept_from_others(held: _Held) -> Iterator[None]:
    """Nobody opens it for writing in this block, where that can be had; who would waits. Raises FileFault where another
    program has it open for too long."""
    until = time.monotonic() + OTHERS
    while (leased := lease(held.file.fileno())) is False:
        if time.monotonic() >= until:
            told = "is held open for writing by another program, whose words would be lost. Nothing was trimmed."
            raise FileFault(f"{held.place} {told}")
        time.sleep(0.001)
    try:
        yield
    finally:
        if leased and not held.file.closed:
            release(held.file.fileno())


def _require_as_seen(held: _Held, now: Seen) -> None:
    """Just before it is replaced: that it is where it was, and says what it said."""
    if not held.folder.has(held.folder.name, held.file.fileno()):
        raise FileFault(f"{held.place} was replaced or removed meanwhile. Nothing was trimmed.")
    _require_one_name(held)
    if now.mark != _mark(held.file) and not _begins_with(held.file, now):
        raise FileFault(f"{held.place} was rewritten meanwhile. Nothing was trimmed.")


def _follow(held: _Held, copied: int, new: Replacement, written: _Written) -> None:
    """Append what others wrote to the old file until now. It has no name any more: who does not have it open already
    finds the new one. Where it cannot be told who has it open, they are given a moment."""
    until = time.monotonic() + OTHERS
    is_open: bool | None = True
    while is_open:
        is_open = is_written(held.file.fileno())
        if is_open is None:
            time.sleep(OTHERS / 20)
        size = os.fstat(held.file.fileno()).st_size
        if size > copied:
            _copy(held, copied, size, new, written)
            copied = size
        elif is_open:
            time.sleep(0.001)
        if is_open and time.monotonic() >= until:
            raise FileFault(
                f"{held.place} was trimmed, but another program has had the old file open for writing since: what it "
                "writes there is lost."
            )


def _keep(held: _Held, new: Replacement) -> None:
    try:
        new.keep()
    except OSError as problem:
        reason = (problem.strerror or "").lower()
        raise FileFault(f"{held.place} was trimmed, but may not be on the disk yet: {reason}", reason) from None


def _copy(held: _Held, start: int, end: int, new: Replacement, written: _Written) -> None:
    whole = new.size()
    try:
        for piece in _between(held.file, start, end):
            new.write(written.of(piece, is_counted=True))
    except OSError as problem:
        new.cut(whole)
        reason = (problem.strerror or "").lower()
        raise FileFault(
            f"{held.place} was trimmed, but {end - start:,} bytes that another program appended meanwhile could not be "
            f"written again: {reason}",
            reason,
        ) from None


class _Written:
    """What a new file holds, told while it is written."""

    def __init__(self) -> None:
        self._digest, self.entries, self._size, self._end = hashlib.new(HASH), 0, 0, b"\n"

    def of(self, piece: bytes, *, is_counted: bool = False) -> bytes:
        self._digest.update(piece)
        if is_counted:
            self.entries += (self._end + piece).count(HEADER)
        self._size += len(piece)
        self._end = (self._end + piece[-len(HEADER) :])[1 - len(HEADER) :]
        return piece

    def seen(self) -> Seen:
        return Seen(self.entries, self._size, self._digest.hexdigest())


def _between(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    file.seek(start)
    while start < end:
        piece = file.read(min(CHUNK, end - start))
        if not piece:
            raise FileFault("The memory file was cut short meanwhile.")
        yield piece
        start += len(piece)


# --- appending


def append(place: Place, entry: bytes) -> None:
    """Add an entry at the end, on a line of its own; all of it or nothing. The file is made if there is none (mode
    0600). Raises FileFault."""
    with held_for_appending(place) as file:
        file.add(entry)


class Appending:
    """A memory file, locked, to which entries are added."""

    def __init__(self, held: _Held) -> None:
        self._held = held

    def add(self, entry: bytes) -> None:
        """Raises FileFault."""
        folder, file = self._held.folder, self._held.file
        with told("write", self._held.place):
            number = folder.open(folder.name, os.O_WRONLY | os.O_APPEND)
            try:
                if not folder.has(folder.name, number) or not folder.has(folder.name, file.fileno()):
                    raise FileFault(f"{self._held.place} was replaced meanwhile. Nothing was written.")
                self._write(number, entry)
            finally:
                os.close(number)

    def _write(self, number: int, entry: bytes) -> None:
        before = os.fstat(number).st_size
        data = (b"" if _ends_a_line(self._held.file, before) else b"\n") + entry
        written = 0
        try:
            while written < len(data):
                written += os.write(number, data[written:])
            os.fsync(number)
        except OSError:
            if os.fstat(number).st_size == before + written:  # or somebody wrote behind it
                os.ftruncate(number, before)
            raise
        if before == 0:
            self._held.folder.sync()


@contextmanager
def held_for_appending(place: Place) -> Iterator[Appending]:
    """The file, made if there is none, and locked: before a transaction is begun, for `gc` locks the file first and
    writes to the trail then. Raises FileFault, also where somebody else holds the lock too long."""
    with told("open", place), _holding(place, create=True) as held:
        if held is None:
            raise FileFault(f"{place} cannot be made.")
        yield Appending(held)


def _ends_a_line(file: BinaryIO, size: int) -> bool:
    if size == 0:
        return True
    file.seek(size - 1)
    return file.read(1) == b"\n"


# --- opening and locking


@dataclass(frozen=True, slots=True)
class _Held:
    """A memory file, open for reading and locked, and its folder."""

    place: Place
    folder: Folder
    file: BinaryIO


@contextmanager
def _reading(place: Place) -> Iterator[BinaryIO | None]:
    with folder_of(place) as folder:
        file = None if folder is None else opened(folder, os.O_RDONLY, place)
        if file is None:
            yield None
            return
        with file:
            yield file


@contextmanager
def _holding(place: Place, *, create: bool = False) -> Iterator[_Held | None]:
    """The file; None where there is none. It is opened for reading: who waits here for the lock counts as no writer."""
    while True:
        with folder_of(place, create=create) as folder:
            file = None if folder is None else opened(folder, os.O_RDONLY | (os.O_CREAT if create else 0), place)
            if folder is None or file is None:
                yield None
                return
            with file:
                lock(file.fileno())
                if folder.has(folder.name, file.fileno()):
                    yield _Held(place, folder, file)
                    return
            # it was replaced while this one waited
