"""Run the kill test of a fleet many times, each time with another seed, until a run fails.

    DATABASE_URL=postgres://… REDIS_URL=redis://… python -m tests.jobs.repeat 20 [--table FILE]

Each run is a line of the table, which is printed and appended to the file.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TEST = "tests/jobs/test_fleet_kills.py"
COLUMNS = ("seed", "sessions", "kills", "in_calls", "takeovers", "edits", "lost", "doubled", "seconds")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.jobs.repeat", description=__doc__)
    parser.add_argument("times", type=int, help="number of runs")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first run")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--kills", type=int, default=26)
    parser.add_argument("--table", type=Path, help="a file to which each run appends its line")
    options = parser.parse_args()
    _add_row(options.table, COLUMNS)
    for seed in range(options.first, options.first + options.times):
        variables = {"SEED": str(seed), "SESSIONS": str(options.sessions), "KILLS": str(options.kills)}
        command = [sys.executable, "-m", "pytest", "-s", "-q", "--timeout", "0", TEST]
        done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
        report = _report(done.stdout)
        _add_row(options.table, [report.get(name, "?") for name in COLUMNS])
        if done.returncode:
            print(done.stdout, done.stderr, file=sys.stderr)
            return 1
    return 0


def _report(output: str) -> dict[str, Any]:
    """The line of JSON that the test prints."""
    found = [line[line.index("{") :] for line in output.splitlines() if '{"kills"' in line]
    return dict(json.loads(found[0])) if found else {}


def _add_row(table: Path | None, cells: Iterable[Any]) -> None:
    line = f"| {' | '.join(str(cell) for cell in cells)} |"
    print(line, flush=True)
    if table:
        with table.open("a") as file:
            file.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
