"""Sessions killed at points spread over every step: nothing is lost or doubled, and the trail holds.

A few kills in every run; KILLS=200 for the figures in docs/internals/reliability.md.
"""

import os

import pytest

from tests.commands.calling import Installation
from tests.fault.killing import TEXTS, run_script
from tests.model_server import Action, Call, ModelServer, Slow, Turn

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "15"))
TOOLS = ("search", "consolidate", "update", "delete", "protect")
STEPS = {"open", "dedupe", "brief", "step", "model call", "apply", "complete_refinement", "close"}
STEPS |= {f"{tool}_memories" if tool in ("search", "consolidate") else f"{tool}_memory" for tool in TOOLS}


def call_every_tool(turn: Turn) -> Action:
    """One call of each kind, good and bad, over four replies."""
    ids = {memory["content"]: memory["id"] for memory in turn.ledger()}
    chairs, tables = TEXTS[:3], TEXTS[3:]
    merge = {"ids_to_merge": [ids[text] for text in chairs], "new_content": " ".join(chairs)}
    first = [
        Call("search_memories", {"query": "chair"}),
        Call("consolidate_memories", merge),
        Call("update_memory", {"id": ids[tables[0]], "content": "The table stands in the hall!"}),
        Call("delete_memory", {"id": 999}),
    ]
    second = [
        Call("delete_memory", {"id": ids[tables[1]]}),
        Call("protect_memory", {"id": ids[tables[2]]}),
        Call("delete_memory", {"id": ids[tables[2]]}),
    ]
    fillers = [number for content, number in ids.items() if content.startswith("Filler")]
    together = {"ids_to_merge": fillers[:2], "new_content": "Filler that nobody touches, one 0 and two 1."}
    edits = [
        {"tool": "demote_memory", "arguments": {"id": fillers[2]}},
        {"tool": "delete_memory", "arguments": {"id": 999}},
        {"tool": "consolidate_memories", "arguments": together},
    ]
    third = [Call("apply", {"edits": edits})]
    last = [Call("complete_refinement", {"summary": "One of each."})]
    replies = [first, second, third, last]
    return Slow(0.04, then=replies[sum(message.role == "assistant" for message in turn.messages)])


def test_a_session_killed_at_any_step_loses_and_doubles_nothing(service: Installation) -> None:
    with ModelServer(call_every_tool) as server:
        environment = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any"}
        figures = run_script("killing", service, KILLS, os.environ.get("SEED", "1"), **environment)
    assert [operation for operation, _ in figures["operations"]] == [  # of the rehearsal
        *("agent_created", "key_issued", "remembered", "deduplicated", "session_opened"),
        *("consolidated", "revised", "discarded", "protected", "demoted", "consolidated", "session_closed"),
    ]
    assert figures["kills"] == KILLS
    missed = STEPS - set(figures["by_step"])
    assert len(missed) <= max(0, len(STEPS) + 1 - KILLS)  # one more step is before the session's own
    assert figures["problems"] == []
