"""Workers killed by SIGKILL while they refine agents: nothing is lost or doubled, every agent is refined.

A few kills in every run; `python -m tests.jobs.repeat 20` for the figures in docs/internals/reliability.md.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests import servers
from tests.jobs.killing import run

pytestmark = pytest.mark.postgresql
KILLS, SESSIONS, SEED = (int(os.environ.get(*each)) for each in (("KILLS", "10"), ("SESSIONS", "30"), ("SEED", "1")))


def test_killed_workers_lose_and_double_nothing_and_others_take_over(tmp_path: Path) -> None:
    if not servers.given()[0]:
        pytest.skip("needs DATABASE_URL of PostgreSQL, and REDIS_URL")
    told = run(tmp_path, KILLS, SESSIONS, SEED)
    print(json.dumps(told))
    assert told["wrong"] == []
    assert (told["lost"], told["doubled"], told["edits"]) == (0, 0, 7 * SESSIONS)
    assert told["outcomes"]["completed"] >= SESSIONS
    assert told["kills"] == KILLS
    assert told["takeovers"] > 0
