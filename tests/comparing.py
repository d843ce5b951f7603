"""Refine the same ledger twice with the same decisions: by the service, and by a runtime over HTTP.

A script behind a model's server decides from its input only. If one way had another input, or handled a call in another
way, the results would differ.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.places import ROOT
from tests.bench.serving import served
from tests.model_server import Action, Call, ModelServer, Turn, tightened
from tests.runtime import Runtime

EDITS_IN_A_REPLY = 12
BETWEEN_REFUSALS = 24  # memories between two merges of a memory with itself, which are refused
TIMES = ("origin", "created_at", "discarded_at")
COUNTED = ("merged", "updated", "deleted", "protected", "promoted")
SAME = ("outcome", "tokens_before", "tokens_after", "memories_before", "memories_after")
SAME += ("repeated_tokens", "duplicates_removed", *COUNTED)


def deciding(turn: Turn) -> Action:
    """Search, protect the oldest memory, then edit the others in order, within the session's limits."""
    rows = [row for row in turn.ledger() if not row.get("constitutional")]
    replies = sum(message.role == "assistant" for message in turn.messages)
    if not replies and rows:
        words = " ".join(rows[-1]["content"].split()[:3])
        return [Call("search_memories", {"query": words}), Call("protect_memory", {"id": rows[0]["id"]})]
    left = json.loads(turn.results[-1].text)["left"] if turn.results else {"changes": 0, "tokens_to_cut": 0}
    edits = list(_edits(rows[1:], may_delete=left["tokens_to_cut"] > 1_000))
    edits = edits[(replies - 1) * EDITS_IN_A_REPLY : replies * EDITS_IN_A_REPLY]
    if edits and left["changes"] >= 2 * EDITS_IN_A_REPLY:
        return edits
    return Call("complete_refinement", {"summary": f"Looked at {len(rows)} memories."})


def _edits(rows: Sequence[dict[str, Any]], *, may_delete: bool) -> Iterator[Call]:
    """Of every six memories, merge two, tighten one, and delete one if that is allowed."""
    for place in range(0, len(rows) - 5, 6):
        one, two, three, four, five, _ = rows[place : place + 6]
        both = {"ids_to_merge": [one["id"], two["id"]], "new_content": f"{one['content']} {two['content']}"}
        yield Call("consolidate_memories", both)
        yield Call("update_memory", {"id": three["id"], "content": tightened(three["content"])})
        if may_delete:
            yield Call("delete_memory", {"id": four["id"]})
        else:
            yield Call("search_memories", {"query": four["content"].split()[0]})
        if place % BETWEEN_REFUSALS == 0:
            yield Call("consolidate_memories", {"ids_to_merge": [five["id"], five["id"]], "new_content": "Both."})


@dataclass(frozen=True)
class Compared:
    """The sessions and the exports of both ways. The exports hold no times of this run."""

    served: dict[str, Any]
    driven: dict[str, Any]
    exports: tuple[list[str], list[str]]
    memories: int
    calls: int
    refused: int
    seconds: tuple[float, float]

    @property
    def differences(self) -> list[str]:
        """What differs, without content."""
        one, other = self.exports
        found = [name for name in SAME if self.served[name] != self.driven[name]]
        found += [f"{len(one)} lines and {len(other)}"] * (len(one) != len(other))
        return found + [f"line {n}" for n, (a, b) in enumerate(zip(one, other, strict=False), 1) if a != b]


def compare(ledger: Path, environment: Mapping[str, str]) -> Compared:
    """Refine the ledger both ways, each with an agent of its own, in the service of this environment."""
    began = datetime.now(UTC)
    with ModelServer(deciding) as model:
        env = dict(os.environ) | dict(environment) | {"OPENAI_BASE_URL": model.openai_url, "OPENAI_API_KEY": "any"}
        created = [
            _command(env, "create_agent", label, "--model", "openai/scripted") for label in ("acme/one", "acme/two")
        ]
        one, two = (json.loads(output)["key"] for output in created)
        _command(env, "import_memories", "acme/one", str(ledger))
        times = [time.perf_counter()]
        by_service = json.loads(_command(env, "refine", "acme/one", "--json"))
        times.append(time.perf_counter())
        first = _command(env | {"PALIMPSEST_AGENT_KEY": one}, "export_memories", "acme/one", "--with-discarded")
        with served("config.wsgi", **env) as port:
            runtime = Runtime(f"http://127.0.0.1:{port}", two, model.openai_url)
            imported = runtime.remember(ledger.read_bytes())
            times.append(time.perf_counter())
            by_runtime = runtime.refine()
            times.append(time.perf_counter())
            second = runtime.export()
        assert not model.refused, model.refused
    exports = _without_times(first, began), _without_times(second, began)
    seconds = times[1] - times[0], times[3] - times[2]
    return Compared(by_service, by_runtime, exports, imported, runtime.calls, runtime.refused, seconds)


def _without_times(export: str, began: datetime) -> list[str]:
    """The lines, with "now" for each time of this run. A merged memory keeps its sources' origin."""
    lines = []
    for line in export.splitlines():
        row = json.loads(line)
        now = {name: "now" for name in TIMES if row[name] and datetime.fromisoformat(row[name]) >= began}
        lines.append(json.dumps(row | now, ensure_ascii=False))
    return lines


def _command(environment: Mapping[str, str], *words: str) -> str:
    command = [sys.executable, "manage.py", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
