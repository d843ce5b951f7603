"""What other systems left in a folder, read: which files hold memories, and the memories, one at a time.

A folder is looked at once, and read as often as is wanted; what changed in between is refused. Of what is read nothing
is kept but digests, by which the same text is found again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from memory.errors import Invalid
from memory.policy.validation import MAX_TAG, MAX_TAGS
from memory.transfer import sources, walk
from memory.transfer.formats.found import Found, LeftOut, Part
from memory.transfer.formats.parting import Names
from memory.transfer.formats.text import told
from memory.transfer.registry import SYSTEMS
from memory.transfer.sources import Claimed, Source
from memory.transfer.walk import Tree


@dataclass(frozen=True, slots=True, repr=False)
class Item:
    """A memory, or what was left out, and the file it was in."""

    system: str
    path: str
    modified: datetime  # the file's time
    part: Part


@dataclass(slots=True)
class _Repeated:
    """Texts that come more than once: the tags of all, in order, and once it is read the key of the first."""

    tags: dict[str, None]
    key: str = ""


@dataclass(slots=True, repr=False)
class Look:
    """A folder as it was when it was looked at."""

    sources: list[Source]
    left_out: list[LeftOut]  # what was noticed without reading, and cannot be read
    _tree: Tree
    _claimed: list[Claimed]
    _repeated: dict[bytes, _Repeated] | None = field(default=None)

    def parts(self) -> Iterator[Item]:
        """In order of path, then of place in the file. Raises FolderChanged."""
        if self._repeated is None:
            self._repeated = self._looked_through()
        for repeated in self._repeated.values():
            repeated.key = ""
        for claimed in self._claimed:
            source = claimed.source
            for part in self._read(claimed):
                once = self._once(part) if isinstance(part, Found) else part
                yield Item(source.system, source.path, source.modified, once)

    def files(self, paths: Collection[str]) -> dict[str, tuple[bytes, datetime]]:
        """Bytes and time of these files, as they were when they were looked at. Raises FolderChanged."""
        found = {}
        for claimed in self._claimed:
            if claimed.source.path in paths:
                with self._tree.opened(claimed.source.path, claimed.stamp) as file:
                    found[claimed.source.path] = (file.read(), claimed.source.modified)
        return found

    def _looked_through(self) -> dict[bytes, _Repeated]:
        first: dict[bytes, tuple[str, ...]] = {}
        found: dict[bytes, _Repeated] = {}
        for claimed in self._claimed:
            for part in self._read(claimed):
                if isinstance(part, Found):
                    digest = _digest(part)
                    if digest not in first:
                        first[digest] = part.tags
                    else:
                        repeated = found.setdefault(digest, _Repeated(dict.fromkeys(first[digest])))
                        repeated.tags.update(dict.fromkeys(part.tags))
        return found

    def _once(self, part: Found) -> Part:
        """The memory with the tags of all that say the same, or that another says it."""
        repeated = (self._repeated or {}).get(_digest(part))
        if repeated is None:
            return _bounded(part)
        if repeated.key:
            return LeftOut(part.key, f"says the same as {repeated.key}")
        repeated.key = part.key
        return _bounded(replace(part, tags=tuple(repeated.tags)))

    def _read(self, claimed: Claimed) -> Iterator[Part]:
        names = Names()
        with self._tree.opened(claimed.source.path, claimed.stamp) as file:
            for part in claimed.way.read(file, claimed.source.path):
                named = replace(part, key=names.name(part.key))
                yield _tagged(named, claimed.tags) if isinstance(named, Found) else named


def _digest(part: Found) -> bytes:
    """Of what it says, and where it belongs: the same words in two projects, or in private, are two memories."""
    said = f"{part.category}\0{part.project}\0{part.of or part.content}"
    return hashlib.blake2b(said.encode(), digest_size=16).digest()


def _tagged(part: Found, tags: tuple[str, ...]) -> Found:
    """With further tags, as far as a tag goes."""
    if not tags:
        return part
    kept = tuple(tag for tag in tags if len(tag) <= MAX_TAG)
    lost = (f"{tag.partition(':')[0]} of {len(tag):,} characters not kept" for tag in tags if len(tag) > MAX_TAG)
    return replace(part, tags=(*part.tags, *kept), transformed=(*part.transformed, *map(told, dict.fromkeys(lost))))


def _bounded(part: Found) -> Found:
    """With as many tags as a memory has."""
    if (more := len(part.tags) - MAX_TAGS) <= 0:
        return part
    return replace(part, tags=part.tags[:MAX_TAGS], transformed=(*part.transformed, f"not kept: {more:,} tags"))


@contextmanager
def looked_at(folder: Path, systems: Sequence[str] = (), plain: Sequence[str] = ()) -> Iterator[Look]:
    """What the systems of these names left in a folder, or all systems; and what lies in its folders that are plain.

    Where a system is named, a file that may be one of its is told of even where it is none. Plain that is named without
    a folder is the folder itself. Raises Invalid, FileFault.
    """
    if not set(systems) <= SYSTEMS.keys():
        raise Invalid("systems", f"unknown; choose of {', '.join(SYSTEMS)}")
    folders = list(plain) or ([""] if "plain" in systems else [])
    with walk.opened(folder) as tree:
        wanted = [SYSTEMS[name] for name in SYSTEMS if not systems or name in systems]
        claimed, left_out = sources.found(tree, wanted, systems, folders)
        yield Look([each.source for each in claimed], left_out, tree, claimed)
