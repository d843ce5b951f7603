"""Recall of `POST /memories/search` on the LoCoMo ledgers: the API of a served installation, asked over HTTP.

What is asked, and what is right, is as in the search bench (`tests/bench/search_bench.py`): the share of all questions
for which one of the first k memories found shares evidence with the question. Beside it, as the floor, what the index
finds when it is asked directly.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import count

from django.db import connection

from memory.policy.validation import Draft
from memory.writing import operations
from tests.bench import load
from tests.bench.agents import ME, with_key
from tests.bench.figures import Figure
from tests.bench.places import ledgers
from tests.bench.search_bench import Search, palimpsest, recall, recalls
from tests.bench.serving import served

PATH = "/api/v1/memories/search"


def run(*, quick: bool) -> Iterator[Figure]:
    found = ledgers()[: 1 if quick else None]
    if not found:
        print("Recall: no LoCoMo ledgers: skipped.")
        return
    with served("config.wsgi", API_RATE="999999999") as port:
        asking, number = load.Connection(port), count()
        shares = recall(found, lambda texts: remembered(texts, f"ledger-{next(number)}", asking))
        asking.close()
    yield from recalls(found, shares, recall(found, palimpsest), is_judged=not quick)


def remembered(texts: Sequence[str], name: str, asking: load.Connection) -> Search:
    """An agent that remembers these texts, in order; how to search them."""
    agent, key = with_key(name)
    operations.remember(agent, [Draft(text) for text in texts], ME)
    connection.close()

    def search(query: str, limit: int) -> list[int]:
        _, body = asking.ask(load.request("POST", PATH, key, {"q": query, "limit": limit}))
        return [found["id"] - 1 for found in json.loads(body)["results"]]

    return search
