"""Progress, where somebody is watching."""

from __future__ import annotations

import io
import sys

import pytest

from config.commandline.progress import progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("total", "told"), [(None, "1,200 commits"), (3_000, "1200/3000 commits")])
def test_what_is_done_is_told_of_how_many_where_that_is_known(
    total: int | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = _Terminal()
    monkeypatch.setattr(sys, "stderr", watched)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with progress("Analysing", unit="commits", total=total) as advance:
        advance(1_200)
    shown = "".join(part.partition("m")[2] or part for part in watched.getvalue().split("\x1b["))
    assert told in shown
    assert "/?" not in shown
