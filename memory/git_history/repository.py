"""Read a git repository with dulwich, which runs nothing that a repository configures: no hook, filter or program.

Renames are not detected: a moved file counts as one removed and one added.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from dulwich.diff_tree import tree_changes
from dulwich.errors import NotGitRepository
from dulwich.mailmap import Mailmap, read_mailmap
from dulwich.object_store import iter_tree_contents, peel_sha, tree_lookup_path
from dulwich.objects import Blob, ObjectID
from dulwich.objects import Commit as RawCommit
from dulwich.objects import Tag as RawTag
from dulwich.refs import HEADREF, Ref
from dulwich.repo import Repo

from memory.errors import Invalid

_HEADS, _REMOTES, _TAGS = b"refs/heads/", b"refs/remotes/", b"refs/tags/"
_LARGEST = 1_000_000  # bytes of a file whose content is read
_SUBMODULE = 0o160000


@dataclass(frozen=True, slots=True, repr=False)
class Commit:
    """`at` is the time of the commit, in seconds since 1970. `name` and `address` are the author's. `is_cut` says that
    a shallow clone ends here: the parents are missing."""

    id: str
    parents: tuple[str, ...]
    at: int
    name: str
    address: str
    subject: str
    body: str
    tree: ObjectID
    is_cut: bool = False

    @property
    def is_merge(self) -> bool:
        return len(self.parents) > 1


@dataclass(frozen=True, slots=True)
class Tag:
    """`at` is the time of the tag, or of its commit if the tag is lightweight."""

    name: str
    commit: str
    at: int


class Repository:
    """The repository that a folder is in. Raises Invalid if there is none, or if it cannot be read."""

    def __init__(self, folder: Path) -> None:
        with readable():
            try:
                self._repo = Repo.discover(folder)
            except NotGitRepository:
                raise Invalid("project_dir", "is in no git repository") from None
            if not Path(os.fsdecode(self._repo.controldir())).is_dir():
                raise Invalid("project_dir", "is in a git repository whose files are elsewhere, and not there")
            self._shallow = frozenset(self._repo.get_shallow())
            self._store = self._repo.object_store

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BufferError):  # dulwich, after it met a damaged pack
            self._repo.close()

    @property
    def is_shallow(self) -> bool:
        return bool(self._shallow)

    @property
    def head(self) -> str | None:
        """The commit that is checked out; None if the repository has no commits."""
        with readable():
            try:
                return self._repo.head().decode()
            except KeyError:
                return None

    @property
    def branch(self) -> str:
        """The branch that is checked out; "" if the head is detached."""
        with readable():
            chain, _ = self._repo.refs.follow(HEADREF)
        name = chain[-1] if chain else b""
        return _text(name.removeprefix(_HEADS)) if name.startswith(_HEADS) else ""

    # --- commits

    def commit(self, name: str) -> Commit | None:
        """None if the commit is not in this clone."""
        with readable():
            try:
                raw = self._repo[name.encode()]
            except KeyError:
                return None
            return self._parsed(raw) if isinstance(raw, RawCommit) else None

    def walk(self, start: str, since: int | None) -> Iterator[Commit]:
        """A commit and its ancestors in the order of `git log`, without those before `since`."""
        with readable():
            for entry in self._repo.get_walker(include=[ObjectID(start.encode())], since=since):
                yield self._parsed(entry.commit)

    def _parsed(self, raw: RawCommit) -> Commit:
        head, _, body = _text(raw.message or b"", raw.encoding).strip("\n").partition("\n\n")
        name, _, address = _text(raw.author, raw.encoding).rpartition("<")
        is_cut = raw.id in self._shallow
        return Commit(
            id=raw.id.decode(),
            parents=() if is_cut else tuple(parent.decode() for parent in raw.parents),
            at=raw.commit_time,
            name=name.strip(),
            address=address.rstrip("> "),
            subject=" ".join(head.split()),
            body=body.strip(),
            tree=raw.tree,
            is_cut=is_cut,
        )

    def changes(self, commit: Commit) -> dict[str, str] | None:
        """Each path that a commit changed, with dulwich's name of the change, compared with the first parent. None if
        the trees are not in this clone."""
        if commit.is_cut:
            return None
        with readable():
            try:
                parent = self._repo[commit.parents[0].encode()] if commit.parents else None
                before = parent.tree if isinstance(parent, RawCommit) else None
                found = tree_changes(self._store, before, commit.tree)
                return {_path(entry.path): each.type for each in found if (entry := each.new or each.old)}
            except KeyError:
                return None

    # --- trees

    def tree(self, commit: Commit) -> Iterator[tuple[str, bool]]:
        """Each path of a commit, and whether it is a folder; no submodules. Raises KeyError if a tree is not here."""
        for entry in iter_tree_contents(self._store, commit.tree, include_trees=True):
            if entry.path and entry.mode != _SUBMODULE:
                yield _path(entry.path), stat.S_ISDIR(entry.mode or 0)

    def content(self, commit: Commit, path: str) -> bytes:
        """A file's content, up to a megabyte; b"" if there is no such file."""
        try:
            _, name = tree_lookup_path(self._store.__getitem__, commit.tree, os.fsencode(path))
            found = self._store[name]
        except (KeyError, ValueError):
            return b""
        return found.data[:_LARGEST] if isinstance(found, Blob) else b""

    # --- names

    def author_names(self, commits: Iterable[Commit]) -> list[str]:
        """Each commit's author as the mailmap of the head names them, without addresses."""
        head = self.commit(self.head or "")
        with readable():
            mailmap = Mailmap(read_mailmap(BytesIO(self.content(head, ".mailmap")))) if head else Mailmap()
            names = (mailmap.lookup((each.name.encode(), each.address.encode())) for each in commits)
            return [_text(each[0] or b"") or "somebody" for each in names if isinstance(each, tuple)]

    def tags(self) -> list[Tag]:
        """The tags of commits that are here, oldest first."""
        found = []
        with readable():
            for ref, name in self._refs(_TAGS):
                try:
                    tag, target = peel_sha(self._store, name)
                except KeyError:
                    continue
                if isinstance(target, RawCommit):
                    at = tag.tag_time if isinstance(tag, RawTag) else None
                    found.append(Tag(_text(ref), target.id.decode(), at or target.commit_time))
        return sorted(found, key=lambda tag: (tag.at, tag.name))

    def branches(self) -> Mapping[str, str]:
        """The commit of each local branch, and of each remote branch without a local one of its name."""
        with readable():
            found = {_text(ref): name.decode() for ref, name in self._refs(_HEADS)}
            for ref, name in self._refs(_REMOTES):
                remote, _, branch = _text(ref).partition("/")
                if branch and branch != "HEAD" and branch not in found:
                    found[f"{remote}/{branch}"] = name.decode()
        return found

    def _refs(self, below: bytes) -> list[tuple[bytes, ObjectID]]:
        return sorted(self._repo.refs.as_dict(Ref(below.rstrip(b"/"))).items())


@contextmanager
def readable() -> Iterator[None]:
    """Raises Invalid for a repository that dulwich cannot read, without the text of dulwich's error. A KeyError, for an
    object that is not in this clone, stays."""
    try:
        yield
    except (Invalid, KeyError):
        raise
    except Exception:  # noqa: BLE001  damaged data raises errors of any class in dulwich
        raise damaged() from None


def damaged() -> Invalid:
    return Invalid("project_dir", "is a git repository that cannot be read: `git fsck` names the damage")


def _path(data: bytes) -> str:
    """Different paths stay different, whatever their bytes are."""
    return data.decode("utf-8", "surrogateescape")


def _text(data: bytes, encoding: bytes | None = None) -> str:
    try:
        return data.decode((encoding or b"utf-8").decode("ascii", "replace"), "replace")
    except LookupError:
        return data.decode("utf-8", "replace")
