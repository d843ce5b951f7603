"""Retrieval over the API: with the agent's key only, and with the query in the body."""

from __future__ import annotations

import pytest

from memory.models import Agent
from tests.api.calling import Caller
from tests.conftest import House
from tests.steps import remember


@pytest.fixture
def tea(house: House) -> Agent:
    remember(house.ada, "tea of a", category="contextual", project="a", tags=["hot"])
    remember(house.ada, "tea of b", category="contextual", project="b")
    remember(house.ada, "tea of everybody, and rather more of it")
    remember(house.bob, "tea of bob")
    return house.ada


def test_relevant_memories_are_found_and_counted(tea: Agent, runtime: Caller) -> None:
    query = {"query": "tea", "project": "a"}
    answer = runtime.post("retrieve", query)
    found = answer.json["results"]
    assert (answer.status, [(each["id"], each["recalled"]) for each in found]) == (200, [(1, 1), (3, 1)])
    assert found[0]["score"] > found[1]["score"] > 0
    assert (
        answer.json["block"] == "# What you remember of this\n- tea of a\n- tea of everybody, and rather more of it\n"
    )
    assert answer.json["tokens"] == sum(each["tokens"] for each in found)
    limited = runtime.post("retrieve", query | {"limit": 1}).json["results"]
    assert [(each["id"], each["recalled"]) for each in limited] == [(1, 2)]
    assert runtime.post("retrieve", query | {"tags": ["hot"]}).ids == [1]
    short = runtime.post("retrieve", query | {"max_tokens": 4})
    assert (short.ids, short.json["left_out"]) == ([1], 1)


def test_an_invalid_query_is_refused(tea: Agent, runtime: Caller) -> None:
    invalid = [{"query": 5}, {"query": "x" * 2_001}, {"project": "../a"}, {"limit": 0}, {"limit": 101}]
    for change in [*invalid, {"max_tokens": -1}, {"tags": "hot"}, {"more": 1}]:
        assert runtime.post("retrieve", {"query": "tea"} | change).status == 422, change
    assert runtime.post("retrieve", {}).status == 422
    assert runtime.get("retrieve?query=tea").status == 405, "an address holds no content"


def test_another_caller_finds_nothing_of_the_agent(tea: Agent, stranger: Caller, acme: Caller) -> None:
    assert [each["content"] for each in stranger.post("retrieve", {"query": "tea"}).json["results"]] == ["tea of bob"]
    assert [caller.post("retrieve", {"query": "tea"}).status for caller in (acme, Caller())] == [403, 401]
