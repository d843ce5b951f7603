"""A fleet for the benches of background work: many agents to refine, real workers, and a model in a process of its own.

The model is `tests/model_server.py` over real HTTP: it answers at once (or after some seconds of silence), asks for one
merge, one rewrite, one deletion and one protection, and says that it is done: two calls of the model and five of tools
a session.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Count, F, Max, Min, Q, Sum
from django.utils import timezone
from redis import Redis

from config import queue
from memory.models import Agent
from refinement.models import Outcome, RefinementSession, Waiting
from tests.bench import texts
from tests.bench.agents import analyze, with_key
from tests.bench.places import ROOT

MEMORIES = 100  # of each agent, some 7,500 tokens of core memory: nearly the default budget
NEVER_OVER = 2**31 - 1  # tokens of budget: they are due by date alone
PATIENCE = 300.0  # seconds

# --- who there is


def agents_to_refine(count: int) -> list[str]:
    """So many agents of one tenant, none of them due: their keys."""
    settings = {"model": "openai/scripted", "budget_tokens": NEVER_OVER}
    names = [f"fleet-{number}" for number in range(count)]
    keys = [with_key(name, texts.lines(MEMORIES, name), **settings)[1] for name in names]
    idle()
    analyze()
    return keys


def idle() -> None:
    """Nobody is due, nor stands in line."""
    Agent.objects.update(due_at=None, quiet_until=None, failures_in_a_row=0)
    Waiting.objects.filter(taken_at=None).delete()


def make_due(count: int, beyond: int = 0) -> None:
    """So many agents are due, those refined longest ago first, and the workers are told; of all but the first few."""
    others = Agent.objects.filter(pk__in=list(Agent.objects.order_by("pk").values_list("pk", flat=True)[beyond:]))
    longest = others.order_by(F("last_refined_at").asc(nulls_first=True), "pk").values("pk")[:count]
    Agent.objects.filter(pk__in=list(longest.values_list("pk", flat=True))).update(
        due_at=timezone.now() - timedelta(seconds=1), due_reason="weekly"
    )
    queue.put(queue.SWEEP)


def rest() -> None:
    """Have the workers end what they do, and begin nothing new."""
    idle()
    until(lambda: not is_busy())
    idle()  # who ended last is due in a week, or in an hour


def is_busy() -> bool:
    """Whether a session is open or a task waits."""
    return is_refining() or queue.depth() > 0


def until(done: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"still at work after {PATIENCE:.0f} seconds")
        time.sleep(0.05)


# --- what it did


class Work:
    """The sessions that were opened since a moment and have ended."""

    def __init__(self, since: datetime) -> None:
        self._rows = RefinementSession.objects.filter(opened_at__gte=since, closed_at__isnull=False)
        found = self._rows.aggregate(
            count=Count("pk"),
            first=Min("opened_at"),
            last=Max("closed_at"),
            open=Sum(F("closed_at") - F("opened_at")),
            model=Sum("model_milliseconds"),
            completed=Count("pk", filter=Q(outcome=Outcome.COMPLETED)),
        )
        self.count = int(found["count"])
        self.completed = int(found["completed"])
        self.seconds = (found["last"] - found["first"]).total_seconds() if self.count else 0.0
        self.open_seconds = found["open"].total_seconds() if self.count else 0.0
        self.model_seconds = (found["model"] or 0) / 1e3

    @property
    def rate(self) -> float:
        return self.count / self.seconds if self.seconds else 0.0

    @property
    def own(self) -> float:
        """Seconds a session was open, less those in which its model was asked."""
        return (self.open_seconds - self.model_seconds) / self.count


def is_refining() -> bool:
    return RefinementSession.objects.filter(outcome=Outcome.OPEN).exists()


def are_left() -> bool:
    """Whether agents stand in line: between two sessions nobody may be refined for a moment."""
    return Waiting.objects.exists()


def ended_since(moment: datetime) -> int:
    return RefinementSession.objects.filter(closed_at__gte=moment).count()


def ended() -> int:
    return RefinementSession.objects.exclude(outcome=Outcome.OPEN).count()


def database_bytes() -> int:
    """On disk, indexes included; 0 on SQLite, which keeps what it freed."""
    if connection.vendor != "postgresql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])


# --- who does it


class Started:
    """A process of a group of its own, so that its processor time can be told from others'."""

    def __init__(self, *command: str, yielding: int = 0, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=None if yielding == 0 else lambda: os.nice(yielding),
        )
        self.said: list[str] = []

    def read_on(self) -> None:
        """Take what it says, so that it never waits for somebody to read it."""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.said += self.process.stdout

    def processor(self) -> float:
        """Seconds of the processor that those of the group which live have used."""
        return sum(_spent(path) for path in Path("/proc").glob("[0-9]*/stat") if _group(path) == self.process.pid)

    def mebibytes(self) -> tuple[int, float]:
        """How many of the group live, and what they hold of memory, each shared page counted once."""
        there = [path.parent for path in Path("/proc").glob("[0-9]*/stat") if _group(path) == self.process.pid]
        return len(there), sum(map(_held, there)) / 1024

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            if self.process.stdout is not None:
                self.process.stdout.close()


def _fields(path: Path) -> list[str]:
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []  # it has just ended


def _group(path: Path) -> int:
    fields = _fields(path)
    return int(fields[2]) if fields else 0


def _spent(path: Path) -> float:
    fields = _fields(path)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _held(process: Path) -> int:
    """Kibibytes: what is its own, and its part of what it shares."""
    try:
        found = re.search(r"^Pss:\s*(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def busy() -> float:
    """Seconds of all processors that were not idle since the machine started."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


@contextmanager
def model(script: str = "tidy") -> Iterator[tuple[Started, str]]:
    """A model server, and its address."""
    started = Started("-m", "tests.model_server", script, PYTHONUNBUFFERED="1")
    assert started.process.stdout is not None
    try:
        address = re.search(r"OPENAI_BASE_URL=(\S+)", started.process.stdout.readline())
        assert address is not None
        yield started, address[1]
    finally:
        started.stop()


@contextmanager
def workers(processes: int, model_at: str) -> Iterator[Started]:
    """One `manage.py worker` with so many processes that work."""
    worker = Started(
        *("manage.py", "worker"),
        yielding=int(os.environ.get("BENCH_WORKER_NICE", "0")),
        QUEUE_WORKERS=str(processes),
        OPENAI_BASE_URL=model_at,
        OPENAI_API_KEY="any",
        SWEEP_AGENTS="100000",
    )
    worker.read_on()
    try:
        yield worker
    finally:
        worker.stop()
        print(*(line for line in worker.said if '"level": "error"' in line), file=sys.stderr, sep="", end="")


def use(model_at: str) -> None:
    """Sessions of this very process go to this model."""
    settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = model_at, "any"


def forget_queue() -> None:
    """Nothing waits in this bench's own Redis."""
    if settings.REDIS_URL:
        Redis.from_url(settings.REDIS_URL).flushdb()
