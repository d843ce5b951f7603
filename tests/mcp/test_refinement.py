"""A whole refinement over MCP, by a scripted model: the same as over the API, to the byte, and it can be undone."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine

from memory.models import Agent
from memory.time_machine.rollback import What, roll_back
from refinement.models import Outcome, RefinementSession
from tests import refining, steps
from tests.api.calling import Caller
from tests.conftest import House
from tests.mcp.calling import NEW, Mcp
from tests.steps import PERSON

pytestmark = pytest.mark.database

START = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)  # after all earlier entries
Call = Callable[[str, dict[str, Any]], Any]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("search_memories", {"query": "tea"}),
    ("consolidate_memories", {"ids_to_merge": [1, 2], "new_content": "Ann drinks hot green tea at 9 o'clock."}),
    ("update_memory", {"id": 3, "content": "Ben's dog Rex is 4 years old."}),
    ("consolidate_memories", {"ids_to_merge": [1, 4], "new_content": "It was merged already."}),
    ("demote_memory", {"id": 4, "reason": "rarely needed"}),
    ("protect_memory", {"id": 5}),
    ("apply", {"edits": [{"tool": "delete_memory", "arguments": {"id": 6}}]}),
    ("complete_refinement", {"summary": "Merged what Ann drinks."}),
]
TEXTS = (
    "Ann drinks green tea every morning at 9 o'clock.",
    "Ann's tea must be hot.",
    "Ben has a dog. The dog's name is Rex, and it is 4 years old this year.",
    "The meeting room has a blue door.",
    "My name is Ada, and I keep my promises.",
    "ok ok ok",
    *(f"Note {number}: {refining.filler(60, number)}" for number in range(20)),
)


def over_the_api(key: str) -> Call:
    runtime = Caller(key)
    path = f"refinement-sessions/{runtime.post('refinement-sessions', {}).json['id']}"
    runtime.get(f"{path}/briefing")
    return lambda tool, arguments: runtime.post(f"{path}/tools/{tool}", {"arguments": arguments}).json


def over_mcp(key: str) -> Call:
    client = Mcp(key, NEW)
    client.called("begin_refinement")
    return lambda tool, arguments: client.called("knife", action=tool, arguments=arguments)


def by_the_prompt(key: str) -> Call:
    """An earlier client, whose model writes the arguments beside `action`."""
    client = Mcp(key)
    client.result("prompts/get", name="refine")
    return lambda tool, arguments: client.called("knife", action=tool, **arguments)


def refined(agent: Agent, key: str, begin: Callable[[str], Call]) -> dict[str, Any]:
    """Refine the same memories at the same times. Returns all that the session did, and how a rollback restores it."""
    with time_machine.travel(START, tick=False) as clock:
        steps.remember(agent, *TEXTS)
        before = steps.exported(agent, with_discarded=True)
        call, results = begin(key), []
        for tool, arguments in CALLS:
            clock.shift(timedelta(seconds=1))
            results.append(call(tool, arguments))
        runtime = Caller(key)
        session = runtime.get("refinement-sessions/1").json
        entries = [runtime.get(f"audit/{seq}").json for seq in range(3, steps.last_entry(agent).seq + 1)]
        found = {
            "results": results,
            "memories": steps.exported(agent, with_discarded=True),
            "session": session,
            "entries": [{name: value for name, value in entry.items() if name != "actor"} for entry in entries],
        }
        roll_back(steps.fresh(agent), What("session", 1), PERSON, include_constitutional=True, reason="a trial")
    assert (before, steps.problems(agent)) == (texts_of(agent, before), [])
    return found


def texts_of(agent: Agent, before: list[str]) -> list[str]:
    """The exported memories that existed before."""
    return steps.exported(agent, with_discarded=True)[: len(before)]


@pytest.mark.parametrize("begin", [over_mcp, by_the_prompt])
def test_a_session_over_mcp_equals_one_over_the_api(begin: Callable[[str], Call], house: House) -> None:
    expected = refined(house.bob, house.bob_key, over_the_api)
    assert refined(house.ada, house.ada_key, begin) == expected
    codes = [result["code"] for result in expected["results"]]
    assert (codes.count("ok"), expected["session"]["outcome"]) == (7, Outcome.COMPLETED)
    assert expected["session"]["tokens_after"] < expected["session"]["tokens_before"]


def test_a_client_that_goes_away_leaves_whole_edits(house: House) -> None:
    """Its session ends with its lease, and the next client opens another."""
    with time_machine.travel(START, tick=False) as clock:
        steps.remember(house.ada, *TEXTS)
        client = Mcp(house.ada_key)
        assert client.called("begin_refinement")["session"] == 1
        assert client.called("knife", action="demote_memory", id=3)["ok"]
        clock.shift(timedelta(hours=1))
        assert Mcp(house.ada_key, NEW).called("begin_refinement")["session"] == 2
        assert RefinementSession.objects.get(agent=house.ada, number=1).outcome == Outcome.ABANDONED
        assert steps.row(house.ada, 3).layer == "beneath"
    assert steps.problems(house.ada) == []
