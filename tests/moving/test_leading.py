"""Where paths and links of a folder lead, and what it takes to know."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory.transfer import walk
from memory.transfer.formats.found import Found
from memory.transfer.reading import looked_at
from memory.transfer.symlinks import NOWHERE, OUT, Links
from memory.transfer.walk import Kind

# A path → where it leads, or why it leads to nothing that could be read. `out` leads to a folder beside this one.
LEADS = {
    "a.md": "docs/a.md",
    "docs/../docs/a.md": "docs/a.md",
    "same/a.md": "docs/a.md",
    "same/same/../a.md": "docs/a.md",
    "around": "docs/a.md",
    "whole": "docs/a.md",
    ".": "",
    "itself/itself/docs": "docs",
    "none": NOWHERE,
    "none/../docs/a.md": NOWHERE,
    "docs/a.md/b": NOWHERE,
    "loop": NOWHERE,
    "loop/a.md": NOWHERE,
    "to-loop": NOWHERE,
    "broken": NOWHERE,
    "out": OUT,
    "out/b.md": OUT,
    "up": OUT,
    "../beside": OUT,
    "x\0y": NOWHERE,
    "x" * 300: NOWHERE,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "beside").mkdir()
    here = tmp_path / "here"
    (here / "docs").mkdir(parents=True)
    (here / "docs/a.md").write_text("A.\n")
    for name, led in {
        "a.md": "docs/a.md",
        "same": "./docs/",
        "docs/same": "../docs",
        "around": "../here/docs/a.md",
        "whole": str(here / "docs/a.md"),
        "itself": ".",
        "loop": "to-loop",
        "to-loop": "loop",
        "broken": "docs/b.md",
        "out": "../beside",
        "up": "..",
    }.items():
        (here / name).symlink_to(led)
    return here


@pytest.mark.parametrize("first", [True, False])
def test_a_path_leads_where_the_system_would_go(folder: Path, first: bool) -> None:
    """Whichever is asked for first."""
    with walk.opened(folder) as tree:
        links = Links(tree)
        asked = list(LEADS) if first else list(reversed(LEADS))
        found = {path: links.leads(path) for path in asked}
    assert {path: led.why or led.path for path, led in found.items()} == LEADS


def test_links_are_followed_so_far(tmp_path: Path) -> None:
    (tmp_path / "l0").write_text("")
    for n in range(60):
        (tmp_path / f"l{n + 1}").symlink_to(f"l{n}")
    with walk.opened(tmp_path) as tree:
        links = Links(tree)
        assert links.leads("l60").why == NOWHERE
        assert links.leads("l30").kind is Kind.FILE


def test_many_imports_through_deep_folders_look_each_name_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep, many = "d/" * 100, 50
    (tmp_path / deep).mkdir(parents=True)
    for n in range(many):
        (tmp_path / deep / f"{n}.md").write_text(f"{n}\n")
    missing = "".join(f"@none/{deep}{n}.md\n" for n in range(many))
    (tmp_path / "CLAUDE.md").write_text("".join(f"@{deep}{n}.md\n" for n in range(many)) + missing)
    asked = _counted(monkeypatch, "lstat", "open")
    with looked_at(tmp_path) as look:
        looks = asked.copy()
        assert len({item.path for item in look.parts() if isinstance(item.part, Found)}) == many + 1
    assert looks["lstat"] <= 100 + many + 10
    walks = 100 * 101 / 2  # of the folder itself, which lists each folder by its own way
    assert asked["open"] - walks < 10 * (100 + many)


def _counted(monkeypatch: pytest.MonkeyPatch, *names: str) -> Counter[str]:
    counts: Counter[str] = Counter()

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            counts[name] += 1
            return real(*given, **named)

        return call

    for name in names:
        monkeypatch.setattr(os, name, counting(name, getattr(os, name)))
    return counts


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_folders_that_are_held_open_are_few_and_closed(tmp_path: Path) -> None:
    for n in range(40):
        (tmp_path / f"{n}").mkdir()
        (tmp_path / f"{n}/AGENTS.md").write_text(f"{n}\n")
    before = _open_files()
    with looked_at(tmp_path) as look:
        assert len(list(look.parts())) == 40
        assert _open_files() - before <= 20
    assert _open_files() == before


def test_a_folder_put_in_anothers_place_is_opened_anew(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("A.\n")
    with walk.opened(tmp_path) as tree:
        first = tree.stamp("docs/a.md")
        (tmp_path / "docs").rename(tmp_path / "was")
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs/a.md").write_text("A.\n")
        assert tree.stamp("docs/a.md") != first
