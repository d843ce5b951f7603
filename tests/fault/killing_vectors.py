"""Kill the workers that make vectors with SIGKILL, and check what the next worker makes of it: `main` for
`test_worker_kills.py`."""

import json
from datetime import timedelta
from pathlib import Path

import time_machine
from django.conf import settings
from django.db import connection
from django.utils import timezone

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Embedding, Memory, Vector
from memory.policy.validation import Draft
from memory.search import embedding, reading
from memory.search.selection import Filters
from memory.time_machine import replay
from memory.writing import operations
from refinement.embedding import embed
from tests.embedding.server import EmbeddingServer
from tests.fault.killing import Points, choose, get_agent, in_child, is_killed, rehearse, reset_to

ME = Actor.operator("killing")
FORMER, NEW = "ollama/old", "ollama/new"


def prepare(folder: Path) -> None:
    """An agent with vectors, whose embedder has just changed."""
    agent, _ = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=ME)
    lifecycle.change(agent, ME, embedder=FORMER)
    texts = ["Ana fixed the car.", *(f"The chair {number} is green." for number in range(9))]
    operations.remember(get_agent(), [Draft(text) for text in texts], ME)
    assert embed(agent.pk) == "embedded"
    lifecycle.change(get_agent(), ME, embedder=NEW)
    reset_to(folder, save=True)


def work(points: Points) -> None:
    embedding.BATCH = 3
    connection.ensure_connection()
    connection._commit = points.around(connection._commit, "before commit", "after commit")
    with connection.execute_wrapper(lambda execute, *arguments: points.around(execute)(*arguments)):
        embed(get_agent().pk)


def problems() -> list[str]:
    """The problems after the last worker."""
    agent = get_agent()
    found = [problem.problem for problem in replay.problems(agent)]
    made = sorted(Vector.objects.values_list("number", "embedder"))
    if made != [(number, NEW) for number in sorted(Memory.objects.values_list("number", flat=True))]:
        found.append(f"the vectors are {made}")
    if agent.former_embedder or Embedding.objects.get().problem:
        found.append("the former embedder is still in use")
    if [read.memory.number for read in reading.search(agent, "vehicle repair", filters=Filters())] != [1]:
        found.append("the meaning is not found")
    return found


def main(where: str, kills: str, seed: str) -> None:
    folder = Path(where)
    with EmbeddingServer() as server:
        settings.OLLAMA_BASE_URL = server.url
        prepare(folder)
        points, found = rehearse(folder, work), []
        for place in choose(points, int(kills), int(seed)):
            reset_to(folder)
            if not is_killed(in_child(lambda place=place: work(Points(place)))):
                found.append(f"point {place} is not reached")
            if [read.memory.number for read in reading.search(get_agent(), "car", filters=Filters())][:1] != [1]:
                found.append(f"point {place}: words are not found")
            with time_machine.travel(timezone.now() + timedelta(minutes=2)):
                in_child(lambda: work(Points()))
            found += [f"point {place}, {points[place - 1]}: {problem}" for problem in problems()]
    print(json.dumps({"kills": int(kills), "points": len(points), "problems": found}))
