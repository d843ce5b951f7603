"""Figures of the commits that were analyzed. Each equals a figure of `git log`; days and weeks are in UTC."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import islice

from dulwich.diff_tree import CHANGE_ADD, CHANGE_MODIFY

from memory.git_history.messages import MINOR
from memory.git_history.repository import Commit, Repository
from memory.git_history.stack import is_code, is_manifest

DAY = 86_400  # seconds
LONG = 14  # days after which a branch is long-lived
_WIDE, _SEVERAL = 20, 3  # files of a commit that reaches far, and of one that is more than a small fix
_DEPTH = 3  # levels of folders
_LATEST = 3  # decisions that are compared for each one that is listed
_SCORES = {"feature": 2, "revert": 2, "refactoring": 1, "fix": 1, "performance": 1}
LISTED = 3  # branches that are named
_BOT_BRANCH = re.compile(r"(?:origin/)?(?:dependabot|renovate|snyk)\b")  # of programs that update dependencies
_IN_LOG = "in the changelog"
_OBVIOUS = (*_SCORES, _IN_LOG)  # reasons that the subject says, or that say little
CHANGELOG = re.compile(r"(?:^|/)(?:changes|changelog|history|news|release[-_]?notes)(?:\.\w+)?$", re.IGNORECASE)


def day(at: int) -> date:
    return moment(at).date()


def moment(at: int) -> datetime:
    """A time in seconds since 1970. Times outside the calendar become its first or last second."""
    return datetime.fromtimestamp(min(max(at, -62_135_596_800), 253_402_300_799), UTC)


def significant(commits: Sequence[Commit], most: int) -> list[tuple[Commit, str]]:
    """The most important commits, the most important first, with the reasons that their subjects do not say.

    Releases, dependencies, tests and documentation do not count, nor do commits that a later one reverted.
    """
    scored = [(_reasons(commit), commit) for commit in _kept(commits)]
    ranked = sorted(
        (
            (sum(found.values()), commit.at, commit, ", ".join(why for why in found if why not in _OBVIOUS))
            for found, commit in scored
        ),
        key=lambda each: (-each[0], -each[1]),
    )
    return [(commit, reasons) for score, _, commit, reasons in ranked[:most] if score]


def _is_about_code(commit: Commit) -> bool:
    """Whether it changes code that is no test. True if its files are not known."""
    return commit.changes is None or any(map(is_code, commit.changes))


def _reasons(commit: Commit) -> dict[str, int]:
    message, changes = commit.message, commit.changes or {}
    if message.type in MINOR and not message.is_breaking:
        return {}
    found = {"breaking change": 5} if message.is_breaking else {}
    is_about_code = _is_about_code(commit)
    if message.is_security and (is_about_code or any(map(is_manifest, changes))):
        found["reverted security fix" if message.type == "revert" else "security fix"] = 3
    if any(kind != CHANGE_MODIFY and is_manifest(path) for path, kind in changes.items()):
        found["manifest added or removed"] = 2
    if any(kind == CHANGE_ADD and "/migrations/" in f"/{path}" for path, kind in changes.items()):
        found["migration"] = 1
    if is_about_code:
        found |= {message.type: _SCORES[message.type]} if message.type in _SCORES else {}
        found |= {_IN_LOG: 2} if any(map(CHANGELOG.search, changes)) else {}
        found |= {f"{len(changes):,} files": 2} if len(changes) >= _WIDE else {}
    return found


def decisions(commits: Sequence[Commit], most: int) -> list[Commit]:
    """The most important of the latest decisions about code that no later commit reverted.

    A decision is a commit whose message names one, that removes something in many files, or that reverts a security
    fix. Breaking changes, removals, reverts and those with a reason come first, then changes of several files.
    """
    found = (commit for commit in _kept(commits) if _is_about_code(commit) and _decides(commit))
    return sorted(islice(found, _LATEST * most), key=_weight, reverse=True)[:most]


def _decides(commit: Commit) -> bool:
    message = commit.message
    is_wide = len(commit.changes or ()) >= _WIDE and message.type not in MINOR
    is_revert = message.type == "revert" and message.is_security
    return bool(message.decision) or (message.is_removal and is_wide) or is_revert


def _weight(commit: Commit) -> int:
    message = commit.message
    weight = 4 * message.is_breaking + 3 * (message.is_removal or message.type == "revert")
    weight += 2 * (message.decision not in ("", commit.subject))
    return weight + (len(commit.changes or ()) >= _SEVERAL)


def _kept(commits: Sequence[Commit]) -> Iterator[Commit]:
    reverted = {commit.message.reverts for commit in commits}
    return (commit for commit in commits if commit.id not in reverted)


def most_changed(commits: Iterable[Commit]) -> list[tuple[str, Counter[str]]]:
    """Each file that commits change, with those commits by type; first the files of the most commits."""
    found: dict[str, Counter[str]] = {}
    for commit in commits:
        for path in commit.changes or ():
            found.setdefault(path, Counter())[commit.message.type] += 1
    return sorted(found.items(), key=lambda each: (-each[1].total(), each[0]))


def folders(commits: Iterable[Commit], most: int) -> list[tuple[str, int]]:
    """The folders that most commits change, at most three levels deep."""
    touched = (sorted({"/".join(path.split("/")[:-1][:_DEPTH]) for path in commit.changes or ()}) for commit in commits)
    return Counter(name for names in touched for name in names if name).most_common(most)


# --- branches


@dataclass(frozen=True, slots=True)
class Branches:
    """`merged` has, for each branch that a merge commit brought into the main line, its commits and its age in days.
    `squashed` counts the commits of the main line that are squashed pull requests, and `unmerged` the other branches.
    `newest` has the name of each of the newest of these that people made, its commits that the head does not have, and
    the time of the last one."""

    merged: tuple[tuple[int, float], ...]
    squashed: int
    unmerged: int
    newest: tuple[tuple[str, int, int], ...]


def main_line(commits: Sequence[Commit]) -> list[Commit]:
    """The head and its first parents, as far as they were analyzed, newest first."""
    by_id = {commit.id: commit for commit in commits}
    line, here = [], commits[0].id
    while here in by_id:
        line.append(by_id[here])
        here = next(iter(by_id[here].parents), "")
    return line


def branches(repository: Repository, commits: Sequence[Commit], is_late: Callable[[], bool]) -> Branches | None:
    """None if `is_late` says that there is no time left."""
    line, since = main_line(commits), min(commit.at for commit in commits)
    squashed = [commit for commit in line if commit.message.is_squashed and not commit.is_merge]
    merged = []
    for commit in reversed(line):
        for parent in commit.parents[1:] if not is_late() else ():
            if times := repository.beside(parent, commit.parents[0]):
                merged.append((len(times), max(0, commit.at - min(times)) / DAY))
    found = sorted(_open(repository, commits, squashed, since), key=lambda each: (-each[1].at, each[0]))
    of_people = [each for each in found if not _BOT_BRANCH.match(each[0])][:LISTED]
    newest = tuple((name, len(repository.beside(tip.id, commits[0].id)), tip.at) for name, tip in of_people)
    return None if is_late() else Branches(tuple(merged), len(squashed), len(found), newest)


def _open(
    repository: Repository, commits: Sequence[Commit], squashed: Sequence[Commit], since: int
) -> Iterator[tuple[str, Commit]]:
    """Branches that are not merged, with their last commits. A branch is merged by a squash if the subject of its last
    commit is the squash's subject, or a line of its body."""
    reached = {commit.id for commit in commits}
    lines = {line for commit in squashed for line in (commit.subject, *commit.body.splitlines())}
    taken = {line.strip("*- ").rpartition(" (#")[0] or line.strip("*- ") for line in lines}
    for name, tip in repository.branches().items():
        commit = repository.commit(tip)
        if commit and tip not in reached and commit.at >= since and commit.subject not in taken:
            yield name, commit
