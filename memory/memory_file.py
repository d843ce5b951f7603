"""An agent's memory file: a markdown log of its runs, an entry at each line that begins "## " (seed 001).

Its bytes are never decoded, and what is kept of them is kept as it is, in files of any size in bounded memory. Whoever
writes here holds the file's lock; for writers elsewhere the old file is looked at again once it is replaced.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from memory.errors import FileFault
from memory.replacement import PLAIN, Replacement, lock, write

HEADER = b"\n## "  # a newline is thought before the first line
CHUNK = 1 << 18  # bytes
STEP = 1 << 24  # bytes between two places that are remembered
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


def look(path: Path) -> Seen | None:
    """What is in the file; None where there is none. Raises FileFault."""
    with _told("open", path), _reading(path) as file:
        return None if file is None else _look(file)


def pieces(path: Path, seen: Seen, start: int = 0) -> Iterator[bytes]:
    """What was seen in the file, from byte `start` on, some at a time. Raises FileFault if that is no longer there."""
    with _told("read", path), _reading(path) as file:
        if file is None:
            raise FileFault(f"{path} vanished meanwhile.")
        yield from _between(file, start, seen.size)


def start_of_last(path: Path, seen: Seen, entries: int) -> int:
    """The byte at which the last so many entries begin."""
    with _told("read", path), _reading(path) as file:
        if file is None:
            raise FileFault(f"{path} vanished meanwhile.")
        return _start_of(file, seen, seen.entries - entries)


def _look(file: BinaryIO) -> Seen:
    mark = _mark(file)
    digest, entries, size = hashlib.new(HASH), 0, 0
    places: list[tuple[int, int]] = []
    for at, data, new in _overlapping(file):
        if at >= len(places) * STEP - 1:
            places.append((at, entries))
        digest.update(new)
        entries += data.count(HEADER)
        size = at + len(data)
    return Seen(entries, size, digest.hexdigest(), mark, tuple(places))


def _overlapping(file: BinaryIO, start: int = -1) -> Iterator[tuple[int, bytes, bytes]]:
    """The file from a byte on, in pieces with the end of the one before, so that each header is found whole in one of
    them, once: where a piece begins, the piece, and what is new of it. A newline is thought before the file, at -1."""
    file.seek(max(0, start))
    at, carried = start, b"\n" if start < 0 else b""
    while new := file.read(CHUNK):
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
    raise ValueError("there are not so many entries")


def _mark(file: BinaryIO) -> tuple[int, ...]:
    found = os.fstat(file.fileno())
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


# --- trimming


def trim_entries(path: Path, keep_n: int) -> int:
    """Keep the last entries alone; how many were removed (seed 001, requirement 1.1). 0 keeps all.

    The file is replaced as a whole or not at all. Raises FileFault.
    """
    return trim(path, keep_n).removed


def trim(
    path: Path, keep_n: int, since: Seen | None = None, agreed: Callable[[Trimmed], None] | None = None
) -> Trimmed:
    """… and what became of the file. Those that came `since` it was seen are kept, however many. `agreed` is told when
    all is ready, before the file is replaced; what it raises leaves the file as it was.

    Raises FileFault, and the file is as it was: also when it vanished, or was rewritten, since it was seen.
    """
    if keep_n < 0:
        raise FileFault("keepN must be non-negative")
    real = Path(os.path.realpath(path))
    with _told("open", path), _holding(real) as file:
        if file is None:
            if since is not None:
                raise FileFault(f"{path} vanished meanwhile. Nothing was trimmed.")
            return Trimmed(0, 0, Seen(0, 0, hashlib.new(HASH).hexdigest()))
        now = _now(file, path, since)
        keep = keep_n if since is None else max(keep_n, now.entries - since.entries)
        if keep_n == 0 or now.entries <= keep:
            return Trimmed(0, now.entries, now)
        return _replaced(real, file, now, keep, agreed)


def _now(file: BinaryIO, path: Path, since: Seen | None) -> Seen:
    if since is not None and since.mark == _mark(file):
        return since
    now = _look(file)
    if since is not None and (now.size < since.size or _digest(file, since.size) != since.digest):
        raise FileFault(f"{path} was rewritten meanwhile. Nothing was trimmed.")
    return now


def _digest(file: BinaryIO, size: int) -> str:
    digest = hashlib.new(HASH)
    for piece in _between(file, 0, size):
        digest.update(piece)
    return digest.hexdigest()


def _replaced(real: Path, old: BinaryIO, now: Seen, keep: int, agreed: Callable[[Trimmed], None] | None) -> Trimmed:
    """Put the old file's last entries in its place, and what others appended to it until then."""
    names = os.fstat(old.fileno()).st_nlink
    if names > 1:
        raise FileFault(f"{real} has {names} names (hard links), which replacing it would part.")
    written = _Written()
    with _told("create temp file in", real.parent), Replacement(real) as new:
        for piece in _between(old, _start_of(old, now, now.entries - keep), now.size):
            new.write(written.of(piece))
        written.entries = keep
        if agreed is not None:
            agreed(Trimmed(now.entries - keep, keep, now, written.seen()))
        new.put(old)
        copied = now.size
        while not old.closed and (size := os.fstat(old.fileno()).st_size) > copied:  # by others, who may go on
            for piece in _between(old, copied, size):
                new.write(written.of(piece, is_counted=True))
            copied = size
        new.keep()
    after = written.seen()
    return Trimmed(now.entries - keep, after.entries, now, after)


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
            raise FileFault("The file was cut short meanwhile.")
        yield piece
        start += len(piece)


# --- appending


def append(path: Path, entry: bytes) -> None:
    """Add an entry at the end, on a line of its own; all of it or nothing. The file is made if there is none (mode
    0600). Raises FileFault."""
    real = Path(os.path.realpath(path))
    with _told("open", path):
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _holding(real, create=True) as file:
            if file is None:
                raise FileFault(f"{path} cannot be made.")
            size = os.fstat(file.fileno()).st_size
            before = b"" if _ends_a_line(file, size) else b"\n"
            try:
                write(file.fileno(), before + entry)
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), size)
                raise


def _ends_a_line(file: BinaryIO, size: int) -> bool:
    if size == 0:
        return True
    file.seek(size - 1)
    return file.read(1) == b"\n"


# --- opening and locking


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO | None]:
    file = _opened(path, os.O_RDONLY)
    if file is None:
        yield None
        return
    with file:
        yield file


@contextmanager
def _holding(real: Path, *, create: bool = False) -> Iterator[BinaryIO | None]:
    """The file, locked; None where there is none."""
    while True:
        file = _opened(real, os.O_RDWR | os.O_APPEND | os.O_CREAT if create else os.O_RDONLY)
        if file is None:
            yield None
            return
        with file:
            lock(file.fileno())
            if _is_at(file, real):
                yield file
                return
        # it was replaced while this one waited


def _opened(path: Path, flags: int) -> BinaryIO | None:
    try:
        number = os.open(path, flags | PLAIN, 0o600)
    except FileNotFoundError:
        return None
    mode = os.fstat(number).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(number, "rb")
    os.close(number)
    raise FileFault(f"read {path}: {'is a directory' if stat.S_ISDIR(mode) else 'is not a file'}")


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(file.fileno())
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


@contextmanager
def _told(doing: str, path: Path) -> Iterator[None]:
    """What the system says of a file, as an error of ours: path and reason, nothing of what is in it."""
    try:
        yield
    except OSError as problem:
        reason = (problem.strerror or type(problem).__name__).lower()
        raise FileFault(f"{doing} {path}: {reason}", reason) from None
