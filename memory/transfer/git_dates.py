"""When files of a git repository last changed: the date of the commit, for a checkout gives every file its own time."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

from dulwich.errors import NotGitRepository
from dulwich.repo import Repo

MAX_COMMITS, MAX_SECONDS = 20_000, 20.0


def last_changes(root: Path, paths: Collection[str]) -> dict[str, datetime]:
    """The date of the newest commit that changed each path, seen from the root of the repository. A file that no commit
    within the bounds changed has the date of the oldest commit that was looked at. Files that git does not have, and
    repositories that cannot be read, give nothing."""
    found: dict[str, datetime] = {}
    try:
        with Repo(str(root)) as repository:
            for path, at in _changes(repository, {path.encode("utf-8", "surrogateescape") for path in paths}):
                found[path.decode("utf-8", "surrogateescape")] = at
    except (NotGitRepository, KeyError, OSError, ValueError, AssertionError):  # broken, or without a commit
        pass
    return found


def _changes(repository: Repo, paths: set[bytes]) -> Iterator[tuple[bytes, datetime]]:
    index = set(repository.open_index())
    wanted, until = paths & index, time.monotonic() + MAX_SECONDS
    at = None
    for entry in repository.get_walker(max_entries=MAX_COMMITS):
        if not wanted or time.monotonic() > until:
            break
        at = datetime.fromtimestamp(entry.commit.commit_time, UTC)
        for change in entry.changes():
            for each in change if isinstance(change, list) else [change]:
                path = each.new.path if each and each.new else None
                if path and path in wanted:
                    wanted.discard(path)
                    yield path, at
    if at is not None:
        yield from ((path, at) for path in wanted)
