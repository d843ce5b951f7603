"""Recall of `POST /memories/search` on the LoCoMo ledgers: the API of a served installation, asked over HTTP.

What is asked, and what is right, is as in the search bench (`tests/bench/search_bench.py`): the share of all questions
for which one of the first k memories found shares evidence with the question. Beside it, as the floor, what the index
finds when it is asked directly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from django.db import connection

from audit.trail import Actor
from memory.agents import lifecycle
from memory.policy.validation import Draft
from memory.writing import operations
from tests.bench import load
from tests.bench.figures import Figure, at_least
from tests.bench.search_bench import FIRST, RECALL_TARGET, ROOT, Search, palimpsest, recall
from tests.bench.serving import served

ME = Actor.operator("bench")
PATH = "/api/v1/memories/search"


def run(database: str, *, quick: bool) -> Iterator[Figure]:
    folder = Path(os.environ.get("PALIMPSEST_DATA") or ROOT.parent / "shared/data") / "locomo"
    ledgers = sorted(folder.glob("*.memories.jsonl"))[: 1 if quick else None]
    if not ledgers:
        print(f"Recall: no LoCoMo ledgers in {folder}: skipped.")
        return
    with served("config.wsgi", API_RATE="999999999") as port:
        asking, number = load.Connection(port), count()
        shares = recall(ledgers, lambda texts: remembered(texts, f"ledger-{next(number)}", asking))
        asking.close()
    of_the_index = recall(ledgers, palimpsest)
    for place, first in enumerate(FIRST):
        what, share, index = (
            f"recall at {first}, {len(ledgers)} ledgers",
            100 * shares[place],
            100 * of_the_index[place],
        )
        if quick:  # the target is for all of them
            yield Figure("recall", database, what, share, "%", index, share / index)
        else:
            judged = at_least("recall", database, what, share, "%", 100 * RECALL_TARGET[place])
            yield replace(judged, floor=index, ratio=share / index)


def remembered(texts: Sequence[str], name: str, asking: load.Connection) -> Search:
    """An agent that remembers these texts, in order; how to search them."""
    agent, key = lifecycle.create("acme", name, model="builtin/dedupe", actor=ME)
    operations.remember(agent, [Draft(text) for text in texts], ME)
    connection.close()

    def search(query: str, limit: int) -> list[int]:
        _, body = asking.ask(load.request("POST", PATH, key, {"q": query, "limit": limit}))
        return [found["id"] - 1 for found in json.loads(body)["results"]]

    return search
