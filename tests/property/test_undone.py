"""What is undone, worked out from runs, against the plain reading of it: each rollback looked at, newest first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.time_machine.selection import Undone

pytestmark = pytest.mark.database

LAST = 30


@st.composite
def rollbacks(draw: st.DrawFn) -> list[tuple[int, list[tuple[int, int]]]]:
    """(entry, the runs it undid), newest first; each undoes entries before it alone."""
    told = []
    for seq in sorted(draw(st.sets(st.integers(2, LAST), max_size=12)), reverse=True):
        undid = sorted(draw(st.sets(st.integers(1, seq - 1), min_size=1)))
        starts = [entry for entry in undid if entry - 1 not in undid]
        ends = [entry for entry in undid if entry + 1 not in undid]
        told.append((seq, list(zip(starts, ends, strict=True))))
    return told


def plainly(entry: int, told: list[tuple[int, list[tuple[int, int]]]]) -> int | None:
    for seq, runs in told:
        if any(first <= entry <= last for first, last in runs) and plainly(seq, told) is None:
            return seq
    return None


@given(rollbacks())
def test_the_runs_say_what_the_rollbacks_say(told: list[tuple[int, list[tuple[int, int]]]]) -> None:
    runs = Undone(told)
    for entry in range(LAST + 1):
        assert runs.by(entry) == plainly(entry, told)
