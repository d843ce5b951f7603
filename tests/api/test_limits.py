"""The rate limit of a key."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.core.cache import cache

from tests.api.calling import Caller


@pytest.fixture(autouse=True)
def _limit(settings: Any) -> None:
    settings.API_RATE = 3
    cache.clear()


def test_a_key_above_its_rate_is_429_for_the_rest_of_the_minute(
    runtime: Caller, stranger: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    assert [runtime.get("agent").headers["X-RateLimit-Remaining"] for _ in range(3)] == ["2", "1", "0"]
    answer = runtime.get("agent")
    assert (answer.status, answer.codes, answer.headers["X-RateLimit-Limit"]) == (429, ["throttled"], "3")
    assert 0 < int(answer.headers["Retry-After"]) <= 60
    assert stranger.get("agent").status == 200
    monkeypatch.setattr("memory.api.base.views.time.time", lambda: now + 60)
    assert runtime.get("agent").status == 200


def test_requests_without_a_key_or_a_working_cache_are_not_counted(runtime: Caller, monkeypatch: Any) -> None:
    assert [Caller().get("agent").status for _ in range(5)] == [401] * 5
    assert runtime.get("agent").status == 200

    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError

    monkeypatch.setattr("memory.api.base.views.counts.incr", fails)
    assert [runtime.get("agent").status for _ in range(5)] == [200] * 5
