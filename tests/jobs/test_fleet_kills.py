"""Workers killed by SIGKILL while they refine agents: nothing is lost or doubled, every agent is refined.

A few kills in every run; `python -m tests.jobs.repeat 20` for the figures in docs/reliability.md.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests import servers
from tests.jobs.killing import run

pytestmark = pytest.mark.postgresql
KILLS, SESSIONS, SEED = (int(os.environ.get(*each)) for each in (("KILLS", "10"), ("SESSIONS", "30"), ("SEED", "1")))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not servers.given()[0]:
        pytest.skip("needs DATABASE_URL of PostgreSQL, and REDIS_URL")
    told = run(tmp_path_factory.mktemp("killed"), KILLS, SESSIONS, SEED)
    print(json.dumps(told))
    return told


def test_every_agent_is_refined_and_nothing_is_wrong(told: dict[str, Any]) -> None:
    assert told["wrong"] == []
    assert told["outcomes"]["completed"] >= SESSIONS


def test_no_edit_is_lost_or_doubled(told: dict[str, Any]) -> None:
    assert (told["lost"], told["doubled"]) == (0, 0)
    assert told["edits"] == 7 * SESSIONS


def test_workers_were_killed_and_others_took_over(told: dict[str, Any]) -> None:
    assert told["kills"] == KILLS
    assert told["takeovers"] > 0
