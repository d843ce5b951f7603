"""Cleanup over the API: listed without content, decided by number, for the agent's key alone."""

from __future__ import annotations

from typing import Any

import pytest

from memory.models import Agent
from tests.api.calling import Caller
from tests.conftest import House
from tests.rules.test_cleanup import old
from tests.steps import active, last_entry, row


@pytest.fixture
def past(house: House) -> Agent:
    old(house.ada, "ZEBRA one", "ZEBRA two", days=100)
    old(house.ada, "ZEBRA three", days=100, tags=["keep"])
    old(house.bob, "ZEBRA of bob", days=100)
    return house.ada


def test_what_is_overdue_is_listed_without_what_it_says(past: Agent, runtime: Caller) -> None:
    answer = runtime.get("cleanup")
    assert (answer.status, b"ZEBRA" in answer.content) == (200, False)
    told = answer.json
    assert ([each["id"] for each in told["suggestions"]], told["more"], told["kept_back"]) == ([1, 2], 0, 1)
    assert told["suggestions"][0]["importance"] == "low"
    assert runtime.get("cleanup?category=behavioral").json["suggestions"] == []


def seen(agent: Agent, *numbers: int) -> dict[str, Any]:
    """To be discarded, as they were seen."""
    return {"discard": [*numbers], "expect": [{"id": each, "version": row(agent, each).version} for each in numbers]}


def test_each_is_decided(past: Agent, runtime: Caller) -> None:
    [listed, _] = runtime.get("cleanup").json["suggestions"]
    expect = [{"id": listed["id"], "version": listed["version"]}]
    answer = runtime.post("cleanup", {"discard": [1], "keep": [2], "expect": expect})
    assert answer.json == {"kept": [2], "discarded": [1], "entry": last_entry(past).seq}
    assert active(past) == [2, 3]
    assert runtime.get("cleanup").json["suggestions"] == []
    assert runtime.post("memories/1/restore").status == 200


def test_what_was_changed_since_it_was_seen_is_not_discarded(past: Agent, runtime: Caller) -> None:
    body = seen(past, 1)
    assert runtime.patch("memories/1", {"content": "something else"}).status == 200
    answer = runtime.post("cleanup", body)
    assert (answer.status, answer.codes) == (409, ["stale_memory"])
    answer = runtime.post("cleanup", {"discard": [1]})
    assert (answer.status, "expect" in answer.content.decode()) == (422, True)
    assert active(past) == [1, 2, 3]


def test_what_is_no_decision_is_refused_whole(past: Agent, runtime: Caller) -> None:
    for body in (
        {"discard": [1], "expect": [{"id": 2, "version": 1}]},
        {"discard": [1], "expect": [{"id": 1}]},
        {"discard": [1], "expect": {"1": 1}},
        {"discard": [3]},
        {"discard": [1, 9]},
        {"discard": [1], "keep": [1]},
        {"discard": "all"},
        {"discard": ["1"]},
        {"discard": [0]},
        {"all": True},
    ):
        assert runtime.post("cleanup", body).status == 422, body
    assert runtime.post("cleanup", {}).json == {"kept": [], "discarded": [], "entry": None}
    assert active(past) == [1, 2, 3]


def test_the_agents_key_alone(past: Agent, stranger: Caller, acme: Caller, house: House) -> None:
    assert stranger.post("cleanup", {"discard": [2], "expect": [{"id": 2, "version": 2}]}).status == 422
    assert stranger.post("cleanup", seen(house.bob, 1)).status == 200  # its own
    for caller, status in ((acme, 403), (Caller(), 401)):
        assert caller.get("cleanup").status == status
        assert caller.post("cleanup", {"discard": [1]}).status == status
    assert (active(past), active(house.bob)) == ([1, 2, 3], [])
