"""Cleanup over the API: listed without content, decided by id, with the agent's key only."""

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


def discard(agent: Agent, number: int) -> dict[str, Any]:
    """A request that discards the memory's current version."""
    return {"discard": [number], "expect": [{"id": number, "version": row(agent, number).version}]}


def test_overdue_memories_are_listed_without_content_and_decided(past: Agent, runtime: Caller) -> None:
    answer = runtime.get("cleanup")
    assert (answer.status, b"ZEBRA" in answer.content) == (200, False)
    listed, figures = answer.json["suggestions"], (answer.json["more"], answer.json["kept_back"])
    assert ([each["id"] for each in listed], figures, listed[0]["importance"]) == ([1, 2], (0, 1), "low")
    assert runtime.get("cleanup?category=behavioral").json["suggestions"] == []
    expect = [{"id": 1, "version": listed[0]["version"]}]
    answer = runtime.post("cleanup", {"discard": [1], "keep": [2], "expect": expect})
    assert answer.json == {"kept": [2], "discarded": [1], "entry": last_entry(past).seq}
    assert active(past) == [2, 3]
    assert runtime.get("cleanup").json["suggestions"] == []
    assert runtime.post("memories/1/restore").status == 200


def test_a_memory_that_has_changed_is_not_discarded(past: Agent, runtime: Caller) -> None:
    body = discard(past, 1)
    assert runtime.patch("memories/1", {"content": "something else"}).status == 200
    answer = runtime.post("cleanup", body)
    assert (answer.status, answer.codes) == (409, ["stale_memory"])
    answer = runtime.post("cleanup", {"discard": [1]})
    assert (answer.status, "expect" in answer.content.decode()) == (422, True)
    assert active(past) == [1, 2, 3]


def test_an_invalid_decision_is_refused_whole(past: Agent, runtime: Caller) -> None:
    for body in (
        {"discard": [1], "expect": [{"id": 2, "version": 1}]},
        {"discard": [1], "expect": [{"id": 1}]},
        {"discard": [1], "expect": {"1": 1}},
        *({"discard": numbers} for numbers in ([3], [1, 9], "all", ["1"], [0])),
        {"discard": [1], "keep": [1]},
        {"all": True},
    ):
        assert runtime.post("cleanup", body).status == 422, body
    assert runtime.post("cleanup", {}).json == {"kept": [], "discarded": [], "entry": None}
    assert active(past) == [1, 2, 3]


def test_another_caller_decides_nothing(past: Agent, stranger: Caller, acme: Caller, house: House) -> None:
    assert stranger.post("cleanup", {"discard": [2], "expect": [{"id": 2, "version": 2}]}).status == 422
    assert stranger.post("cleanup", discard(house.bob, 1)).status == 200
    for caller, status in ((acme, 403), (Caller(), 401)):
        assert caller.get("cleanup").status == caller.post("cleanup", {"discard": [1]}).status == status
    assert (active(past), active(house.bob)) == ([1, 2, 3], [])
