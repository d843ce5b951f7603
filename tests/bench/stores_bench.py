"""Calls of the memory stores API for a store of 10,000 memories, beside the API's own calls for as many memories."""

import hashlib
from collections.abc import Iterator
from itertools import count
from typing import Any

from audit.models import Operation
from memory.models import Memory
from memory.policy.validation import Draft
from memory.silo.silo import Silo
from memory.writing import stores
from memory.writing.edits import begin
from tests.bench import texts
from tests.bench.agents import ME, analyze, fresh, with_key
from tests.bench.figures import Figure, beside
from tests.bench.load import Wanted, request
from tests.bench.mcp_bench import API, Make, timed
from tests.bench.serving import served

MOST = 1.5  # times the API's call
NO_TARGET = ("retrieve", "list of a folder, 20")
BETA = {"anthropic_beta": "agent-memory-2026-07-22"}
FOLDERS, AT_ONCE = 100, 50


def run(*, quick: bool) -> Iterator[Figure]:
    memories, calls = (1_000, 60) if quick else (10_000, 400)
    agent, key = with_key(f"stores{memories}", texts.lines(memories, "stores"), budget_tokens=100_000_000)
    store = stores.create(agent, stores.About("bench"), ME).number
    agent = fresh(agent)
    core = agent.core_tokens
    entry, numbers = 0, range(memories - calls - calls // 10 - 1)
    for start in numbers[::AT_ONCE]:
        with begin(agent, Operation.REMEMBERED, ME) as edit:
            for n in numbers[start : start + AT_ONCE]:
                draft = Draft(f"File {n}", is_beneath=True, store=store, path=f"/{n % FOLDERS}/{n}").checked()
                edit.add(draft, Silo.for_agent(edit.agent))
            entry = edit.finish().seq or 0
    first = Memory.objects.of(agent).filter(store=store).order_by("number")[0].number
    assert fresh(agent).core_tokens == core
    analyze()
    with served("config.wsgi", API_RATE="999999999", WEB_WORKERS="1") as port:
        for name, (ours, floor) in calls_of(key, f"/v1/memory_stores/memstore_{store}", first, entry).items():
            took, least = timed(port, ours, floor, calls)
            yield beside(f"{name}, median", took * 1e3, "ms", least * 1e3, most=None if name in NO_TARGET else MOST)


def calls_of(key: str, store: str, first: int, entry: int) -> dict[str, tuple[Make, Make]]:
    """Each kind of call: of the stores, and of the API. `entry` is the entry that added the memories."""

    def ask(method: str, path: str, body: Any = None) -> Wanted:
        return request(method, f"{store}/{path}", key, body, **BETA)

    new, present = count(), dict[int, str]()

    def update(n: int) -> Wanted:
        before, present[n] = present.get(n, f"File {n}"), f"Now {next(new)}"
        known = {"type": "content_sha256", "content_sha256": hashlib.sha256(before.encode()).hexdigest()}
        return ask("POST", f"memories/mem_{first + n}", {"content": present[n], "precondition": known})

    return {
        "list, 20": (
            lambda n: ask("GET", f"memories?limit=20&page=page_{first + n}"),
            lambda n: request("GET", f"{API}memories?limit=20&cursor={n}", key),
        ),
        "list, 20 with content": (
            lambda n: ask("GET", f"memories?limit=20&view=full&page=page_{first + n}"),
            lambda n: request("GET", f"{API}memories?limit=20&cursor={n}", key),
        ),
        "list of a folder, 20": (
            lambda n: ask("GET", f"memories?limit=20&path_prefix=/{n % FOLDERS}/&depth=1"),
            lambda n: request("GET", f"{API}memories?limit=20&cursor={n}", key),
        ),
        "retrieve": (
            lambda n: ask("GET", f"memories/mem_{first + n}"),
            lambda n: request("GET", f"{API}memories/{n + 1}", key),
        ),
        "create": (
            lambda n: ask("POST", "memories", {"path": f"/new/{next(new)}", "content": f"Made {n}"}),
            lambda n: request("POST", f"{API}memories", key, {"content": f"Over the API: {n}"}, 201),
        ),
        "update with precondition": (
            update,
            lambda n: request("PATCH", f"{API}memories/{n + 1}", key, {"content": f"Now {next(new)}"}),
        ),
        "versions, 20": (
            lambda _: ask("GET", "memory_versions?limit=20"),
            lambda n: request("GET", f"{API}audit/{entry}?limit=20&cursor={n}", key),
        ),
        "versions of one memory": (
            lambda n: ask("GET", f"memory_versions?memory_id=mem_{first + n}&view=full"),
            lambda n: request("GET", f"{API}audit?memory={n + 1}", key),
        ),
    }
