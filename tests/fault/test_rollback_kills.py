"""Rollbacks killed by SIGKILL at random moments: all of it, or nothing.

A few of 500 changes in every run; KILLS=200 CHANGES=10000 for the figures in docs/reliability.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.commands.calling import ROOT, Installation

KILLS = int(os.environ.get("KILLS", "12"))
CHANGES = int(os.environ.get("CHANGES", "500"))


def test_a_rollback_that_is_killed_is_done_whole_or_not_at_all(tmp_path: Path) -> None:
    """80-traps: deletes executed before the creates that replace them, and a crash between them."""
    command = [sys.executable, "-m", "tests.fault.killing_rollbacks", str(tmp_path)]
    done = subprocess.run(
        [*command, str(KILLS), str(CHANGES), os.environ.get("SEED", "1")],
        cwd=ROOT,
        env=Installation(tmp_path).environment | {"DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    print(told)
    assert told["wrong"] == []
    assert told["outcomes"].get("nothing", 0) + told["outcomes"].get("all", 0) == KILLS
    assert told["outcomes"].get("nothing", 0) > KILLS // 3
