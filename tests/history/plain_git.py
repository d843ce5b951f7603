"""The figures of a history by plain git, for comparison. Nothing here uses the product."""

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from tests.history.repositories import DAY, git


def commits(folder: Path, *which: str) -> list[str]:
    """The commits of HEAD, newest first."""
    return git(folder, "rev-list", "HEAD", *which).split()


def _log(folder: Path, these: list[str], *how: str) -> str:
    return git(folder, "log", "--no-walk=unsorted", "--stdin", *how, data="\n".join(these).encode())


def times(folder: Path, these: list[str]) -> list[int]:
    return [int(line) for line in _log(folder, these, "--format=%ct").split()]


def subjects(folder: Path, these: list[str]) -> list[str]:
    return _log(folder, these, "--no-merges", "--format=%s").split("\n")[:-1]


def merges(folder: Path, these: list[str]) -> int:
    return len(_log(folder, these, "--merges", "--format=%H").split())


def changed(folder: Path, these: list[str]) -> list[list[str]]:
    """The paths that each commit changed, without merges."""
    log = _log(folder, these, "-z", "--no-merges", "--no-renames", "--name-only", "--format=%x1e")
    return [[path for path in re.split(r"[\0\n]", part) if path] for part in log.split("\x1e")[1:]]


def most_changed(folder: Path, these: list[str]) -> list[tuple[str, int]]:
    counted = Counter(path for paths in changed(folder, these) for path in paths)
    return sorted(counted.items(), key=lambda each: (-each[1], each[0]))


def days(folder: Path, these: list[str]) -> list[str]:
    return [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}" for at in times(folder, these)]


def files(folder: Path, commit: str) -> list[str]:
    listed = git(folder, "ls-tree", "-r", "-z", commit).split("\0")[:-1]
    return [line.partition("\t")[2] for line in listed if not line.startswith("160000")]


def folders(folder: Path, commit: str) -> list[str]:
    return git(folder, "ls-tree", "-r", "-d", "-z", "--name-only", commit).split("\0")[:-1]


def tags(folder: Path) -> list[str]:
    return git(folder, "for-each-ref", "--format=%(refname:strip=2)", "refs/tags").split()


def merged(folder: Path, head: str = "HEAD") -> list[tuple[int, float]]:
    """For each merge of the main line, oldest first: the number of its commits, and their age in days."""
    found = []
    for line in git(folder, "log", "--first-parent", "--merges", "--reverse", "--format=%H %ct", head).splitlines():
        merge, at = line.split()
        came = [int(each) for each in git(folder, "log", "--format=%ct", f"{merge}^1..{merge}^2").split()]
        found.append((len(came), max(0, int(at) - min(came)) / DAY))
    return found


def unmerged(folder: Path) -> dict[str, int]:
    names = git(folder, "for-each-ref", "--format=%(refname:strip=2)", "--no-merged=HEAD", "refs/heads").split()
    return {name: int(git(folder, "rev-list", "--count", f"HEAD..{name}")) for name in names}


def people(folder: Path) -> Counter[str]:
    return Counter(git(folder, "log", "--format=%an", "HEAD").splitlines())
