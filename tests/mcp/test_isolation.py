"""No tool, prompt or resource reads or changes another tenant's silo, whatever number it gets; and random arguments
never fail.

The suite draws a few arguments. `MCP_SECONDS=600` draws new ones for ten minutes.
"""

import os
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.models import Agent
from refinement import tools
from refinement.mcp import memory_tool
from refinement.mcp.tools import ALL
from refinement.models import RefinementSession
from tests import refining, steps
from tests.api.calling import Caller
from tests.conftest import House
from tests.mcp.calling import NEW, OLD, Mcp

SECONDS = int(os.environ.get("MCP_SECONDS", "0"))
FOREIGN = "bob keeps a boat"
NUMBERS = range(1, 9)
pytestmark = [pytest.mark.database, pytest.mark.timeout(SECONDS + 120)]


@pytest.fixture
def silos(house: House, settings: Any) -> House:
    """Bob has more of everything than ada, so all higher numbers are his alone."""
    settings.API_RATE = 10**9
    steps.remember(house.ada, "ada keeps a dog")
    steps.remember(house.bob, *(f"{FOREIGN}, number {number}" for number in NUMBERS))
    Caller(house.bob_key).post("refinement-sessions", {})
    return house


def calls(number: int) -> list[tuple[str, dict[str, Any]]]:
    """A call of each tool, with the number in each argument that takes one."""
    made = [(name, {"id": number}) for name in ("fetch", "forget", "restore")]
    made += [("update_memory", {"id": number, "content": "changed"})]
    made += [("list_memories", {"cursor": number}), ("search", {"q": "boat"}), ("context", {})]
    made += [("history", {name: number}) for name in ("entry", "memory", "session", "cursor")]
    made += [("remember", {"content": "x", "idempotency_key": str(number)}), ("begin_refinement", {})]
    made += [("memory", {"command": "view", "path": path}) for path in ("/memories", f"/memories/{number}")]
    edits = {
        "consolidate_memories": {"ids_to_merge": [number, number + 1], "new_content": "both"},
        "apply": {"edits": [{"tool": "delete_memory", "arguments": {"id": number}}]},
        "search_memories": {"query": "boat"},
        "update_memory": {"id": number, "content": "changed"},
    }
    edits |= {f"{verb}_memory": {"id": number} for verb in ("delete", "demote", "protect", "promote")}
    return made + [
        ("knife", {"action": action, "session": session, "arguments": arguments})
        for action, arguments in edits.items()
        for session in (1, number)
    ]


def test_each_tool_is_called_with_foreign_numbers() -> None:
    made = calls(1)
    assert {name for name, _ in made} == {tool.listed["name"] for tool in ALL}
    ending = {"decline_refinement", "complete_refinement"}
    assert {given["action"] for _, given in made if "action" in given} == set(tools.TOOLS) - ending


@pytest.mark.parametrize("version", [OLD, NEW])
def test_nothing_of_another_tenant_is_read_or_changed(version: str, silos: House) -> None:
    client, before = Mcp(silos.ada_key, version), refining.everything(silos.bob)
    answers = [client.request("tools/call", name=name, arguments=given) for n in NUMBERS for name, given in calls(n)]
    uris = [f"memory://{place}{number}" for number in NUMBERS for place in ("", "audit/")]
    answers += [client.request("resources/read", uri=uri) for uri in ("memory://context", *uris)]
    answers.append(client.request("prompts/get", name="refine"))
    assert all(FOREIGN.encode() not in answer.content and answer.status < 500 for answer in answers)
    assert refining.everything(silos.bob) == before
    assert steps.problems(silos.ada) == steps.problems(silos.bob) == []


FILES = "/memories", "/memories/a", "/memories/a/b", *memory_tool.COMMANDS
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-1, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=30)
    | st.sampled_from(["", "\0", "1", "core", "beneath", "tea", '"tea', "x" * 2_001, *tools.TOOLS, *FILES]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["tool", "arguments", "id"]), inner),
    max_leaves=8,
)
NAMES = sorted(
    {name for tool in ALL for name in tool.listed["inputSchema"]["properties"]}
    | {"text", "ids_to_merge", "path", "self", "driver"}
)


@st.composite
def random_calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    tool = draw(st.sampled_from(ALL)).listed
    own = st.sampled_from(sorted(tool["inputSchema"]["properties"]) or NAMES)
    return tool["name"], draw(st.dictionaries(own | st.sampled_from(NAMES), VALUES, max_size=5))


def attempt(silos: House, made: list[tuple[str, dict[str, Any]]]) -> None:
    client = Mcp(silos.ada_key)
    for name, given_ in made:
        answer = client.request("tools/call", name=name, arguments=given_)
        assert answer.status == 200, (name, given_, answer.content)
        assert FOREIGN.encode() not in answer.content
        assert "result" in answer.json


def _attempts(silos: House) -> None:
    @settings(max_examples=200 if SECONDS else 25)
    @given(made=st.lists(random_calls(), min_size=1, max_size=6))
    def with_random_calls(made: list[tuple[str, dict[str, Any]]]) -> None:
        attempt(silos, made)

    with_random_calls()


def test_random_arguments_never_fail(silos: House) -> None:
    started, rounds = time.monotonic(), 0
    while not rounds or time.monotonic() - started < SECONDS:
        _attempts(silos)
        rounds += 1
    assert steps.problems(silos.ada) == steps.problems(silos.bob) == []
    assert Agent.objects.count() == 2
    assert not RefinementSession.objects.filter(agent=silos.bob, changes__gt=0).exists()
