"""Retrieval among 100,000 memories, beside the search that it rests on: the same questions, in turns, in one process.

What retrieval adds is who is seen from a project, the factor for recency, and one statement that notes the use. Texts
and questions are those of the search bench.
"""

import json
import statistics
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from memory.models import Agent
from memory.recording.retrieval import retrieve
from memory.search import reading
from memory.search.selection import Filters
from tests.bench.agents import filled
from tests.bench.figures import Figure, beside
from tests.bench.search_bench import corpus, seconds

LIMIT = 10
MOST = 1.5  # times what the search takes
PLACES = (("technical", ""), ("contextual", "shop"), ("contextual", "other"), ("personal", ""))


def run(*, quick: bool) -> Iterator[Figure]:
    for count in (1_000,) if quick else (10_000, 100_000):
        agent, questions = of_size(count)
        ours, floor = timed(agent, questions)
        most = MOST if count == 100_000 else None  # below, the note of the use alone outweighs the search
        yield beside(f"retrieval among {count:,}, median", 1e3 * ours, "ms", 1e3 * floor, most=most)


def of_size(count: int) -> tuple[Agent, list[str]]:
    """An agent with so many memories, a quarter of them another project's; what is asked."""
    texts, questions = corpus(count)
    beginning = datetime.now(UTC) - timedelta(days=400)
    lines = []
    for number, text in enumerate(texts):
        category, project = PLACES[number % len(PLACES)]
        origin = (beginning + timedelta(days=400 * number / count)).isoformat()
        lines.append(json.dumps({"content": text, "category": category, "project": project, "origin": origin}).encode())
    return filled(f"ada{count}", lines), questions


def timed(agent: Agent, questions: list[str]) -> tuple[float, float]:
    """Median seconds of a retrieval and of a search, which take turns in being the first to ask a question: the second
    finds in the processor's cache what the first had to fetch."""

    def ours(query: str, limit: int) -> list[int]:
        return [read.memory.number for read in retrieve(agent, query, project="shop", limit=limit).reads]

    def floor(query: str, limit: int) -> list[int]:
        found = reading.search(agent, query, filters=Filters(), limit=limit)
        return [read.memory.number for read in found]

    took: dict[Callable[[str, int], list[int]], list[float]] = {ours: [], floor: []}
    for search in took:
        search(questions[0], LIMIT)  # the index is there then
    for place, query in enumerate(questions):
        for search in (ours, floor) if place % 2 else (floor, ours):
            took[search].append(seconds(search, query))
    return statistics.median(took[ours]), statistics.median(took[floor])
