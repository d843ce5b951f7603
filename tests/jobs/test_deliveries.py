"""Tasks that come twice, and sweeps that run at the same time: each agent is refined once."""

from __future__ import annotations

import time

import pytest

from tests.jobs import inside
from tests.jobs.ending import is_clean, refine_all
from tests.jobs.fleet import Fleet

pytestmark = pytest.mark.postgresql
AGENTS = 12


def test_two_sweeps_at_once_and_every_task_delivered_twice(fleet: Fleet) -> None:
    fleet.do(inside.furnish, AGENTS)
    assert fleet.do_twice(inside.sweep_at, time.time() + 3) == ["swept", "swept"]
    assert fleet.do(inside.standing)["waiting"] == AGENTS
    assert fleet.do(inside.repeat_queue) > 0
    fleet.start(2)
    refine_all(fleet, lambda: fleet.do(inside.repeat_queue) >= 0)
    assert is_clean(fleet)
    assert len(fleet.do(inside.sessions)) == AGENTS
