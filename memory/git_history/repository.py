"""A git repository, read (seed 004, "Git History Analysis", steps 1 and 6).

Its objects are read with dulwich, which runs nothing of a repository's: no hook, no filter, no program its settings
name. What changed between two trees is compared here, with the trees that are met again and again kept: that takes a
tenth of the time. Renames are not looked for: a file that was moved is one that went, and one that came.
"""

from __future__ import annotations

import heapq
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from dulwich.errors import ChecksumMismatch, FileFormatException, NotGitRepository
from dulwich.mailmap import Mailmap, read_mailmap
from dulwich.objects import Commit as RawCommit
from dulwich.objects import ObjectID, Tree, parse_tree
from dulwich.objects import Tag as RawTag
from dulwich.refs import HEADREF, Ref
from dulwich.repo import Repo

from memory.errors import Invalid

_KEPT = 4_000  # trees
_ID = 20  # bytes of an object's name
_HEADS, _REMOTES, _TAGS = b"refs/heads/", b"refs/remotes/", b"refs/tags/"
_SUBMODULE = 0o160000
ADDED, CHANGED, REMOVED = "A", "M", "D"

_UNREADABLE = (
    OSError,
    ValueError,
    AssertionError,
    NotImplementedError,
    RecursionError,
    FileFormatException,
    ChecksumMismatch,
    zlib.error,
)
_Entry = tuple[bytes, int, bytes]  # of a tree: name, mode, what it is
_NOTHING: frozenset[_Entry] = frozenset()


@dataclass(frozen=True, slots=True, repr=False)
class Commit:
    """`at` is when it was committed, in seconds since 1970. Parents that a shallow clone lacks are none."""

    id: str
    parents: tuple[str, ...]
    at: int
    author: str  # name <e-mail>
    subject: str
    body: str
    tree: bytes
    is_cut: bool = False  # its parents are not here: a shallow clone begins with it

    @property
    def is_merge(self) -> bool:
        return len(self.parents) > 1


@dataclass(frozen=True, slots=True)
class Tagged:
    """A tag's name, the commit it is of, and when it was made: a light one when its commit was."""

    name: str
    commit: str
    at: int


