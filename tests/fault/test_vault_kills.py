"""Writers of a vault killed at any operation on a file: after a repair, silo and vault agree.

A few kills in every run; KILLS=200 for the figures in docs/internals/reliability.md.
"""

import os

import pytest

from tests.commands.calling import Installation
from tests.fault.killing import run_script

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "24"))
CALLS = ("open", "fsync", "link", "replace", "rename", "commit")
KINDS = {f"{when} {call}" for call in CALLS for when in ("before", "after")}


def test_after_writers_are_killed_the_repaired_vault_agrees_with_the_silo(service: Installation) -> None:
    figures = run_script("killing_vaults", service, KILLS, os.environ.get("SEED", "1"))
    assert figures["kills"] == KILLS
    assert figures["reached"] >= KILLS * 0.8  # a later run may pass fewer points than the rehearsal
    assert len(set(figures["by_kind"]) & KINDS) >= min(KILLS, len(KINDS)) // 2
    assert figures["problems"] == []
