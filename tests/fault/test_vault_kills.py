"""Writers of a vault killed by SIGKILL at any thing they do to a file: repaired, silo and vault say the same.

A few in every run; KILLS=200 for the figures in docs/internals/reliability.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.commands.calling import ROOT, Installation
from tests.commands.conftest import _made as _made
from tests.commands.conftest import service as service

KILLS = int(os.environ.get("KILLS", "24"))
KINDS = {
    f"{when} {what}"
    for what in ("open", "fsync", "link", "replace", "rename", "commit")
    for when in ("before", "after")
}


def test_writers_are_killed_at_work_and_the_mended_vault_agrees_with_the_silo(service: Installation) -> None:
    env = service.environment | {"DJANGO_SETTINGS_MODULE": "config.settings"}
    seed = os.environ.get("SEED", "1")
    command = [sys.executable, "-m", "tests.fault.killing_vaults", str(service.folder), str(KILLS), seed]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    print({name: value for name, value in told.items() if name != "wrong"})
    assert told["kills"] == KILLS
    assert told["reached"] >= KILLS * 0.8  # a later run may pass fewer points than the rehearsal
    assert len(set(told["by_kind"]) & KINDS) >= min(KILLS, len(KINDS)) // 2
    assert told["wrong"] == []
