"""Gets the vectors of memories and queries from an agent's embedder (`memory/search/embedding.py` keeps them)."""

import time
from array import array
from collections.abc import Sequence

import structlog
from django.conf import settings
from django.utils import timezone

from audit.trail import Actor
from config import queue
from memory.agents import lifecycle
from memory.models import Agent
from memory.search import embedding
from refinement import allowance
from refinement.errors import AllowanceSpent
from refinement.llm.base import ModelError, ModelNotConfigured, ModelRefused, ModelReplyInvalid
from refinement.llm.embedders import open_embedder
from refinement.llm.vectors import Embedder
from refinement.providers import EmbedderAvailability

QUERY_SECONDS, BATCH_SECONDS = 2.0, 20.0
TASK_SECONDS = 60.0  # then other tasks of the queue get their turn
LEAST_CHARACTERS = 200  # of a text that the embedder refuses: a shorter one is not tried

log = structlog.get_logger("palimpsest.embedding")


def query_vector(agent: Agent, embedder: str, text: str) -> "array[float] | None":
    """Return the vector of a query. Return None if the embedder does not answer within QUERY_SECONDS: then the search
    uses words alone."""
    try:
        if not embedder.startswith("local/") and EmbedderAvailability(embedder, agent).is_closed():
            return None
        found = open_embedder(embedder, agent).embed([text], seconds=QUERY_SECONDS, retries=0)
    except ModelError as error:
        log.info("a query was not embedded", code=error.code)
        return None
    return found.vectors[0]


def embed(agent_id: int) -> str:
    """Make the vectors of an agent's changed memories, for TASK_SECONDS at most. Returns a code."""
    agent = Agent.objects.select_related("tenant").filter(pk=agent_id).first()
    if agent is None or not agent.wrapped_key or not agent.memory_enabled or not embedding.embedder_of(agent):
        return "nothing"
    row = embedding.take(agent)
    if row is None:
        return "taken"
    problem, retries, is_complete, until = "", True, False, time.monotonic() + TASK_SECONDS
    try:
        while not queue.is_ending() and time.monotonic() < until:
            agent = Agent.objects.select_related("tenant").get(pk=agent_id)
            batch = embedding.next_batch(agent, row)
            if batch is None:
                is_complete = True
                break
            if not _make(agent, batch):
                return "changed"  # another worker continues, or the task of the new embedder
        if is_complete and agent.former_embedder:
            lifecycle.change(agent, Actor.system("embedder"), former_embedder="")
    except (ModelError, AllowanceSpent) as error:
        log.warning("memories were not embedded", agent=agent_id, code=error.code)
        problem, retries = str(error), not isinstance(error, (ModelNotConfigured, AllowanceSpent))
    embedding.give_back(agent, problem, retries=retries)
    if not problem and not is_complete:
        queue.put(queue.EMBED_MEMORIES, agent_id)
    return "failed" if problem else "embedded"


def _make(agent: Agent, batch: embedding.Batch) -> bool:
    embedder, numbers, tokens = batch.row.embedder, list(batch.texts), 0
    vectors: dict[int, array[float]] = {}
    if numbers:
        if not embedder.startswith("local/") and allowance.is_used_up(agent.tenant):
            raise AllowanceSpent("The tenant has used its model tokens of this month.")
        found, tokens = _vectors(open_embedder(embedder, agent), list(batch.texts.values()))
        vectors = {number: vector for number, vector in zip(numbers, found, strict=True) if vector is not None}
        sizes = {len(vector) for vector in vectors.values()} | (
            {batch.row.dimensions} if batch.row.dimensions else set()
        )
        if len(sizes) > 1:
            raise ModelReplyInvalid(
                f"The embedder now makes vectors of other dimensions ({min(sizes):,} and {max(sizes):,}). Set another "
                "embedder, or set this one again after `none`."
            )
    if not embedding.store(agent, batch, vectors, tokens):
        return False
    if tokens:
        allowance.add(agent.tenant_id, embedder, tokens, timezone.now())
    return True


def _vectors(embedder: Embedder, texts: Sequence[str]) -> tuple[list["array[float] | None"], int]:
    """Return the vectors and the tokens. If the embedder refuses the texts, each half is tried alone, and then the
    first quarter of a text. A text that it refuses even then has no vector."""
    seconds = min(BATCH_SECONDS, settings.MODEL_CALL_SECONDS)
    try:
        found = embedder.embed(texts, seconds=seconds, retries=1)
        return [*found.vectors], found.tokens
    except ModelRefused as refused:
        if refused.is_configuration:
            raise
    if len(texts) == 1:
        shorter = texts[0][: len(texts[0]) // 4]
        return _vectors(embedder, [shorter]) if len(shorter) >= LEAST_CHARACTERS else ([None], 0)
    half = len(texts) // 2
    first, second = _vectors(embedder, texts[:half]), _vectors(embedder, texts[half:])
    return [*first[0], *second[0]], first[1] + second[1]
