"""One ledger refined twice with the same decisions: by the service, and by a runtime over HTTP (tests/comparing).

    python -m tests.bench compare --ledger FILE

FILE is JSON Lines, as for an import; without one, 200 memories are made up.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.db import connection

from tests import comparing
from tests.bench import texts
from tests.bench.figures import Figure

LEDGER = "BENCH_LEDGER"  # names the file, for the bench's own process


def run(*, quick: bool) -> Iterator[Figure]:
    ledger = Path(os.environ.get(LEDGER) or made_up(60 if quick else 200))
    connection.close()
    done = comparing.compare(ledger, {})
    by_service, by_runtime = done.served, done.driven
    assert by_service["outcome"] == "completed", by_service["reason"]

    def figure(what: str, value: float, unit: str = "") -> Figure:
        return Figure(f"{ledger.name}: {what}", value, unit)

    yield figure("memories", done.memories)
    yield figure("core memories after", by_service["memories_after"])
    yield figure("core tokens before", by_service["tokens_before"])
    yield figure("core tokens after", by_service["tokens_after"])
    for name in comparing.COUNTED:
        yield figure(name, by_service[name])
    yield figure("tool calls", done.calls)
    yield figure("of those refused", done.refused)
    yield figure("driven by the service, a process started for it", done.seconds[0], "s")
    yield figure("driven by a runtime over HTTP", done.seconds[1], "s")
    apart = len(done.differences)
    what = f"{ledger.name}: differences in figures and export, times aside (floor: lines)"
    yield Figure(what, apart, floor=len(done.exports[0]), target="none", met=apart == 0)
    assert by_runtime["driver"] == "runtime"


def made_up(count: int) -> Path:
    path = settings.VAR_DIR / "ledger.jsonl"
    path.write_bytes(b"\n".join(texts.lines(count, "compare")))
    return path
