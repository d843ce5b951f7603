"""How a history's memory is worded: plurals, and lines that can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.git_history import telling
from memory.git_history.wording import folded, last_days, several
from memory.markdown import sections
from tests.history.repositories import git
from tests.history.test_keeping import analysis
from tests.history.test_odd_repositories import commit


@pytest.mark.parametrize(
    ("many", "told"),
    [(0, "0 files"), (1, "1 file"), (1.0, "1 file"), (1.5, "1.5 files"), (2, "2 files"), (2_000, "2,000 files")],
)
def test_one_is_one(many: float, told: str) -> None:
    assert several(many, "file") == told


def test_the_last_day_is_one() -> None:
    assert (last_days(1), last_days(90)) == ("the last day", "the last 90 days")


def test_a_long_item_goes_on_below() -> None:
    text = folded("- Technology Stack: " + ", ".join(f"Language{n} {n}" for n in range(40)))
    first, *others = text.split("\n")
    assert all(len(line) <= 120 for line in (first, *others))
    assert first.startswith("- Technology Stack: ")
    assert all(line.startswith("  Language") or line[2].isdigit() for line in others)
    assert " ".join(text.split()) == "- Technology Stack: " + ", ".join(f"Language{n} {n}" for n in range(40))


def test_short_lines_stay() -> None:
    assert folded("### Major Commits\n- one\n\ntwo") == "### Major Commits\n- one\n\ntwo"


def test_a_history_of_one_commit_says_one(tmp_path: Path) -> None:
    git(work := tmp_path, "init", "--quiet", "--initial-branch=main")
    commit(work, "feat: begin", {f"{name}/{name}.py": "1" for name in ("a" * 60, "b" * 60, "c" * 60)})
    text = telling.told(analysis(work), "work")
    said = sections.parted(text, "git_history")
    assert "on 1 of 1 day." in said["Analysis Summary"]
    assert "1 commit on 1 day" in " ".join(said["Development Insights"].split())
    assert not any(f" {word}" in text for word in ("1 commits ", "1 files", "1 days", "1 folders", "1 tags"))
    assert max(map(len, text.split("\n"))) <= 130
