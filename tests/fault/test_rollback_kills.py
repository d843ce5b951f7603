"""Rollbacks, and redactions, killed by SIGKILL at random moments: all of it, or nothing.

A few of 500 changes in every run; KILLS=200 CHANGES=10000 for the figures in docs/internals/reliability.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.commands.calling import ROOT, Installation
from tests.commands.conftest import _made as _made
from tests.commands.conftest import service as service

KILLS = int(os.environ.get("KILLS", "9"))
CHANGES = int(os.environ.get("CHANGES", "500"))


@pytest.mark.parametrize("what", ["rollback", "redaction"])
def test_what_is_killed_is_done_whole_or_not_at_all(what: str, service: Installation) -> None:
    """Trap: deletes executed before the creates that replace them, and a crash between them wiped all."""
    command = [sys.executable, "-m", "tests.fault.killing_rollbacks", what, str(service.folder)]
    done = subprocess.run(
        [*command, str(KILLS), str(CHANGES), os.environ.get("SEED", "1")],
        cwd=ROOT,
        env=service.environment | {"DJANGO_SETTINGS_MODULE": "config.settings"},
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
