"""Read a git repository with dulwich. Dulwich does not run hooks, filters or other programs that a repository
configures.

Renames are not detected: a moved file counts as one removed file and one added file.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dulwich import objects
from dulwich.errors import NotGitRepository
from dulwich.object_store import iter_tree_contents, peel_sha, tree_lookup_path
from dulwich.refs import HEADREF
from dulwich.repo import Repo
from dulwich.walk import WalkEntry

from memory.errors import Invalid
from memory.git_history import messages

_HEADS, _REMOTES, _TAGS = b"refs/heads/", b"refs/remotes/", b"refs/tags/"
_LARGEST = 1_000_000  # bytes of a file that are read at most
_SUBMODULE = 0o160000


@dataclass(frozen=True, slots=True, repr=False)
class Commit:
    """A commit. `at` is its time in seconds since 1970. `name` is the name of the author. The keys of `changes`
    are the changed paths. The values are dulwich's names for the kinds of changes. `changes` is None for a merge. It is
    also None if the files of the commit were not read, or are not in this clone."""

    id: str
    parents: tuple[str, ...]
    at: int
    name: str
    subject: str
    body: str
    message: messages.Message
    tree: objects.ObjectID
    changes: Mapping[str, str] | None = None

    @property
    def is_merge(self) -> bool:
        return len(self.parents) > 1


class Tag(NamedTuple):
    """A tag. `at` is the time of the tag. For a lightweight tag, it is the time of the commit."""

    at: int
    name: str
    commit: str


class Repository(AbstractContextManager["Repository"]):
    """The repository that contains a folder. Raises Invalid if the folder is not in a repository, or if the repository
    cannot be read."""

    def __init__(self, folder: Path) -> None:
        with readable():
            try:
                self._repo = Repo.discover(folder)
            except NotGitRepository:
                raise Invalid("project_dir", "is not in a git repository") from None
            if not Path(os.fsdecode(self._repo.controldir())).is_dir():
                raise Invalid("project_dir", "is in a git repository whose .git folder does not exist")
            self._shallow = frozenset(self._repo.get_shallow())
            self.is_shallow = bool(self._shallow)
            self._store = self._repo.object_store

    def __exit__(self, *_: object) -> None:
        with suppress(BufferError):  # dulwich raises this after it read a damaged pack
            self._repo.close()

    @property
    def head(self) -> str | None:
        """The id of the commit that is checked out. None if the repository has no commits."""
        with readable(), suppress(KeyError):
            return self._repo.head().decode()
        return None

    @property
    def branch(self) -> str:
        """The branch that is checked out. "" if the head is detached."""
        with readable():
            names, _ = self._repo.refs.follow(HEADREF)
        return _text(names[-1].removeprefix(_HEADS)) if names and names[-1].startswith(_HEADS) else ""

    def commit(self, name: str) -> Commit | None:
        """Return the commit with this id. Return None if the commit is not in this clone."""
        with readable(), suppress(KeyError):
            raw = self._repo[name.encode()]
            return self._parsed(raw) if isinstance(raw, objects.Commit) else None
        return None

    def walk(self, start: str, since: int | None, *, reads_files: bool) -> Iterator[Commit]:
        """Yield a commit and its ancestors in the order of `git log`. Commits before the time `since` are left out."""
        with readable():
            for entry in self._repo.get_walker(include=[objects.ObjectID(start.encode())], since=since):
                yield self._parsed(entry.commit, self._changes(entry) if reads_files else None)

    def times_not_in(self, tip: str, other: str) -> list[int]:
        """Return the times of the commits that are in the history of `tip` but not in the history of `other`."""
        names = [objects.ObjectID(name.encode()) for name in (tip, other)]
        with readable(), suppress(KeyError):
            found = self._repo.get_walker(include=names[:1], exclude=names[1:])
            return [entry.commit.commit_time for entry in found]
        return []

    def _parsed(self, raw: objects.Commit, changes: Mapping[str, str] | None = None) -> Commit:
        head, _, body = _text(raw.message or b"", raw.encoding).strip("\n").partition("\n\n")
        parents = () if raw.id in self._shallow else tuple(parent.decode() for parent in raw.parents)
        subject = " ".join(head.split())
        message = messages.read(subject, body.strip(), is_merge=len(parents) > 1)
        return Commit(
            id=raw.id.decode(),
            parents=parents,
            at=raw.commit_time,
            name=_text(raw.author, raw.encoding).rpartition("<")[0].strip() or "somebody",
            subject=subject,
            body=body.strip() if message.is_squashed else "",  # the body of a squash lists the commits of the branch
            message=message,
            tree=raw.tree,
            changes=changes,
        )

    def _changes(self, entry: WalkEntry) -> dict[str, str] | None:
        if entry.commit.id in self._shallow or len(entry.commit.parents) > 1:
            return None
        with suppress(KeyError):
            found = [(each.new or each.old, each.type) for each in entry.changes()]  # type: ignore[union-attr]
            return {os.fsdecode(file.path): kind for file, kind in found if file}
        return None

    def tree(self, commit: Commit) -> dict[str, bool]:
        """Return each path of a commit, and whether it is a folder. Submodules are left out. Raises KeyError if a tree
        is not in this clone."""
        found = iter_tree_contents(self._store, commit.tree, include_trees=True)
        modes = {os.fsdecode(entry.path): entry.mode or 0 for entry in found if entry.path}
        return {path: stat.S_ISDIR(mode) for path, mode in modes.items() if mode != _SUBMODULE}

    def content(self, commit: Commit, path: str) -> str:
        """Return the first megabyte of a file's text. Return "" if there is no such file."""
        with suppress(KeyError, ValueError):
            _, name = tree_lookup_path(self._store.__getitem__, commit.tree, os.fsencode(path))
            found = self._store[name]
            return _text(found.data[:_LARGEST]) if isinstance(found, objects.Blob) else ""
        return ""

    def tags(self) -> list[Tag]:
        """Return the tags whose commits are in this clone, oldest first."""
        found = []
        with readable():
            for ref, name in self._refs(_TAGS).items():
                with suppress(KeyError):
                    tag, target = peel_sha(self._store, name)
                    if isinstance(target, objects.Commit):
                        at = tag.tag_time if isinstance(tag, objects.Tag) else None
                        found.append(Tag(at or target.commit_time, ref, target.id.decode()))
        return sorted(found)

    def branches(self) -> Mapping[str, str]:
        """Return the newest commit of each branch, including remote branches. If several branches have the same commit,
        only one of them is returned."""
        with readable():
            names = {name: ref for refs in (_REMOTES, _HEADS) for ref, name in self._refs(refs).items()}
        return {ref: name.decode() for name, ref in sorted(names.items(), key=lambda each: each[1])}

    def _refs(self, below: bytes) -> dict[str, objects.ObjectID]:
        found = self._repo.refs.as_dict()
        return {_text(ref.removeprefix(below)): name for ref, name in found.items() if ref.startswith(below)}


@contextmanager
def readable() -> Iterator[None]:
    """Raise Invalid in place of an error of dulwich, without the text of that error. A KeyError is raised unchanged,
    because it means only that an object is not in this clone."""
    try:
        yield
    except (Invalid, KeyError):
        raise
    except Exception:  # noqa: BLE001  damaged data raises errors of any class in dulwich
        raise damaged() from None


def damaged() -> Invalid:
    return Invalid("project_dir", "is in a git repository that cannot be read. Run `git fsck` to find the damage")


def _text(data: bytes, encoding: bytes | None = None) -> str:
    with suppress(LookupError):
        return data.decode((encoding or b"utf-8").decode("ascii", "replace"), "replace")
    return data.decode("utf-8", "replace")
