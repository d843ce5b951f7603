"""Unusual repositories: bare, shallow, empty, detached, with submodules or worktrees, damaged, hostile; and limits."""

import os
from pathlib import Path

import pytest

from memory.errors import Invalid
from memory.git_history import report, storage
from memory.git_history.analysis import Analysis, Limits, Parts, analyze, most_changed
from memory.git_history.repository import Repository
from tests.history import plain_git
from tests.history.repositories import DAY, NOW, commit, git, made, new_repository

WHO = ("-c", "user.name=Ada", "-c", "user.email=ada@quay.test")
USUAL = Limits(90, 1_000, 60)


def analysis(folder: Path, limits: Limits = USUAL, now: int = NOW, **more: object) -> Analysis:
    with Repository(folder) as repository:
        found = analyze(repository, limits, Parts(branches=True), now=now, **more)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with two commits."""
    folder = new_repository(tmp_path / "work")
    commit(folder, "first", {"a.py": "1"})
    commit(folder, "second", {"a.py": "2", "b/c.md": "3"})
    return folder


def paths(found: Analysis) -> dict[str, int]:
    return {path: types.total() for path, types in most_changed(found.facts)}


def test_no_repository_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="is not in a git repository"):
        Repository(tmp_path)
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all")
    with pytest.raises(Invalid, match="project_dir"):
        Repository(tmp_path)
    (tmp_path / ".git").unlink()
    with Repository(new_repository(tmp_path)) as repository:
        assert repository.head is None
        assert analyze(repository, USUAL, Parts(), now=NOW) is None


def test_a_subfolder_and_a_bare_repository(work: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(work), "bare.git")
    for folder in (work / "b", tmp_path / "bare.git"):
        assert paths(analysis(folder)) == {"a.py": 2, "b/c.md": 1}


def test_a_detached_head_and_a_worktree(work: Path, tmp_path: Path) -> None:
    git(work, "checkout", "--quiet", "--detach", "HEAD~1")
    found = analysis(work)
    assert (found.branch, len(found.facts)) == ("", 1)
    assert "a detached head" in report.render(found, "work")
    assert found.branches is not None
    assert [name for name, _, _ in found.branches.newest] == ["main"]
    git(work, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "other"))
    commit(tmp_path / "other", "third", {"d.py": "4"})
    found = analysis(tmp_path / "other")
    assert (found.branch, len(found.facts), len(analysis(work).facts)) == ("other", 2, 1)


def test_a_shallow_clone(work: Path, tmp_path: Path) -> None:
    for place in range(3):
        commit(work, f"more {place}", {"a.py": f"more {place}"})
    git(tmp_path, "clone", "--quiet", "--depth=2", f"file://{work}", "shallow")
    found = analysis(tmp_path / "shallow")
    assert [fact.changes for fact in found.facts] == [{"a.py": "modify"}, None]  # the parent of the last is missing
    assert found.is_shallow
    for text in ("the files of 1 of them are not in this clone", "the clone is shallow"):
        assert text in report.covered(found)
    assert "begun within this time" not in report.render(found, "shallow")


def test_a_partial_clone(work: Path, tmp_path: Path) -> None:
    git(work, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--no-checkout", "--filter=tree:0", f"file://{work}", "partial")
    found = analysis(tmp_path / "partial")
    assert ([fact.changes for fact in found.facts], found.now) == ([None, None], None)
    assert "are not in this clone" in report.covered(found)


def test_submodules(work: Path, tmp_path: Path) -> None:
    part = new_repository(tmp_path / "part")
    commit(part, "of the part", {"x.py": "1"})
    git(work, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part), "vendor/part")
    commit(work, "with a part", {})
    found = analysis(work)
    assert found.now is not None
    assert (paths(found)["vendor/part"], found.now.files) == (1, 3)  # a.py, b/c.md, .gitmodules
    assert len(analysis(work / "vendor" / "part").facts) == 1


def test_unusual_file_names_and_a_file_that_becomes_a_folder(work: Path) -> None:
    (work / "a.py").unlink()
    commit(work, "a folder now", {"a.py/inside.py": "1"})
    assert analysis(work).facts[0].changes == {"a.py": "delete", "a.py/inside.py": "add"}
    for name in (b"caf\xe9.py", b"caf\xe8.py"):
        (work / os.fsdecode(name)).write_text("1")
    commit(work, "odd names", {"with\nline.py": "2"})
    found = analysis(work)
    assert len(found.facts[0].changes or {}) == 3
    report.render(found, "work").encode()


def test_another_encoding_an_empty_message_and_a_time_beyond_the_calendar(work: Path) -> None:
    (work / "a.py").write_text("5")
    latin = ("-c", "i18n.commitEncoding=ISO-8859-1", *WHO)
    git(work, *latin, "commit", "-qa", "-F", "-", data="Façade".encode("latin-1"))
    (work / "a.py").write_text("6")
    git(work, *WHO, "commit", "-qa", "--allow-empty-message", "-m", "")
    assert [fact.subject for fact in analysis(work).facts[:2]] == ["", "Façade"]
    commit(work, "far", {"a.py": "7"}, at=10**13)
    found = analysis(work)
    assert "to 9999-12-31" in report.render(found, "work")
    assert storage.tags_of(found)[1].endswith(" to 9999-12-31T23:59:59Z")


@pytest.mark.parametrize("damage", ["pack", "objects", "head"])
def test_a_damaged_repository(work: Path, damage: str) -> None:
    if damage == "pack":
        git(work, "gc", "--quiet")
        for path in (work / ".git" / "objects" / "pack").glob("*.pack"):
            path.chmod(0o600)
            path.write_bytes(path.read_bytes()[:40] + bytes(300))
    elif damage == "objects":
        for path in (work / ".git" / "objects").glob("??/*"):
            path.chmod(0o600)
            path.write_bytes(b"no object")
    else:
        (work / ".git" / "refs" / "heads" / "main").write_text(f"{'1' * 40}\n")
    with pytest.raises(Invalid, match=r"cannot be read\. Run `git fsck` to find the damage") as refused:
        analysis(work)
    assert not any(word in str(refused.value) for word in ("Error", "Exception"))


def test_no_program_of_a_repository_runs(work: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    git(work, "config", "core.fsmonitor", f"touch {ran}")
    git(work, "config", "filter.x.clean", f"touch {ran}")
    hook = work / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    analysis(work)
    assert not ran.exists()


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_sha256_repository(tmp_path: Path, is_packed: bool) -> None:
    new_repository(tmp_path, "--object-format=sha256")
    commit(tmp_path, "first", {"a.py": "1"})
    head = commit(tmp_path, "second", {"a.py": "2", "b/c.sql": "3"})
    git(tmp_path, "tag", "v1.0.0")
    if is_packed:
        git(tmp_path, "gc", "--quiet")
    found = analysis(tmp_path)
    assert (found.head, len(found.head), len(found.facts)) == (head, 64, 2)
    assert paths(found) == {"a.py": 2, "b/c.sql": 1}
    assert found.tags is not None
    assert [tag.commit for tag in found.tags] == [head]


def test_limits_of_days_and_commits(work: Path) -> None:
    commit(work, "of today", {"a.py": "8"}, at=NOW - 5)
    commit(work, "of the day before yesterday", {"a.py": "9"}, at=NOW - 2 * DAY)
    found = analysis(work, Limits(1, 10, 60))
    assert (len(found.facts), report.covered(found).rpartition("; ")[2]) == (3, "all of the last 1 day")
    covered = report.covered(analysis(work, Limits(90, 1, 60)))
    assert covered.endswith("; the newest; there are more in the last 90 days")
    found = analysis(work, Limits(1, 1, 60), now=NOW + 3 * DAY)  # no commit in the days: the newest
    assert (len(found.facts), found.is_older) == (1, True)
    assert report.covered(found).endswith("; all older than the last 1 day")
    assert report.covered(found) in report.render(found, "work")


@pytest.mark.parametrize("bad", [{"days": 0}, {"commits": -1}, {"seconds": 0}, {"days": 10**6}, {"seconds": 10**9}])
def test_an_invalid_limit_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(Invalid, match=f"{next(iter(bad))}: must be from 1 to"):
        Limits(**{"days": 1, "commits": 1, "seconds": 1} | bad)


class Ticking:
    """A clock that advances half a second each time it is read."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def test_at_the_time_limit_the_newest_commits_are_reported(tmp_path: Path) -> None:
    folder = made(tmp_path / "long.git", 300, ending=NOW - 60)
    found = analysis(folder, Limits(90, 1_000, 50), clock=Ticking())
    assert 20 < len(found.facts) < 100
    assert [fact.id for fact in found.facts] == git(folder, "rev-list", "HEAD").split()[: len(found.facts)]
    assert f"{len(found.facts)} commits from " in report.render(found, "long")
    assert "; the newest that could be read in 50 seconds" in report.covered(found)
    assert found.now is not None
    assert found.now.files == len(plain_git.files(folder, "HEAD"))
