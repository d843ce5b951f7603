"""PostgreSQL is restarted while agents are refined: sessions cut off are taken over, and no edit is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.jobs import inside
from tests.jobs.ending import is_clean, refine_all
from tests.jobs.fleet import Fleet, new_fleet
from tests.jobs.scripted import SlowModel
from tests.model_server import ModelServer
from tests.servers import PostgreSQL

pytestmark = pytest.mark.postgresql
AGENTS = 12


@pytest.fixture(scope="module")
def postgresql(given: None) -> Iterator[PostgreSQL]:
    if servers.postgresql_command("initdb") is None:
        pytest.skip("needs PostgreSQL's initdb: it is neither on the PATH nor under /usr/lib/postgresql")
    with servers.postgresql_server() as server:
        yield server


@pytest.fixture
def fleet(postgresql: PostgreSQL, model_server: ModelServer, tmp_path: Path) -> Iterator[Fleet]:
    with (
        servers.database(postgresql.url, "fleet") as url,
        new_fleet(tmp_path, url, OPENAI_BASE_URL=model_server.openai_url) as made,
    ):
        yield made


def test_restarted_in_the_midst(fleet: Fleet, postgresql: PostgreSQL, model: SlowModel) -> None:
    after = {2: "fast", 6: "immediate"}  # so many sessions that ended

    def restart() -> bool:
        if after and model.ended > min(after):
            postgresql.stop(after.pop(min(after)))
            postgresql.start()
        return not after

    fleet.do(inside.furnish, AGENTS)
    fleet.start(2)
    refine_all(fleet, restart)
    assert is_clean(fleet)
    assert {session["outcome"] for session in fleet.do(inside.sessions)} <= {"completed", "abandoned", "failed"}
