"""The context block of 2,000 tokens: what it costs among 10,000 and 100,000 memories."""

from collections.abc import Iterator
from functools import partial
from statistics import median
from timeit import repeat

from memory.search import context
from tests.bench import texts
from tests.bench.agents import analyze, filled
from tests.bench.figures import Figure, at_most

TOKENS, MOST = 2_000, 10  # milliseconds


def run(*, quick: bool) -> Iterator[Figure]:
    for count in (1_000,) if quick else (10_000, 100_000):
        agent = filled(f"ada{count}", texts.lines(count))
        analyze()
        context.read(agent)  # the silo is open now
        whole, project = (
            1e3 * median(repeat(partial(context.read, agent, max_tokens=TOKENS, project=name), number=1, repeat=30))
            for name in (None, "shop")
        )
        limit = MOST if count == 100_000 else None
        yield at_most(f"context of {TOKENS:,} tokens among {count:,}, median", whole, "ms", limit)
        yield Figure(f"… of one project among {count:,}", project, "ms")
