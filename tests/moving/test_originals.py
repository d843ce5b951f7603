"""`memory_rules originals`: files as they were, for the agent's side."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memory.models import Agent
from memory.transfer import sources
from tests.moving.calling import FILES, in_a_site, migrate, rules, with_a_vault  # noqa: F401  fixtures
from tests.rules import talking


def test_originals_come_back_as_they_were(ada: Agent, site: Path, tmp_path: Path) -> None:
    entry = migrate("--json").json["entry"]
    (site / "AGENTS.md").unlink()
    told = rules("originals", "--json").json["originals"]
    assert [(each["entry"], each["path"], each["bytes"]) for each in told] == [
        (entry, path, len(FILES[path])) for path in sorted(FILES) if FILES[path]
    ]
    assert rules("originals", str(entry), "--to", str(tmp_path / "back")).code == 0
    for path in ("AGENTS.md", "CLAUDE.md", ".cursor/rules/quays.mdc"):
        assert (tmp_path / "back" / path).read_text() == FILES[path]
        assert (tmp_path / "back" / path).stat().st_mtime == 1_772_600_000
        assert (tmp_path / "back" / path).stat().st_mode & 0o777 == 0o600
    again = rules("originals", str(entry), "--to", str(tmp_path / "back"))
    assert (again.code, "is there already" in again.err) == (2, True)


def test_originals_are_the_agents_sides(ada: Agent, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate()
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    ran = rules("originals")
    assert (ran.code, ran.out) == (2, "")


def test_without_originals(ada: Agent, site: Path) -> None:
    assert migrate("--no-originals", "--json").json["files_kept"] == 0
    assert "No files are kept." in rules("originals").err


def test_the_setting_decides_whether_they_are_kept(ada: Agent, site: Path) -> None:
    talking.settings(ada, migration_settings__migration_backup_originals=False)
    assert migrate("--json").json["files_kept"] == 0


def test_a_list_of_them_says_what_its_columns_are(ada: Agent, site: Path) -> None:
    assert rules("originals").out == ""
    entry = migrate("--json").json["entry"]
    heading, first, *_ = rules("originals").out.splitlines()
    assert heading == " entry  file of (UTC)              bytes  file"
    assert first == f"{entry:>6}  2026-03-04T04:53:20Z          45  .cursor/rules/quays.mdc"


@pytest.mark.parametrize("nanoseconds", [-1, -1_000, -(10**18) + 123_456_000, 10**18 + 123_456_000, 2**62])
def test_a_files_time_comes_back_to_the_microsecond(ada: Agent, site: Path, tmp_path: Path, nanoseconds: int) -> None:
    """That of before 1970 too."""
    os.utime(site / "CLAUDE.md", ns=(nanoseconds,) * 2)
    before = (site / "CLAUDE.md").stat().st_mtime_ns  # as far as the disk holds it
    entry = migrate("--json").json["entry"]
    assert rules("originals", str(entry), "--to", str(tmp_path / "back")).code == 0
    assert (tmp_path / "back/CLAUDE.md").stat().st_mtime_ns == before // 1_000 * 1_000


@pytest.mark.parametrize(("seconds", "year"), [(-(2**40), 1), (2**40, 9999)])
def test_a_files_time_is_of_the_calendar(seconds: int, year: int) -> None:
    assert sources._moment(seconds * 10**9).year == year
