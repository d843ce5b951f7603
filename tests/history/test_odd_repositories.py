"""Repositories as they are found: bare, shallow, empty, detached, with submodules, in worktrees, broken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memory.errors import Invalid
from memory.git_history import report, storage
from memory.git_history.analysis import Analysis, Limits, Parts, analyze, most_changed
from memory.git_history.repository import Repository
from tests.history import plain_git
from tests.history.repositories import DAY, NOW, commit, git, made


def analysis(folder: Path, limits: Limits | None = None, **more: object) -> Analysis | None:
    with Repository(folder) as repository:
        return analyze(repository, limits or Limits(90, 1_000, 60), Parts(branches=True), now=NOW, **more)  # type: ignore[arg-type]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository with a file that was committed twice."""
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "first", {"a.py": "1"})
    commit(folder, "second", {"a.py": "2", "b/c.md": "3"})
    return folder


def all_of(found: Analysis | None) -> Analysis:
    assert found is not None
    return found


def paths(found: Analysis | None) -> dict[str, int]:
    assert found is not None
    return {path: types.total() for path, types in most_changed(found.facts)}


def test_from_a_folder_within(work: Path) -> None:
    assert paths(analysis(work / "b")) == {"a.py": 2, "b/c.md": 1}


def test_no_repository_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="is not in a git repository"):
        Repository(tmp_path)
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all")
    with pytest.raises(Invalid, match="project_dir"):
        Repository(tmp_path)
    (tmp_path / ".git").unlink()
    git(tmp_path, "init", "--quiet")
    with Repository(tmp_path) as repository:
        assert repository.head is None
    assert analysis(tmp_path) is None


def test_a_bare_one(work: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(work), "bare.git")
    assert paths(analysis(tmp_path / "bare.git")) == paths(analysis(work))


def test_a_detached_head(work: Path) -> None:
    git(work, "checkout", "--quiet", "--detach", "HEAD~1")
    found = analysis(work)
    assert found is not None
    assert (found.branch, len(found.facts)) == ("", 1)
    assert "a detached head" in report.render(found, "work")
    assert found.branches is not None
    assert [name for name, _, _ in found.branches.newest] == ["main"]


def test_another_worktree(work: Path, tmp_path: Path) -> None:
    git(work, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "other"))
    commit(tmp_path / "other", "third", {"d.py": "4"})
    found = analysis(tmp_path / "other")
    assert found is not None
    assert (found.branch, len(found.facts)) == ("other", 3)
    assert len(analysis(work).facts) == 2  # type: ignore[union-attr]


def test_a_shallow_clone(work: Path, tmp_path: Path) -> None:
    for nth in range(3):
        commit(work, f"more {nth}", {"a.py": f"more {nth}"})
    git(tmp_path, "clone", "--quiet", "--depth=2", f"file://{work}", "shallow")
    found = analysis(tmp_path / "shallow")
    assert found is not None
    assert [fact.changes for fact in found.facts] == [{"a.py": "modify"}, None]  # of the last its parent is not here
    assert found.is_shallow
    said = report.covered(found)
    assert "the files of 1 of them are not in this clone" in said
    assert "the clone is shallow" in said
    assert "begun within this time" not in report.render(found, "shallow")


