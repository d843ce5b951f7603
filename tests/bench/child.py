"""A function of a bench in a process of its own: python -m tests.bench.child MODULE FUNCTION [JSON …]

Its result is printed as JSON; of a bench's `run`, each figure is printed on a line. The environment has DATABASE_URL,
KEYS_DIR and VAR_DIR, which `python -m tests.bench` sets.
"""

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.figures import Figure, line
from tests.bench.places import ROOT


def command(module: str, function: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.bench.child", module, function, *map(json.dumps, arguments)]


def call(module: str, function: str, *arguments: object) -> Any:
    """The result of a function in a new process, whose memory nothing else fills."""
    started = command(module, function, *arguments)
    done = subprocess.run(started, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def forget_peak() -> None:
    """Begin a new peak where memory is now: `ru_maxrss` would include what the process held before, or its parent."""
    Path("/proc/self/clear_refs").write_text("5")


def mebibytes(name: str) -> float:
    """Memory of this process, by Linux: VmRSS is what it holds, VmHWM its peak."""
    [kibibytes] = re.findall(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(kibibytes) / 1024


def main() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    name, function, *arguments = sys.argv[1:]
    module = importlib.import_module(f"tests.bench.{name}")
    if function == "run":
        for figure in _figures(module.run(quick=json.loads(arguments[0])), name.removesuffix("_bench")):
            print(line(figure), flush=True)
    else:
        print(json.dumps(getattr(module, function)(*map(json.loads, arguments))))


def _figures(found: Iterator[Figure], bench: str) -> Iterator[Figure]:
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    for figure in found:
        yield replace(figure, bench=bench, database=connection.vendor)


if __name__ == "__main__":
    main()
