"""A session driven by a runtime over HTTP ends as one driven by the service does, decisions being the same."""

from __future__ import annotations

import json
from pathlib import Path

from tests import comparing
from tests.commands.calling import Installation
from tests.refining import filler

COUNT = 60


def ledger(folder: Path) -> Path:
    """Dated memories of two people, some said twice, some tagged."""
    lines = []
    for number in range(COUNT):
        said = f"{'Ann' if number % 2 else 'Ben'}  said on day {number % 50} that {filler(20, number % 50)}."
        tags = ["said", f"t{number % 3}"] if number % 4 == 0 else []
        lines.append({"content": said, "created_at": f"2025-03-{number % 27 + 1:02}T09:30:00Z", "tags": tags})
    path = folder / "ledger.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_both_end_the_same(service: Installation, tmp_path: Path) -> None:
    """In several batches; tests/api/test_sessions.py has sessions of one."""
    done = comparing.compare(ledger(tmp_path), service.environment | {"DATABASE_URL": "", "BATCH_TOKENS": "700"})
    assert done.differences == []
    assert (done.memories, done.served["outcome"]) == (COUNT, "completed")
    assert done.served["duplicates_removed"] > 0
    assert min(done.served[name] for name in ("merged", "updated", "protected")) > 0
    assert done.refused > 0
    assert done.served["tokens_after"] < done.served["tokens_before"]
    assert service.manage("verify_audit", "--all").code == 0
