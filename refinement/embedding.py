"""Gets the vectors of memories and queries from an agent's embedder (`memory/search/embedding.py` keeps them)."""

import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import structlog
from django.conf import settings
from django.db import OperationalError
from django.utils import timezone

from audit import redactions
from audit.trail import Actor
from audit.waiting import is_lock_timeout
from config import queue
from config.queue import LOCK_SECONDS
from memory.access import authority
from memory.agents import lifecycle
from memory.models import Agent, Embedding
from memory.search import embedding
from memory.writing import edits
from refinement import allowance
from refinement.errors import AllowanceSpent
from refinement.llm.base import ContextOverflow, ModelError, ModelRefused, ModelReplyInvalid, NoModel
from refinement.llm.embedders import open_embedder
from refinement.llm.vectors import Embedder
from refinement.providers import EmbedderAvailability

QUERY_SECONDS, BATCH_SECONDS = 2.0, 20.0
TASK_SECONDS = 20.0  # then other tasks of the queue get their turn
HARMLESS = "Is this text accepted?"
LEAST_CHARACTERS = 200  # of a text that the embedder refuses: a shorter one is not tried

log = structlog.get_logger("palimpsest.embedding")


def query_vector(agent: Agent, embedder: str, text: str) -> "array[float] | None":
    """Return the vector of a query. Return None if the embedder does not answer within QUERY_SECONDS, or if the tenant
    has used its model tokens of this month: then the search uses words alone."""
    availability = EmbedderAvailability(embedder, agent, embedding.serving)
    try:
        if not embedder.startswith("local/") and (availability.is_closed() or allowance.is_used_up(agent.tenant)):
            return None
        found = open_embedder(embedder, availability).embed([text], seconds=QUERY_SECONDS, retries=0)
    except ModelError as error:
        log.info("a query was not embedded", code=error.code)
        return None
    if found.tokens:
        allowance.add_sometimes(agent.tenant_id, embedder, found.tokens)
    return found.vectors[0]


def has_failed(agent: Agent, embedder: str) -> bool:
    """Whether the last call of an embedder on another server failed."""
    is_local = embedder.startswith("local/")
    return not is_local and EmbedderAvailability(embedder, agent, embedding.serving).has_failed()


def embed_next(agent_id: int) -> str:
    """Make vectors for the agent of the same tenant whose last turn was longest ago. Then queue the next agent. Returns
    a code."""
    Embedding.objects.filter(agent_id=agent_id).update(queued_at=None)
    tenant_id = Agent.objects.filter(pk=agent_id).values_list("tenant_id", flat=True).first()
    agent = embedding.next_late(tenant_id) if tenant_id else None
    if agent is None:
        return "nothing"
    embedding.begin(agent)
    try:
        return embed(agent.pk)
    except OperationalError as error:
        if is_lock_timeout(error):
            return "busy"  # the sweep queues the agent again
        raise
    finally:
        if following := embedding.next_late(agent.tenant_id):
            embedding.queue(following)


def embed(agent_id: int) -> str:
    """Make the vectors of an agent's changed memories, for TASK_SECONDS at most. Returns a code."""
    agent = Agent.objects.select_related("tenant").filter(pk=agent_id).first()
    if agent is None or not _embedder(agent):
        return "nothing"
    row = embedding.take(agent)
    if row is None:
        return "taken"
    try:
        problem, retries = _work(row), True
    except _Changed:
        embedding.leave(row)
        return "changed"
    except (ModelError, AllowanceSpent) as error:
        log.warning("memories were not embedded", agent=agent_id, code=error.code)
        is_configuration = isinstance(error, ModelError) and error.is_configuration
        problem, retries = str(error), not (is_configuration or isinstance(error, AllowanceSpent))
    embedding.give_back(row, problem, retries=retries)
    return "failed" if problem else "embedded"


class _Changed(Exception):
    """The agent has another embedder, or another worker has continued."""


def _embedder(agent: Agent) -> str:
    """The embedder that may read an agent's memories now, or an empty text."""
    return embedding.embedder_of(agent) if agent.wrapped_key and agent.memory_enabled else ""


