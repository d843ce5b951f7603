"""Common steps of the tests of search by meaning."""

from typing import Any

from memory.models import Agent, Embedding, Vector
from memory.search import embedding, reading
from memory.search.embedding import State
from memory.search.selection import Filters
from refinement.embedding import embed
from refinement.models import Provider
from tests.steps import fresh


def found(agent: Agent, query: str, **filters: Any) -> list[int]:
    return [read.memory.number for read in reading.search(fresh(agent), query, filters=Filters(**filters))]


def vectors(agent: Agent) -> dict[int, str]:
    """Memory → the embedder of its vector."""
    return dict(Vector.objects.filter(agent=agent).order_by("number").values_list("number", "embedder"))


def state(agent: Agent) -> State:
    return embedding.state(fresh(agent))


def retry(agent: Agent) -> str:
    """Make the vectors now, without the pause after a failure."""
    past = fresh(agent).created_at
    Embedding.objects.filter(agent=agent).update(taken_until=past, wait_until=past)
    Provider.objects.update(shut_until=None)
    return embed(agent.pk)
