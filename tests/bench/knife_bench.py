"""The Knife: the service's own time for one call of each tool, its durable commit included, by size of the silo.

The session was shown 1,000 memories (as many as fit a batch of short ones); the search index is warm, but every
search has the edits of the other tools before it to catch up with. Calls of all tools take turns.
"""

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import chain

from django.utils import timezone

from memory.models import Agent, Kind, Memory
from memory.search import cache
from memory.silo.silo import Silo
from refinement import ledger
from refinement import session as sessions
from refinement.knife import Knife
from refinement.models import RefinementSession
from tests.bench import texts
from tests.bench.agents import filled
from tests.bench.figures import Figure, at_most
from tests.bench.floor_bench import floor

SHOWN = 1_000
LIMITS = dict.fromkeys(("max_changes", "max_steps", "max_searches", "max_failed_calls", "max_seconds"), 1_000_000)
COLD = {10_000: 0.1, 100_000: 1.0}  # seconds
MOST = {1_000: 5, 100_000: 10}  # milliseconds


def run(*, quick: bool) -> Iterator[Figure]:
    sizes = (1_000, 5_000) if quick else (1_000, 10_000, 100_000)
    rounds = 20 if quick else 60
    medians: dict[str, list[float]] = {}
    for size in sizes:
        agent = of_size(size)
        cold, calls = used(agent, rounds)
        for tool, seconds in calls.items():
            middle = statistics.median(seconds) * 1e3
            medians.setdefault(tool, []).append(middle)
            high = statistics.quantiles(seconds, n=20)[-1] * 1e3
            yield at_most(f"{tool}, {size:,} memories, median", middle, "ms", MOST.get(size))
            yield Figure(f"{tool}, {size:,} memories, 95 %", high, "ms")
        yield at_most(f"first search, cold, {size:,} memories", cold, "s", COLD.get(size))
        yield Figure("for comparison: one transaction of plain SQL", plain(), "ms")
    for tool, middles in medians.items():
        what = f"{tool}: median at {sizes[-1]:,} over that at {sizes[0]:,}"
        yield at_most(what, middles[-1] / middles[0], "×", 2)


def plain() -> float:
    """Milliseconds of the floor's one transaction at this moment: what a durable commit takes just now."""
    below = floor()
    seconds = []
    for text in texts.many(100, "plain"):
        start = time.perf_counter()
        below.store(text)
        seconds.append(time.perf_counter() - start)
    below.drop()
    return statistics.median(seconds) * 1e3


def of_size(size: int) -> Agent:
    """An agent with so many core memories and some journal ones. Its budget is out of the way, its floor low."""
    journal = (b'{"kind":"journal",' + line[1:] for line in texts.lines(100, "journal"))
    lines = chain(journal, texts.lines(size, size))
    return filled(f"ada{size}", lines, budget_tokens=100_000_000, target_tokens=1, **LIMITS)


def used(agent: Agent, rounds: int) -> tuple[float, dict[str, list[float]]]:
    """Seconds of the first search, and of every call by tool."""
    session = sessions.open_session(agent, trigger="manual")
    silo = Silo.for_agent(agent)
    chance = random.Random(f"knife {agent.slug}")
    core = Memory.objects.filter(agent_id=agent.pk, kind=Kind.CORE).order_by("number")[:SHOWN]
    journal = list(Memory.objects.filter(agent_id=agent.pk, kind=Kind.JOURNAL, source="agent").order_by("number"))
    entries = [ledger.Entry(memory, silo.open(memory)) for memory in [*core, *journal]]
    knife = Knife(session)
    knife.show(0, 1, entries)
    contents = {entry.memory.number: entry.opened.content for entry in entries}
    numbers = [memory.number for memory in core]
    chance.shuffle(numbers)
    take = numbers.pop

    def pair() -> dict[str, object]:
        one, other = take(), take()
        return {"ids_to_merge": [one, other], "new_content": f"{contents[one]} {contents[other]}"[:10_000]}

    def shorter() -> dict[str, object]:
        number = take()
        return {"id": number, "content": f"{contents[number]} Noted."}

    asked: dict[str, tuple[str, Callable[[], dict[str, object]]]] = {
        "search_memories": ("search_memories", lambda: {"query": query(chance, contents)}),
        "consolidate_memories": ("consolidate_memories", pair),
        "update_memory": ("update_memory", shorter),
        "delete_memory": ("delete_memory", lambda: {"id": take()}),
        "protect_memory": ("protect_memory", lambda: {"id": take()}),
        "promote_memory": ("promote_memory", lambda: {"id": journal.pop().number}),
        "a refused call": ("delete_memory", lambda: {"id": 999_999_999}),
    }
    cache.forget()
    cold = timed(knife, "search_memories", {"query": query(chance, contents)})
    seconds: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(rounds):
        RefinementSession.objects.filter(pk=session.pk).update(protected=0, opened_at=timezone.now())
        for name, (tool, arguments) in asked.items():
            seconds[name].append(timed(knife, tool, arguments(), is_ok=name != "a refused call"))
    sessions.close(session, "completed")
    return cold, seconds


def query(chance: random.Random, contents: dict[int, str]) -> str:
    """Six words of some memory."""
    return " ".join(chance.sample(contents[chance.choice(list(contents))].replace('"', "").split(), 6))


def timed(knife: Knife, tool: str, arguments: dict[str, object], *, is_ok: bool = True) -> float:
    start = time.perf_counter()
    result = knife.call(tool, arguments)
    taken = time.perf_counter() - start
    assert result.ok == is_ok, json.loads(result.text)
    return taken