def _work(row: Embedding) -> str:
    """Make vectors, batch by batch. Returns the problem if the time is over and the last batch was refused. After a
    refusal, the next batch has half the texts, so that one text does not stop the others. Raises _Changed, ModelError,
    AllowanceSpent."""
    problem, size, until = "", max(1, embedding.BATCH >> row.failures), time.monotonic() + TASK_SECONDS
    while not queue.is_ending() and time.monotonic() < until:
        agent = Agent.objects.select_related("tenant").get(pk=row.agent_id)
        authority.require(agent)  # SQL may have set the number of the next redaction
        seen = _what_hides(agent)
        if _embedder(agent) != row.embedder or not embedding.keep(row):
            raise _Changed
        availability = EmbedderAvailability(row.embedder, agent, partial(_allowed, seen=seen))
        if not row.embedder.startswith("local/") and availability.is_closed():
            return row.problem or f"{row.embedder} does not respond."  # so that no text waits that may be hidden soon
        batch = embedding.next_batch(agent, row, size)
        if batch is None:
            if agent.former_embedder:
                with edits.locked(agent, seconds=LOCK_SECONDS) as locked:
                    lifecycle.change(locked, Actor.system("embedder"), former_embedder="")
            return ""
        try:
            _make(agent, batch, availability)
            problem, size = "", min(2 * size, embedding.BATCH)
        except ModelRefused as refused:
            if len(batch.texts) == 1 or not _is_about_texts(refused):
                raise
            problem, size = str(refused), len(batch.texts) // 2
    return problem


def _is_about_texts(refused: ModelRefused) -> bool:
    return isinstance(refused, ContextOverflow) or refused.status in (400, 413, 422)


def _what_hides(agent: Agent) -> tuple[object, ...]:
    """The state that decides which texts may be sent. If it changes, texts that were read before are not sent."""
    return agent.rules, redactions.last(agent)


def _allowed(row: Agent, seen: tuple[object, ...]) -> str:
    return _embedder(row) if _what_hides(row) == seen else ""


def _make(agent: Agent, batch: embedding.Batch, availability: EmbedderAvailability) -> None:
    embedder, numbers, tokens = batch.row.embedder, list(batch.texts), 0
    vectors: dict[int, array[float]] = {}
    if numbers:
        if not embedder.startswith("local/") and allowance.is_used_up(agent.tenant):
            raise AllowanceSpent("The tenant has used its model tokens of this month.")
        try:
            found, tokens = _vectors(open_embedder(embedder, availability), list(batch.texts.values()))
        except NoModel:
            raise _Changed from None
        if tokens:
            allowance.add(agent.tenant_id, embedder, tokens, timezone.now())
        vectors = {number: vector for number, vector in zip(numbers, found, strict=True) if vector is not None}
        sizes = {batch.row.dimensions, *map(len, vectors.values())} - {0}
        if len(sizes) > 1:
            raise ModelReplyInvalid(
                f"The embedder now makes vectors of other dimensions ({min(sizes):,} and {max(sizes):,}). Set another "
                "embedder, or set this one again after `none`."
            )
    if not embedding.store(agent, batch, vectors, tokens):
        raise _Changed


def _vectors(embedder: Embedder, texts: Sequence[str]) -> tuple[list["array[float] | None"], int]:
    """Return the vectors and the tokens. If the embedder refuses a single text, its first quarter is tried, and so on.
    If it accepts none of them, but another text, then this text has no vector."""
    until = time.monotonic() + min(BATCH_SECONDS, settings.MODEL_CALL_SECONDS)

    def made(*texts: str) -> tuple[list["array[float] | None"], int]:
        found = embedder.embed(texts, seconds=until - time.monotonic(), retries=1)
        return [*found.vectors], found.tokens

    try:
        return made(*texts)
    except ModelRefused as refused:
        if len(texts) > 1 or not _is_about_texts(refused):
            raise
    shorter = texts[0]
    while len(shorter := shorter[: len(shorter) // 4]) >= LEAST_CHARACTERS:
        with suppress(ModelRefused):
            return made(shorter)
    return [None], made(HARMLESS)[1]
