"""When files of a git repository last changed: the date of the commit, for a checkout gives every file its own time."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from dulwich.errors import NotGitRepository, NotTreeError
from dulwich.object_store import tree_lookup_path
from dulwich.objects import ObjectID, SubmoduleEncountered
from dulwich.repo import Repo

MAX_SECONDS = 20.0
_CACHED = 10_000  # objects


def last_changes(root: Path, paths: Collection[str]) -> dict[str, datetime]:
    """The date of the last commit that changed each path, as `git log -1 -- PATH` finds it. After MAX_SECONDS, the date
    of the oldest commit that was looked at. Paths are seen from the root of the repository. Files that git does not
    have, and repositories that cannot be read, give nothing."""
    try:
        with Repo(str(root)) as repository:
            return _History(repository).last_changes(paths)
    except (NotGitRepository, KeyError, OSError, ValueError, AssertionError):  # broken, or without a commit
        return {}


class _History:
    def __init__(self, repository: Repo) -> None:
        self._parents = repository.get_parents
        self._head = repository.head()
        self._object: Any = lru_cache(_CACHED)(repository.__getitem__)

    def last_changes(self, paths: Collection[str]) -> dict[str, datetime]:
        """All paths go back from commit to commit, each to a parent that has the same file, until no parent has."""
        found: dict[str, datetime] = {}
        there = {path: file for path in paths if (file := self._file(self._head, path))}
        waiting, ordered = {self._head: there}, [(0, self._head)]  # the newest commit first
        until = time.monotonic() + MAX_SECONDS
        while ordered:
            _, number = heapq.heappop(ordered)
            files = waiting.pop(number, {})
            for parent in self._parents(number) if time.monotonic() < until else ():
                same = {path: file for path, file in files.items() if self._file(parent, path) == file}
                files = {path: file for path, file in files.items() if path not in same}
                if same and parent not in waiting:
                    heapq.heappush(ordered, (-self._object(parent).commit_time, parent))
                if same:
                    waiting[parent] = waiting.get(parent, {}) | same
            found |= dict.fromkeys(files, datetime.fromtimestamp(self._object(number).commit_time, UTC))
        return found

    def _file(self, commit: ObjectID, path: str) -> ObjectID | None:
        tree = self._object(commit).tree
        with suppress(KeyError, NotTreeError, SubmoduleEncountered):
            return tree_lookup_path(self._object, tree, os.fsencode(path))[1]
        return None