class Repository:
    """Raises Invalid where a folder is in no repository, or in one that cannot be read."""

    def __init__(self, folder: Path) -> None:
        with readable():
            try:
                self._repo = Repo.discover(folder)
            except NotGitRepository:
                raise Invalid("project_dir", "is in no git repository") from None
            if not Path(os.fsdecode(self._repo.controldir())).is_dir():
                raise Invalid("project_dir", "is in a git repository whose files are elsewhere, and not there")
            self._shallow = frozenset(self._repo.get_shallow())
        self._entries = lru_cache(_KEPT)(self._read_entries)
        self._counted: dict[bytes, int] = {}

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *_: object) -> None:
        self._repo.close()

    @property
    def is_shallow(self) -> bool:
        return bool(self._shallow)

    @property
    def head(self) -> str | None:
        """The commit that is checked out; None of a repository without any."""
        with readable():
            try:
                return self._repo.head().decode()
            except KeyError:
                return None

    @property
    def branch(self) -> str:
        """The branch that is checked out; "" of a detached head."""
        with readable():
            chain, _ = self._repo.refs.follow(HEADREF)
            name = chain[-1] if chain else b""
        return _text(name.removeprefix(_HEADS)) if name.startswith(_HEADS) else ""

    # --- commits

    def commit(self, name: str) -> Commit | None:
        """None where it is not here."""
        try:
            raw = self._repo[name.encode()]
        except KeyError:
            return None
        return _commit(raw, is_cut=raw.id in self._shallow) if isinstance(raw, RawCommit) else None

    def walk(self, start: str, since: int) -> Iterator[Commit]:
        """What a commit was made of, itself first, and nothing from before `since`: in the order of `git log`."""
        seen, waiting = {start}, [_ranked(self.commit(start), 0)]
        while waiting:
            commit = heapq.heappop(waiting)[2]
            if commit is None or commit.at < since:
                continue
            yield commit
            for parent in commit.parents:
                if parent not in seen:
                    seen.add(parent)
                    heapq.heappush(waiting, _ranked(self.commit(parent), len(seen)))

    def changes(self, commit: Commit) -> dict[str, str] | None:
        """What became of which path, by a commit that has one parent, or none. None where the trees are not all here,
        as in a clone that is shallow or partial."""
        if commit.is_cut:
            return None
        before = None
        if commit.parents:
            parent = self.commit(commit.parents[0])
            if parent is None:
                return None
            before = parent.tree
        try:
            return dict(self._differing(before, commit.tree, b""))
        except KeyError:
            return None

    # --- trees

    def files(self, commit: Commit) -> Iterator[str]:
        """The path of each file; of submodules none. Raises KeyError for a tree that is not here."""
        return (_path(path) for path, mode in self._all(commit.tree, b"") if mode != _SUBMODULE)

    def content(self, commit: Commit, path: str) -> bytes:
        """What a file says. Raises KeyError where it is not here, or is none."""
        name: bytes = commit.tree
        mode = stat.S_IFDIR
        for part in path.encode("utf-8", "surrogateescape").split(b"/"):
            mode, name = {each: (kind, of) for each, kind, of in self._entries(name)}[part]
        if not stat.S_ISREG(mode):
            raise KeyError(path)
        data: bytes = self._repo[name].as_raw_string()
        return data

    def count(self, commit: Commit) -> int:
        """How many files there are. Raises KeyError for a tree that is not here."""
        return self._count(commit.tree)

    def _count(self, tree: bytes) -> int:
        if tree not in self._counted:
            self._counted[tree] = sum(
                self._count(name) if stat.S_ISDIR(mode) else mode != _SUBMODULE for _, mode, name in self._entries(tree)
            )
        return self._counted[tree]

    def _read_entries(self, tree: bytes) -> frozenset[_Entry]:
        kind, data = self._repo.object_store.get_raw(ObjectID(tree))
        if kind != Tree.type_num:
            raise KeyError(tree)
        return frozenset(parse_tree(data, _ID))

    def _all(self, tree: bytes, above: bytes) -> Iterator[tuple[bytes, int]]:
        for name, mode, of in sorted(self._entries(tree)):
            if stat.S_ISDIR(mode):
                yield from self._all(of, above + name + b"/")
            else:
                yield above + name, mode

    def _differing(self, old: bytes | None, new: bytes | None, above: bytes) -> Iterator[tuple[str, str]]:
        was = self._entries(old) if old else _NOTHING
        now = self._entries(new) if new else _NOTHING
        before, after = ({name: (mode, of) for name, mode, of in each} for each in (was - now, now - was))
        for name in before.keys() | after.keys():
            both = before.get(name), after.get(name)
            of_old, of_new = (each[1] if each and stat.S_ISDIR(each[0]) else None for each in both)
            if of_old or of_new:
                yield from self._differing(of_old, of_new, above + name + b"/")
            was_file, is_file = bool(both[0]) and not of_old, bool(both[1]) and not of_new
            if was_file or is_file:
                yield _path(above + name), CHANGED if was_file and is_file else ADDED if is_file else REMOVED

    # --- names

    def names(self, identities: Iterable[str]) -> list[str]:
        """People's names, as the mailmap of the head has them, without their addresses."""
        known = self._mailmap()
        told = (known.lookup(_identity(identity)) for identity in identities)
        return [_text(each[0] or b"") or "somebody" for each in told if isinstance(each, tuple)]

    def _mailmap(self) -> Mailmap:
        commit = self.commit(self.head or "")
        try:
            said = self.content(commit, ".mailmap") if commit else b""
            return Mailmap(read_mailmap(BytesIO(said)))
        except (KeyError, ValueError, IndexError):  # there is none, or it is none
            return Mailmap()

    def tags(self) -> list[Tagged]:
        """Of commits that are here, in order of time."""
        found = []
        with readable():
            for ref, name in self._refs(_TAGS):
                at, target = self._peeled(name)
                commit = self.commit(target.decode()) if target else None
                if commit is not None:
                    found.append(Tagged(_text(ref), commit.id, at or commit.at))
        return sorted(found, key=lambda tag: (tag.at, tag.name))

    def _peeled(self, name: bytes) -> tuple[int, bytes | None]:
        at = 0
        for _ in range(10):  # a tag may be of a tag
            try:
                raw = self._repo[name]
            except KeyError:
                return at, None
            if not isinstance(raw, RawTag):
                break
            at, name = at or raw.tag_time or 0, raw.object[1]
        return at, name

    def branches(self) -> Mapping[str, str]:
        """The commit of each branch: of those here, and of those of a remote that are not here by the same name."""
        with readable():
            found = {_text(ref): name.decode() for ref, name in self._refs(_HEADS)}
            for ref, name in self._refs(_REMOTES):
                remote, _, branch = _text(ref).partition("/")
                if branch and branch != "HEAD" and branch not in found:
                    found[f"{remote}/{branch}"] = name.decode()
        return found

    def _refs(self, below: bytes) -> list[tuple[bytes, bytes]]:
        return sorted(self._repo.refs.as_dict(Ref(below.rstrip(b"/"))).items())


@contextmanager
def readable() -> Iterator[None]:
    """What is wrong with a repository is told, and not how dulwich met it."""
    try:
        yield
    except Invalid:
        raise
    except _UNREADABLE as problem:
        raise Invalid("project_dir", f"is a git repository that cannot be read ({type(problem).__name__})") from None


def _ranked(commit: Commit | None, nth: int) -> tuple[int, int, Commit | None]:
    """The newest first; of those of one second the one that was met first."""
    return (-commit.at if commit else 0, nth, commit)


def _identity(text: str) -> tuple[bytes, bytes]:
    name, _, address = text.encode("utf-8", "surrogateescape").rpartition(b"<")
    return name.strip(), address.rstrip(b"> ")


def _commit(raw: RawCommit, *, is_cut: bool) -> Commit:
    message = _text(raw.message or b"", raw.encoding)
    head, _, body = message.strip("\n").partition("\n\n")
    return Commit(
        id=raw.id.decode(),
        parents=() if is_cut else tuple(parent.decode() for parent in raw.parents),
        at=raw.commit_time,
        author=_text(raw.author, raw.encoding),
        subject=" ".join(head.split("\n")).strip(),
        body=body.strip(),
        tree=raw.tree,
        is_cut=is_cut,
    )


def _path(data: bytes) -> str:
    """Two paths stay two, whatever their bytes are."""
    return data.decode("utf-8", "surrogateescape")


def _text(data: bytes, encoding: bytes | None = None) -> str:
    try:
        return data.decode((encoding or b"utf-8").decode("ascii", "replace"), "replace")
    except LookupError:
        return data.decode("utf-8", "replace")
