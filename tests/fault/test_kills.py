"""Sessions killed by SIGKILL, at points spread over every step: nothing is lost, nothing doubled, the trail holds.

A few in every run; KILLS=200 for the figures in docs/internals/reliability.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.commands.calling import ROOT, Installation
from tests.commands.conftest import _made as _made
from tests.commands.conftest import service as service
from tests.fault.killing import TEXTS
from tests.model_server import Action, Call, ModelServer, Slow, Turn

KILLS = int(os.environ.get("KILLS", "14"))
STEPS = {
    "open",
    "dedupe",
    "brief",
    "step",
    "model call",
    "search_memories",
    "consolidate_memories",
    "update_memory",
    "delete_memory",
    "protect_memory",
    "complete_refinement",
    "close",
}


def asks(turn: Turn) -> Action:
    """One of each kind of call, good and bad, over three replies."""
    ids = {memory["content"]: memory["id"] for memory in turn.ledger()}
    chairs, tables = TEXTS[:3], TEXTS[3:]
    replies: list[list[Call]] = [
        [
            Call("search_memories", {"query": "chair"}),
            Call("consolidate_memories", _merge(ids, chairs)),
            Call("update_memory", {"id": ids[tables[0]], "content": "The table stands in the hall!"}),
            Call("delete_memory", {"id": 999}),
        ],
        [
            Call("delete_memory", {"id": ids[tables[1]]}),
            Call("protect_memory", {"id": ids[tables[2]]}),
            Call("delete_memory", {"id": ids[tables[2]]}),
        ],
        [Call("complete_refinement", {"summary": "One of each."})],
    ]
    place = sum(said.role == "assistant" for said in turn.messages)
    return Slow(0.04, then=replies[place])


def _merge(ids: dict[str, int], texts: list[str]) -> dict[str, Any]:
    return {"ids_to_merge": [ids[text] for text in texts], "new_content": " ".join(texts)}


def test_a_session_that_is_killed_at_any_step_loses_and_doubles_nothing(service: Installation) -> None:
    env = service.environment | {"DJANGO_SETTINGS_MODULE": "config.settings"}
    with ModelServer(asks) as server:
        env |= {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any"}
        seed = os.environ.get("SEED", "1")
        command = [sys.executable, "-m", "tests.fault.killing", str(service.folder), str(KILLS), seed]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    print(f"{told['kills']} kills over {told['points']} points in {told['seconds']} s: {told['by_step']}")
    assert [operation for operation, _ in told["operations"]] == [  # of the rehearsal
        *("agent_created", "key_issued", "remembered", "deduplicated", "session_opened"),
        *("consolidated", "revised", "discarded", "protected", "session_closed"),
    ]
    assert told["kills"] == KILLS
    missed = STEPS - set(told["by_step"])
    assert len(missed) <= max(0, len(STEPS) + 1 - KILLS)  # one more: before the session's own steps
    assert told["wrong"] == []