def test_a_partial_clone(work: Path, tmp_path: Path) -> None:
    git(work, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--no-checkout", "--filter=tree:0", f"file://{work}", "partial")
    found = analysis(tmp_path / "partial")
    assert found is not None
    assert [fact.changes for fact in found.facts] == [None, None]
    assert found.now is None
    assert "are not in this clone" in report.covered(found)


def test_submodules(work: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.mkdir()
    git(part, "init", "--quiet")
    commit(part, "of the part", {"x.py": "1"})
    git(work, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part), "vendor/part")
    commit(work, "with a part", {})
    found = analysis(work)
    assert paths(found)["vendor/part"] == 1
    assert found is not None
    assert found.now is not None
    assert found.now.files == 3  # a.py, b/c.md, .gitmodules
    assert len(analysis(work / "vendor" / "part").facts) == 1  # type: ignore[union-attr]


def test_a_file_that_became_a_folder(work: Path) -> None:
    (work / "a.py").unlink()
    commit(work, "a folder now", {"a.py/inside.py": "1"})
    found = analysis(work)
    assert found is not None
    assert found.facts[0].changes == {"a.py": "delete", "a.py/inside.py": "add"}


def test_names_that_are_no_text(work: Path) -> None:
    (work / os.fsdecode(b"caf\xe9.py")).write_text("1")
    (work / os.fsdecode(b"caf\xe8.py")).write_text("1")
    commit(work, "odd names", {"with\nline.py": "2"})
    found = analysis(work)
    assert found is not None
    assert len(found.facts[0].changes or {}) == 3
    report.render(found, "work").encode()


def test_messages_in_other_encodings_and_without_any(work: Path) -> None:
    (work / "a.py").write_text("5")
    git(
        work,
        "-c",
        "i18n.commitEncoding=ISO-8859-1",
        *_who(),
        "commit",
        "-qa",
        "-F",
        "-",
        data="Façade".encode("latin-1"),
    )
    (work / "a.py").write_text("6")
    git(work, *_who(), "commit", "-qa", "--allow-empty-message", "-m", "")
    found = analysis(work)
    assert found is not None
    assert [fact.subject for fact in found.facts[:2]] == ["", "Façade"]


def _who() -> tuple[str, ...]:
    return ("-c", "user.name=Ada", "-c", "user.email=ada@quay.test")


def test_times_beyond_any_calendar(work: Path) -> None:
    commit(work, "far", {"a.py": "7"}, at=10**13)
    found = analysis(work)
    assert found is not None
    assert "to 9999-12-31" in report.render(found, "work")
    assert storage.tags_of(found)[1].endswith(" to 9999-12-31T23:59:59Z")


@pytest.mark.parametrize("damage", ["a pack", "the objects", "a missing head"])
def test_a_damaged_one(work: Path, damage: str) -> None:
    if damage == "a pack":
        git(work, "gc", "--quiet")
        for path in (work / ".git" / "objects" / "pack").glob("*.pack"):
            path.chmod(0o600)
            path.write_bytes(path.read_bytes()[:40] + bytes(300))
    elif damage == "the objects":
        for path in (work / ".git" / "objects").glob("??/*"):
            path.chmod(0o600)
            path.write_bytes(b"no object")
    else:
        (work / ".git" / "refs" / "heads" / "main").write_text(f"{'1' * 40}\n")
    with pytest.raises(Invalid, match=r"cannot be read\. Run `git fsck` to find the damage") as refused:
        analysis(work)
    assert "Error" not in str(refused.value)
    assert "Exception" not in str(refused.value)


def test_nothing_of_a_repository_is_run(work: Path, tmp_path: Path) -> None:
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
    git(tmp_path, "init", "--quiet", "--object-format=sha256", "--initial-branch=main")
    commit(tmp_path, "first", {"a.py": "1"})
    head = commit(tmp_path, "second", {"a.py": "2", "b/c.sql": "3"})
    git(tmp_path, "tag", "v1.0.0")
    if is_packed:
        git(tmp_path, "gc", "--quiet")
    found = analysis(tmp_path)
    assert found is not None
    assert (found.head, len(found.head), len(found.facts)) == (head, 64, 2)
    assert paths(found) == {"a.py": 2, "b/c.sql": 1}
    assert found.tags is not None
    assert [tag.commit for tag in found.tags] == [head]


# --- limits


def test_days_and_commits(work: Path) -> None:
    commit(work, "of today", {"a.py": "8"}, at=NOW - 5)
    commit(work, "of the day before yesterday", {"a.py": "9"}, at=NOW - 2 * DAY)
    assert len(all_of(analysis(work, Limits(1, 10, 60))).facts) == 3
    assert report.covered(all_of(analysis(work, Limits(1, 10, 60)))).endswith("; all of the last 1 day")
    found = all_of(analysis(work, Limits(90, 1, 60)))
    assert report.covered(found).endswith("; the newest; there are more in the last 90 days")


def test_a_project_without_commits_in_the_days_falls_back_to_the_newest(work: Path) -> None:
    with Repository(work) as repository:
        found = all_of(analyze(repository, Limits(1, 1, 60), Parts(), now=NOW + 3 * DAY))
    assert (len(found.facts), found.is_older) == (1, True)
    said = report.covered(found)
    assert said.endswith("; all older than the last 1 day")
    assert said in report.render(found, "work")


@pytest.mark.parametrize("bad", [{"days": 0}, {"commits": -1}, {"seconds": 0}, {"days": 10**6}, {"seconds": 10**9}])
def test_limits_that_are_none(bad: dict[str, int]) -> None:
    with pytest.raises(Invalid, match=f"{next(iter(bad))}: must be from 1 to"):
        Limits(**{"days": 1, "commits": 1, "seconds": 1} | bad)


class Ticking:
    """A clock that advances half a second each time somebody looks at it."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def test_it_stops_in_time_and_says_how_far_it_came(tmp_path: Path) -> None:
    folder = made(tmp_path / "long.git", 300, ending=NOW - 60)
    found = all_of(analysis(folder, Limits(90, 1_000, 50), clock=Ticking()))
    assert 20 < len(found.facts) < 100
    assert [fact.id for fact in found.facts] == git(folder, "rev-list", "HEAD").split()[: len(found.facts)]
    assert f"{len(found.facts)} commits from " in report.render(found, "long")
    assert "; the newest that could be read in 50 seconds" in report.covered(found)
    assert found.now is not None
    assert found.now.files == len(plain_git.files(folder, "HEAD"))  # there was time left for it
