"""Kill the workers of a fleet in a row of runs, each with a seed of its own, until one is not clean.

    DATABASE_URL=postgres://… REDIS_URL=redis://… python -m tests.jobs.repeat 20 [--table FILE]

Each run is a line of the table, which is printed, and added to the file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TEST = "tests/jobs/test_fleet_kills.py"
COLUMNS = ("seed", "sessions", "kills", "in_calls", "takeovers", "edits", "lost", "doubled", "seconds")


def main() -> int:
    options = _options()
    _add(options.table, COLUMNS)
    for seed in range(options.first, options.first + options.times):
        done = _run(seed, options.sessions, options.kills)
        told = _told(done.stdout)
        _add(options.table, [told.get(name, "?") for name in COLUMNS])
        if done.returncode:
            print(done.stdout, done.stderr, file=sys.stderr)
            return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.jobs.repeat", description=__doc__)
    parser.add_argument("times", type=int, help="runs")
    parser.add_argument("--first", type=int, default=1, help="the first one's seed")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--kills", type=int, default=26)
    parser.add_argument("--table", type=Path, help="a file to which each run adds its line")
    return parser.parse_args()


def _run(seed: int, sessions: int, kills: int) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"SEED": str(seed), "SESSIONS": str(sessions), "KILLS": str(kills)}
    command = [sys.executable, "-m", "pytest", "-s", "-q", "--timeout", "0", TEST]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _told(output: str) -> dict[str, Any]:
    """The line of JSON among what the test printed."""
    found = [line[line.index("{") :] for line in output.splitlines() if '{"kills"' in line]
    return dict(json.loads(found[0])) if found else {}


def _add(table: Path | None, cells: Any) -> None:
    line = f"| {' | '.join(str(cell) for cell in cells)} |"
    print(line, flush=True)
    if table:
        with table.open("a") as file:
            file.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
