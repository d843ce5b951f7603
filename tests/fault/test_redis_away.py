"""Redis is stopped and started: requests are served, work waits and resumes, and a worker drops what it cannot read."""

import os
import signal
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from redis import Redis

from tests import servers
from tests.commands.calling import Installation
from tests.commands.serving import Served, start_serving, until_ready

pytestmark = pytest.mark.slow

RATE = 300  # more than the polls of `session`
INVALID = [b"\xff\xfe", b"text", b"a:b:c", b""]


def failed_sign_ins(serving: Served, count: int) -> list[int]:
    with httpx.Client(base_url=f"http://{serving.address}", follow_redirects=True) as client:
        client.get("/admin/login/")
        form = {"csrfmiddlewaretoken": client.cookies["palimpsest_csrf"], "username": "pat@acme.test"}
        form |= {"password": "wrong", "code": "000000"}
        return [client.post("/admin/login/", data=form).status_code for _ in range(count)]


def push_invalid_tasks(redis: Any) -> None:
    with Redis.from_url(redis.url) as client:
        client.rpush("django_q:palimpsest:q", *INVALID)


def test_without_redis_requests_are_served_and_work_waits(service: Installation) -> None:
    with servers.redis_server() as redis, ExitStack() as stack:
        serving = start_serving(service, REDIS_URL=redis.url, API_RATE=str(RATE), SWEEP_MINUTES="10080")
        stack.callback(serving.kill)
        key = until_ready(serving).create_agent()
        push_invalid_tasks(redis)
        redis.stop()
        os.kill(serving.children()["worker"], signal.SIGKILL)  # another one starts and waits
        assert {serving.request("GET", "api/v1/agent", key=key)[0] for _ in range(RATE + 1)} == {200}
        assert serving.request("GET", "api/v1/schema/")[0] == 200
        assert failed_sign_ins(serving, 6)[-1] == 429
        assert serving.request("POST", "api/v1/memories", {"content": "The pier closes at nine."}, key)[0] == 201
        assert serving.request("POST", "api/v1/refinement-sessions", {"driver": "server"}, key)[0] == 202
        assert serving.request("GET", "readyz")[0] == 503
        redis.start()
        push_invalid_tasks(redis)
        serving.session(key, "completed", seconds=5 * 10)
    log = serving.log.read_text()
    assert [line in log for line in ("request not counted", "Failed to push task to queue")] == [True, True]
    assert log.count("worker ended") == 1
