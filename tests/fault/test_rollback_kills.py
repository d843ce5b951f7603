"""Rollbacks and redactions killed at random moments: all of the work is done, or nothing.

A few kills of 500 changes in every run; KILLS=200 CHANGES=10000 for the figures in docs/internals/reliability.md.
"""

import os

import pytest

from tests.commands.calling import Installation
from tests.fault.killing import run_script

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "9"))
CHANGES = int(os.environ.get("CHANGES", "500"))


@pytest.mark.parametrize("what", ["rollback", "redaction"])
def test_killed_work_is_done_completely_or_not_at_all(what: str, service: Installation) -> None:
    """Trap: deletes that run before the creates that replace them lose everything in a crash."""
    figures = run_script("killing_rollbacks", service, what, KILLS, CHANGES, os.environ.get("SEED", "1"))
    assert figures["problems"] == []
    nothing, everything = (figures["outcomes"].get(name, 0) for name in ("nothing", "all"))
    assert nothing + everything == KILLS
    assert nothing > KILLS // 3
