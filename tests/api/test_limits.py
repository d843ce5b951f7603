"""How often a key may ask, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache

from tests.api.calling import Caller


@pytest.fixture(autouse=True)
def _limit(settings: Any) -> None:
    settings.API_RATE = 3
    cache.clear()


def test_beyond_so_many_a_minute_a_key_waits(runtime: Caller, stranger: Caller) -> None:
    left = [runtime.get("agent").headers["X-RateLimit-Remaining"] for _ in range(3)]
    assert left == ["2", "1", "0"]
    answer = runtime.get("agent")
    assert (answer.status, answer.codes) == (429, ["throttled"])
    assert 0 < int(answer.headers["Retry-After"]) <= 60
    assert answer.headers["X-RateLimit-Limit"] == "3"
    assert stranger.get("agent").status == 200


def test_the_next_minute_is_another(runtime: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    now = time.time()
    for _ in range(4):
        last = runtime.get("agent").status
    assert last == 429
    monkeypatch.setattr("memory.api.base.views.time.time", lambda: now + 60)
    assert runtime.get("agent").status == 200


def test_who_has_no_key_is_not_counted(runtime: Caller) -> None:
    for _ in range(5):
        assert Caller().get("agent").status == 401
    assert runtime.get("agent").status == 200


def test_a_cache_that_forgets_lets_ask(runtime: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise ValueError

    monkeypatch.setattr("memory.api.base.views.counts.incr", gone)
    assert runtime.get("agent").status == 200
