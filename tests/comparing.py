"""The same ledger refined twice with the same decisions: once driven by the service, once by a runtime over HTTP.

What decides is a script behind a model's server. It goes by what it is shown, and by nothing else: were either road to
show something else, or to do something else with a call, the two would end apart.
"""

from __future__ import annotations

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

A_REPLY = 12  # edits
REFUSED = 24  # memories between two merges of a memory with itself, which are refused
TIMES = ("origin", "created_at", "discarded_at")
SAME = ("outcome", "tokens_before", "tokens_after", "memories_before", "memories_after")
SAME += ("repeated_tokens", "duplicates_removed")
COUNTED = ("merged", "updated", "deleted", "protected", "promoted")


def deciding(turn: Turn) -> Action:
    """Looks for something, protects the oldest memory, then edits the others in order, as far as it may."""
    rows = [row for row in turn.ledger() if not row["constitutional"]]
    replies = sum(said.role == "assistant" for said in turn.messages)
    if not replies and rows:
        words = " ".join(rows[-1]["content"].split()[:3])
        return [Call("search_memories", {"query": words}), Call("protect_memory", {"id": rows[0]["id"]})]
    answers = [json.loads(result.text) for result in turn.results]
    left = answers[-1]["left"] if answers else {"changes": 0, "tokens_to_cut": 0}
    edits = list(_edits(rows[1:], may_delete=left["tokens_to_cut"] > 1_000))[
        (replies - 1) * A_REPLY : replies * A_REPLY
    ]
    return (edits if left["changes"] >= 2 * A_REPLY else []) or Call(
        "complete_refinement", {"summary": f"Looked at {len(rows)} memories."}
    )


def _edits(rows: Sequence[dict[str, Any]], *, may_delete: bool) -> Iterator[Call]:
    """Of every six, two are merged, one is tightened, one deleted while there is room."""
    for place in range(0, len(rows) - 5, 6):
        one, two, three, four, five, _ = rows[place : place + 6]
        both = {"ids_to_merge": [one["id"], two["id"]], "new_content": f"{one['content']} {two['content']}"}
        yield Call("consolidate_memories", both)
        yield Call("update_memory", {"id": three["id"], "content": tightened(three["content"])})
        if may_delete:
            yield Call("delete_memory", {"id": four["id"]})
        else:
            yield Call("search_memories", {"query": four["content"].split()[0]})
        if place % REFUSED == 0:
            yield Call("consolidate_memories", {"ids_to_merge": [five["id"], five["id"]], "new_content": "Both."})


@dataclass(frozen=True)
class Compared:
    """How the two ended."""

    served: dict[str, Any]
    driven: dict[str, Any]
    exports: tuple[list[str], list[str]]  # but for times
    memories: int
    calls: int
    refused: int
    seconds: tuple[float, float]

    @property
    def differences(self) -> list[str]:
        """What is not the same; no content."""
        apart = [name for name in (*SAME, *COUNTED) if self.served[name] != self.driven[name]]
        lines = [one != other for one, other in zip(*self.exports, strict=False)]
        apart += [f"{len(self.exports[0])} lines and {len(self.exports[1])}"] * (len(set(map(len, self.exports))) > 1)
        return apart + [f"line {place}" for place, differs in enumerate(lines, 1) if differs]


def compare(ledger: Path, environment: Mapping[str, str]) -> Compared:
    """Refine the ledger both ways, each by an agent of its own, in the service this environment names."""
    began = datetime.now(UTC)
    with ModelServer(deciding) as model:
        given = dict(os.environ) | dict(environment) | {"OPENAI_BASE_URL": model.openai_url, "OPENAI_API_KEY": "any"}
        keys = [
            _command(given, "create_agent", name, "--model", "openai/scripted") for name in ("acme/one", "acme/two")
        ]
        one, two = (json.loads(key)["key"] for key in keys)
        _command(given, "import_memories", "acme/one", str(ledger))
        started = time.perf_counter()
        by_service = json.loads(_command(given, "refine", "acme/one", "--json"))
        between = time.perf_counter()
        first = _command(given | {"PALIMPSEST_AGENT_KEY": one}, "export_memories", "acme/one", "--with-discarded")
        with served("config.wsgi", **given) as port:
            runtime = Runtime(f"http://127.0.0.1:{port}", two, model.openai_url)
            imported = runtime.remember(ledger.read_bytes())
            again = time.perf_counter()
            by_runtime = runtime.refine()
            ended = time.perf_counter()
            second = runtime.export()
        assert not model.refused, model.refused
    exports = _but_for_times(first, began), _but_for_times(second, began)
    seconds = between - started, ended - again
    return Compared(by_service, by_runtime, exports, imported, runtime.calls, runtime.refused, seconds)


def _but_for_times(export: str, began: datetime) -> list[str]:
    """The lines, each time of this run in them replaced; a merged memory's origin, which is its sources', stays."""
    return [json.dumps(_timeless(json.loads(line), began), ensure_ascii=False) for line in export.splitlines()]


def _timeless(row: dict[str, Any], began: datetime) -> dict[str, Any]:
    of_this_run = {name for name in TIMES if row[name] and datetime.fromisoformat(row[name]) >= began}
    return {name: "now" if name in of_this_run else value for name, value in row.items()}


def _command(environment: Mapping[str, str], *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
