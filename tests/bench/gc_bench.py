"""`gc` of memory files: a whole run of the command, as its users call it, from its start to its end.

The model server takes what it is sent and answers at once (`sink`). The peak of resident memory is what the command's
process reads in /proc at its end: what `wait4` reports includes the memory of the process that started it. Beside them
stand the figures of the program it comes from, of files of the same size (seed 001), which are part of the issue; it is
not measured here.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from memory.models import Agent
from tests.bench.agents import created
from tests.bench.figures import Figure

MB = 1_000_000
ORIGINAL = {MB: (0.01, 15), 100 * MB: (1.0, 650), 1_000 * MB: (11.0, 6_800)}  # seconds, MB
FASTER_FROM = 100 * MB
MOST_MEMORY = 100  # MB
TIMES = 3
# Without what development alone installs, and structlog loads where it is.
AS_INSTALLED = """
import atexit, runpy, sys
sys.modules |= {"rich": None, "greenlet": None}
sys.argv[0] = "manage.py"
atexit.register(lambda: sys.stderr.write(open("/proc/self/status").read()))
runpy.run_path("manage.py", run_name="__main__")
"""
PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def run(*, quick: bool) -> Iterator[Figure]:
    path = Path(settings.VAULT_ROOTS[0]) / "ada.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    agent = created("ada", model="openai/gpt", memory_path=str(path))
    with sink() as address:
        for size in (MB, 100 * MB) if quick else ORIGINAL:
            entries = write(path.with_suffix(".whole"), size)
            for keep, named in ((10, "last 10"), (entries // 2, "last half")):
                yield from collected(agent, path, size, keep, named, address)
            path.with_suffix(".whole").unlink()


def collected(agent: Agent, path: Path, size: int, keep: int, named: str, address: str) -> Iterator[Figure]:
    Agent.objects.filter(pk=agent.pk).update(last_n=keep)
    runs = [once(path, keep, address) for _ in range(TIMES)]
    seconds, memory = min(run[0] for run in runs), max(run[1] for run in runs)
    theirs, room = ORIGINAL[size]
    what = f"{size // MB:,} MB, {named} kept"
    is_faster, told = (seconds < theirs, "< the original's") if size >= FASTER_FROM else (None, "")
    yield Figure(f"{what}: whole run", seconds, "s", theirs, seconds / theirs, told, is_faster)
    fits, told = memory < MOST_MEMORY, f"< {MOST_MEMORY} MB"
    yield Figure(f"{what}: peak memory", memory, "MB", room, memory / room, told, fits)


def once(path: Path, keep: int, address: str) -> tuple[float, float]:
    """Seconds and MB of a run, which is seen to have trimmed."""
    path.unlink(missing_ok=True)
    subprocess.run(["cp", "--", path.with_suffix(".whole"), path], check=True)
    os.sync()  # so that what is still to be written of the copy is not its run's
    environment = os.environ | {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": address}
    command = [sys.executable, "-c", AS_INSTALLED, "gc", "ada"]
    begun = time.perf_counter()
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    took, peak = time.perf_counter() - begun, PEAK.search(ran.stderr)
    if ran.returncode or not peak or f" {keep} entries kept." not in ran.stdout:
        raise RuntimeError(f"gc ended with {ran.returncode}")
    return took, int(peak[1]) * 1_024 / MB


def write(path: Path, size: int) -> int:
    """A log of about so many bytes; how many entries it has."""
    entries, written = 0, 0
    with path.open("wb", buffering=MB) as file:
        while written < size:
            written += file.write(entry(entries))
            entries += 1
    return entries


def entry(number: int) -> bytes:
    at = f"2026-01-{number // 86_400 % 28 + 1:02}T{number // 3_600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    return (
        f'## {at}\n**Task:** Answer the harbour\'s question {number}\n**Result:** The ferry "Naïade" leaves at 14:30.\n'
        "It was asked for on Monday, too.\n\n"
    ).encode()


@contextmanager
def sink() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-m", "tests.bench.sink"], stdout=subprocess.PIPE) as process:
        port = int(process.stdout.readline()) if process.stdout else 0
        yield f"http://127.0.0.1:{port}/v1"
        process.terminate()
