"""Workers refine agents while tasks repeat, Redis is emptied, PostgreSQL restarts, or the model does not answer."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.jobs import inside
from tests.jobs.ending import assert_clean, refine_all
from tests.jobs.fleet import Fleet, new_fleet
from tests.jobs.scripted import SlowModel
from tests.model_server import ModelServer, Slow
from tests.servers import PostgreSQL

pytestmark = [pytest.mark.slow, pytest.mark.postgresql, pytest.mark.usefixtures("databases")]


def test_repeated_tasks_and_two_sweeps_at_once_refine_each_agent_once(fleet: Fleet) -> None:
    agents = 12
    fleet.do(inside.create_agents, agents)
    assert fleet.do_twice(inside.sweep_at, time.time() + 3) == ["swept", "swept"]
    assert fleet.do(inside.counts)["waiting"] == agents
    assert fleet.do(inside.repeat_queue) > 0
    fleet.start(2)
    refine_all(fleet, lambda: fleet.do(inside.repeat_queue) >= 0)
    assert_clean(fleet)
    assert len(fleet.do(inside.sessions)) == agents


def test_an_emptied_redis_refines_each_agent_once(model: SlowModel, model_server: ModelServer, tmp_path: Path) -> None:
    agents, flushes = 16, 0
    with servers.redis_server() as redis:

        def disturb() -> bool:
            nonlocal flushes
            if flushes < 5 and model.ended > 2 * flushes:
                redis.flush()
                flushes += 1
                if flushes == 5:
                    redis.stop()
                    time.sleep(3)
                    redis.start()
            return flushes == 5

        variables = {"redis_url": redis.url, "OPENAI_BASE_URL": model_server.openai_url}
        with new_fleet(tmp_path, **variables) as fleet:
            fleet.do(inside.create_agents, agents)
            fleet.start(2)
            refine_all(fleet, disturb)
            assert fleet.exit_codes == []
            assert_clean(fleet)
            assert len(fleet.do(inside.sessions)) == agents


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSQL]:
    if servers.postgresql_command("initdb") is None:
        pytest.skip("needs PostgreSQL's initdb: it is neither on the PATH nor under /usr/lib/postgresql")
    with servers.postgresql_server() as server:
        yield server


def test_a_restart_of_postgresql_loses_no_edit(
    postgresql: PostgreSQL, model: SlowModel, model_server: ModelServer, tmp_path: Path
) -> None:
    stops = {2: "fast", 6: "immediate"}  # after this number of completed sessions

    def disturb() -> bool:
        if stops and model.ended > min(stops):
            postgresql.stop(stops.pop(min(stops)))
            postgresql.start()
        return not stops

    variables = {"OPENAI_BASE_URL": model_server.openai_url}
    with servers.database(postgresql.url, "fleet") as url, new_fleet(tmp_path, url, **variables) as fleet:
        fleet.do(inside.create_agents, 12)
        fleet.start(2)
        refine_all(fleet, disturb)
        assert_clean(fleet)
        ended = {(each["outcome"], each["reason"]) for each in fleet.do(inside.sessions)}
        others = {outcome for outcome, _ in ended - {("incomplete", "database_failed")}}
        assert others <= {"completed", "abandoned", "failed"}


def test_a_model_that_never_answers_is_paused(model: SlowModel, model_server: ModelServer, tmp_path: Path) -> None:
    seconds, agents = 2, 6
    variables = {"OPENAI_BASE_URL": model_server.openai_url, "MODEL_CALL_SECONDS": str(seconds)}
    model_server.script = Slow(600)
    with new_fleet(tmp_path, **variables) as fleet:
        fleet.do(inside.create_agents, agents)
        fleet.start()
        fleet.do(inside.queue_schedules)
        fleet.until(lambda: "openai" in fleet.do(inside.paused_providers))
        assert fleet.do(inside.sessions) == [], "a session opens only after the model has answered"
        assert fleet.do(inside.counts)["due"] == agents
        model_server.script = model
        refine_all(fleet)
        assert_clean(fleet)
