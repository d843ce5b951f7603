"""python -m tests.bench.verifying ID: verify an agent's trail, in a process whose memory nothing else fills.

Prints one line of JSON: how many seconds it took, how many MiB its resident peak lay above what it held before, and
what was found. Started by `tests.bench.verify_bench`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


def main() -> None:
    import django

    django.setup()
    from memory.agents import lifecycle
    from memory.time_machine import replay
    from tests.bench.trails import ME

    small, _ = lifecycle.create("acme", f"small{os.getpid()}", model="builtin/dedupe", actor=ME)
    assert not list(replay.problems_of(small.pk))  # what is loaded on first use is here now
    forget_peak()
    held, started = mebibytes("VmRSS"), time.perf_counter()
    problems = [f"{problem.seq}: {problem.problem}" for problem in replay.problems_of(int(sys.argv[1]))]
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "grown": mebibytes("VmHWM") - held, "problems": problems}))


def forget_peak() -> None:
    """Begin a new peak where memory is now: `ru_maxrss` would go on from the start of this process, or its parent's."""
    Path("/proc/self/clear_refs").write_text("5")


def mebibytes(name: str) -> float:
    """What Linux says of this process's memory: VmRSS is what it holds, VmHWM its peak."""
    [kibibytes] = re.findall(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(kibibytes) / 1024


if __name__ == "__main__":
    main()
