"""PostgreSQL ends every connection again and again, as in a failover. Then it works again.

`LOST_SECONDS=60 pytest tests/fault/test_lost_connections.py` does that for a minute.
"""

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError

from audit.bulk import streamed
from tests.commands.calling import Installation
from tests.commands.serving import Served, start_serving, until_ready
from tests.model_server import Call, ModelServer, Slow
from tests.servers import until

SECONDS = float(os.environ.get("LOST_SECONDS", "10"))
SOON = Slow(2, then=Call("complete_refinement", {"summary": "Nothing to do."}))
END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s"


class LostRows:
    """Rows whose cursor cannot be closed, because PostgreSQL has ended the connection."""

    def iterator(self, _: int) -> Iterator[int]:
        try:
            yield 1
        finally:
            raise psycopg.errors.AdminShutdown


@pytest.mark.database
@pytest.mark.postgresql
@pytest.mark.django_db
def test_a_cursor_of_a_lost_connection_gives_djangos_error() -> None:
    """The error came from PostgreSQL's driver, so a request got the status 500."""
    rows: Any = LostRows()
    with pytest.raises(OperationalError), streamed(rows) as found:
        next(found)


@pytest.mark.slow
@pytest.mark.postgresql
def test_work_continues_and_no_agent_waits_longer(service: Installation, scaled: dict[str, str]) -> None:
    assert service.manage("migrate", "--verbosity", "0", **scaled).code == 0
    with ModelServer(lambda _: SOON) as server:
        variables = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any", "SWEEP_MINUTES": "1"}
        serving = start_serving(service, **scaled, **variables)
        try:
            key = until_ready(serving).create_agent(model="openai/scripted")
            processes = sorted(serving.descendants())
            serving.refine(key, "open")
            _end_connections(serving, scaled["DATABASE_URL"], key)
            assert serving.request("GET", "readyz")[0] == 200
            until(lambda: _sessions(serving, key)[0] == ("completed", ""), seconds=5 * 120)
            assert set(_sessions(serving, key)[1:]) == {("incomplete", "database_failed")}
            assert sorted(serving.descendants()) == processes
            assert service.manage("verify_audit", "--all", **scaled).code == 0
        finally:
            serving.kill()


def _end_connections(serving: Served, url: str, key: str) -> None:
    ends = time.monotonic() + SECONDS
    with psycopg.connect(url, autocommit=True) as connection:
        while time.monotonic() < ends:
            connection.execute(END, [connection.info.backend_pid])
            assert serving.request("GET", "healthz")[0] == 200
            assert serving.request("GET", "api/v1/memories", key=key)[0] in (200, 503)
            time.sleep(0.2)


def _sessions(serving: Served, key: str) -> list[tuple[str, str]]:
    """The outcome and the reason of each session, newest first."""
    found = json.loads(serving.request("GET", "api/v1/refinement-sessions", key=key)[1])["results"]
    return [(each["outcome"], each["reason"]) for each in found]
