"""Retrieval over the API: to the agent's key alone, with the query in the body."""

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


def test_what_bears_on_a_question_is_found_and_counted(tea: Agent, runtime: Caller) -> None:
    answer = runtime.post("retrieve", {"query": "tea", "project": "a"})
    assert answer.status == 200
    told = answer.json
    assert [(each["id"], each["recalled"]) for each in told["results"]] == [(1, 1), (3, 1)]
    assert told["results"][0]["score"] > told["results"][1]["score"] > 0
    assert told["block"] == "# What you remember of this\n- tea of a\n- tea of everybody, and rather more of it\n"
    assert told["tokens"] == sum(each["tokens"] for each in told["results"])
    again = runtime.post("retrieve", {"query": "tea", "project": "a", "limit": 1}).json
    assert [(each["id"], each["recalled"]) for each in again["results"]] == [(1, 2)]


def test_what_else_may_be_asked(tea: Agent, runtime: Caller) -> None:
    tagged = runtime.post("retrieve", {"query": "tea", "project": "a", "tags": ["hot"]}).json
    assert [each["id"] for each in tagged["results"]] == [1]
    within = runtime.post("retrieve", {"query": "tea", "project": "a", "max_tokens": 4}).json
    assert ([each["id"] for each in within["results"]], within["left_out"]) == ([1], 1)


def test_what_is_no_question_is_refused(tea: Agent, runtime: Caller) -> None:
    for body in (
        {},
        {"query": 5},
        {"query": "x" * 2_001},
        {"query": "tea", "project": "../a"},
        {"query": "tea", "limit": 0},
        {"query": "tea", "limit": 101},
        {"query": "tea", "max_tokens": -1},
        {"query": "tea", "tags": "hot"},
        {"query": "tea", "more": 1},
    ):
        assert runtime.post("retrieve", body).status == 422, body


def test_another_agents_side_finds_its_own_alone(tea: Agent, stranger: Caller, acme: Caller) -> None:
    assert [each["content"] for each in stranger.post("retrieve", {"query": "tea"}).json["results"]] == ["tea of bob"]
    assert acme.post("retrieve", {"query": "tea"}).status == 403
    assert Caller().post("retrieve", {"query": "tea"}).status == 401


def test_content_is_asked_for_in_no_address(tea: Agent, runtime: Caller) -> None:
    assert runtime.get("retrieve?query=tea").status == 405
