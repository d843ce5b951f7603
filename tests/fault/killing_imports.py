"""Kill the workers of an import with SIGKILL, and check what the next worker makes of it: `main` for
`test_worker_kills.py`."""

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path

import time_machine
from django.db import connection
from django.utils import timezone

from audit.models import AuditEntry
from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import AgentKey, ImportBody, ImportJob, Memory
from memory.silo.silo import Silo
from memory.time_machine import replay, rollback
from memory.transfer import import_jobs
from tests.fault.killing import Points, choose, get_agent, in_child, is_killed, rehearse, reset_to

ME = Actor.operator("killing")
LINES = b"".join(b'{"content": "The chair %d stands in the hall."}\n' % n for n in range(40))


def prepare(folder: Path) -> None:
    agent, _ = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=ME)
    import_jobs.add(agent, AgentKey.objects.get(), LINES, "jsonl", "")
    reset_to(folder, save=True)


def work(points: Points) -> None:
    import_jobs.BATCH = 10
    connection.ensure_connection()
    connection._commit = points.around(connection._commit, "before commit", "after commit")
    with connection.execute_wrapper(lambda execute, *arguments: points.around(execute)(*arguments)):
        import_jobs.carry_out(get_agent().pk, 1)


def problems() -> list[str]:
    """The problems after the last worker."""
    agent, job = get_agent(), ImportJob.objects.get()
    found = [problem.problem for problem in replay.problems(agent)]
    silo = Silo.for_agent(agent)
    contents = Counter(silo.open(memory).content for memory in Memory.objects.all())
    if contents != Counter(json.loads(line)["content"] for line in LINES.splitlines()):
        found.append("a memory is lost or doubled")
    if (job.state, job.imported, ImportBody.objects.exists()) != ("done", 40, False):
        found.append(f"the job is {job.state} with {job.imported} memories")
    if {entry.detail["import"] for entry in AuditEntry.objects.filter(operation="imported")} != {job.entry}:
        found.append("the batches have several numbers")
    rollback.roll_back(agent, rollback.What("import", job.entry or 0), ME)
    if Memory.objects.filter(discarded_at=None).exists():
        found.append("the rollback leaves memories")
    return found


def main(where: str, kills: str, seed: str) -> None:
    folder = Path(where)
    prepare(folder)
    points, found = rehearse(folder, work), []
    for place in choose(points, int(kills), int(seed)):
        reset_to(folder)
        if not is_killed(in_child(lambda place=place: work(Points(place)))):
            found.append(f"point {place} is not reached")
        with time_machine.travel(timezone.now() + timedelta(minutes=5)):
            in_child(lambda: work(Points(1 + len(points) // 3)))  # the second worker dies, too
        with time_machine.travel(timezone.now() + timedelta(minutes=10)):
            in_child(lambda: work(Points()))
        found += [f"point {place}, {points[place - 1]}: {problem}" for problem in problems()]
    print(json.dumps({"kills": 2 * int(kills), "points": len(points), "problems": found}))
