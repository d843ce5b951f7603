"""Redis loses everything: the agents that were due are refined all the same, once each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs import inside
from tests.jobs.ending import is_clean, refine_all
from tests.jobs.fleet import Fleet, new_fleet
from tests.jobs.scripted import SlowModel
from tests.model_server import ModelServer
from tests.servers import Redis, redis_server

pytestmark = pytest.mark.postgresql
AGENTS = 16


@pytest.fixture
def redis(given: None) -> Iterator[Redis]:
    with redis_server() as server:
        yield server


@pytest.fixture
def fleet(redis: Redis, model_server: ModelServer, tmp_path: Path) -> Iterator[Fleet]:
    with new_fleet(tmp_path, redis_url=redis.url, OPENAI_BASE_URL=model_server.openai_url) as made:
        yield made


def test_flushed_over_and_over_then_stopped_and_started_empty(fleet: Fleet, redis: Redis, model: SlowModel) -> None:
    lost = 0

    def lose() -> bool:
        nonlocal lost
        if lost < 5 and model.ended > 2 * lost:
            redis.flush()
            lost += 1
            if lost == 5:
                redis.stop()
                time.sleep(3)  # for which there is none
                redis.start()
        return lost == 5

    fleet.do(inside.furnish, AGENTS)
    fleet.start(2)
    refine_all(fleet, lose)
    assert fleet.codes == []
    assert is_clean(fleet)
    assert len(fleet.do(inside.sessions)) == AGENTS
