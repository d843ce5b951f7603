"""Writers of a vault killed by SIGKILL at any thing they do to a file: repaired, silo and vault say the same.

A few in every run; KILLS=200 for the figures in docs/internals/reliability.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.own_database

KILLS = int(os.environ.get("KILLS", "40"))
ROOT = Path(__file__).resolve().parents[2]
UNWANTED = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "SILO_KEYS", "AUDIT_KEY", "PEPPER_KEY", "HEADS_KEY")
KINDS = {
    f"{when} {what}"
    for what in ("open", "fsync", "link", "replace", "rename", "commit")
    for when in ("before", "after")
}


def test_writers_are_killed_at_work_and_the_mended_vault_agrees_with_the_silo(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    env |= {"VAR_DIR": str(tmp_path), "KEYS_DIR": str(tmp_path / "keys"), "DJANGO_SETTINGS_MODULE": "config.settings"}
    command = [
        sys.executable,
        "-m",
        "tests.fault.killing_vaults",
        str(tmp_path),
        str(KILLS),
        os.environ.get("SEED", "1"),
    ]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    print({name: value for name, value in told.items() if name != "wrong"})
    assert told["kills"] == KILLS
    assert told["reached"] >= KILLS * 0.8  # a later run may pass fewer points than the rehearsal
    assert len(set(told["by_kind"]) & KINDS) >= min(KILLS, len(KINDS)) // 2
    assert told["wrong"] == []
