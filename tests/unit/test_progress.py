"""Progress at a terminal."""

import io
import sys

import pytest

from config.commandline.progress import progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("total", "expected"), [(None, "1,200 commits"), (3_000, "1200/3000 commits")])
def test_progress_shows_the_total_if_it_is_known(
    total: int | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with progress("Analysing", unit="commits", total=total) as advance:
        advance(1_200)
    text = "".join(part.partition("m")[2] or part for part in terminal.getvalue().split("\x1b["))
    assert expected in text
    assert "/?" not in text
