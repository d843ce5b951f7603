"""Calls of MCP's tools, beside the same calls of the API: over one connection each to one service, in turns."""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.bench import texts
from tests.bench.agents import analyze, with_key
from tests.bench.figures import Figure, beside
from tests.bench.load import Connection, Wanted, request
from tests.bench.serving import served

MOST = 1.15  # times the API's call
API = "/api/v1/"
SETTINGS = {"budget_tokens": 100_000_000, "max_steps": 1_000_000, "max_searches": 1_000_000}
Make = Callable[[int], Wanted]


def run(*, quick: bool) -> Iterator[Figure]:
    memories, calls = (1_000, 100) if quick else (10_000, 600)
    key = with_key(f"mcp{memories}", texts.lines(memories, "mcp"), **SETTINGS)[1]
    analyze()
    with served("config.wsgi", API_RATE="999999999", WEB_WORKERS="1") as port:
        session = json.loads(Connection(port).ask(request("POST", f"{API}refinement-sessions", key, {}, 201))[1])["id"]
        for name, (tool, path) in calls_of(key, session).items():
            ours, floor = timed(port, tool, path, calls)
            yield beside(f"{name}, median", ours * 1e3, "ms", floor * 1e3, most=MOST)


def calls_of(key: str, session: int) -> dict[str, tuple[Make, Make]]:
    """Each kind of call: of the tool, and of the API."""

    def tool(name: str, **arguments: Any) -> Wanted:
        params = {"name": name, "arguments": arguments}
        return request("POST", "/mcp", key, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})

    find = {"query": "garden"}
    knife = f"{API}refinement-sessions/{session}/tools/search_memories"
    return {
        "remember": (
            lambda n: tool("remember", content=f"Over MCP: {n}"),
            lambda n: request("POST", f"{API}memories", key, {"content": f"Over the API: {n}"}, 201),
        ),
        "search": (
            lambda _: tool("search", **find),
            lambda _: request("POST", f"{API}memories/search", key, {"q": find["query"]}),
        ),
        "fetch": (
            lambda n: tool("fetch", id=n + 1),
            lambda n: request("GET", f"{API}memories/{n + 1}?lineage=true", key),
        ),
        "update_memory": (
            lambda n: tool("update_memory", id=2 * n + 1, content=f"Now {n}"),
            lambda n: request("PATCH", f"{API}memories/{2 * n + 2}", key, {"content": f"Now {n}"}),
        ),
        "knife, search_memories": (
            lambda _: tool("knife", action="search_memories", session=session, arguments=find),
            lambda _: request("POST", knife, key, {"arguments": find}),
        ),
        "context, 500 tokens": (
            lambda _: tool("context", max_tokens=500),
            lambda _: request("GET", f"{API}context?max_tokens=500", key),
        ),
        "list_memories, 20": (
            lambda n: tool("list_memories", limit=20, cursor=n),
            lambda n: request("GET", f"{API}memories?limit=20&cursor={n}", key),
        ),
    }


def timed(port: int, tool: Make, path: Make, count: int) -> tuple[float, float]:
    """Median seconds of a call of the tool and of the API, which take turns in being the first."""
    connection, warming = Connection(port), count // 10
    took: dict[Make, list[float]] = {tool: [], path: []}
    for number in range(-warming, count):
        for make in (tool, path) if number % 2 else (path, tool):
            wanted = make(abs(number))
            started = time.perf_counter()
            connection.ask(wanted)
            if number >= 0:
                took[make].append(time.perf_counter() - started)
    connection.close()
    return statistics.median(took[tool]), statistics.median(took[path])
