"""Keeps the vectors of an agent's memories. `refinement/embedding.py` gets them from the agent's embedder.

The memories are embedded in the order of their versions, in batches. One transaction stores the vectors of a batch and
how far they are. So after a kill, the next worker continues with the next batch. A vector is sealed for one memory, one
embedder and one text. It is in no trail, snapshot or export.

Private memories and memories of a closed category are never embedded.
"""

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import OperationalError
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce
from django.utils import timezone

from config.errors import DomainError
from config.queue import EMBED_MEMORIES, LOCK_SECONDS, is_put_later, put, put_later
from memory.errors import Erased, SealBroken
from memory.models import Agent, Embedding, Memory, Vector
from memory.models.memories import MemoryQuerySet
from memory.policy import paths, switches
from memory.policy.categories import SCOPES
from memory.search.own_words import own_text
from memory.search.query import Query
from memory.silo.silo import Silo
from memory.writing import edits

NONE = "none"  # instead of an embedder: search by words, also if the server has a default
BATCH, BATCH_CHARACTERS = 64, 60_000
TEXT_CHARACTERS = 6_000  # of one memory, from its beginning; embedders have limits of 512 to 8,192 tokens
QUERY_CHARACTERS = 2_000
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(seconds=15)  # after failures
MOST_FAILURES = 6  # that count; then a batch has one text
LONG_PAUSE = timedelta(seconds=50)  # if somebody must correct the problem first
TURN = timedelta(seconds=90)  # a worker extends its turn before each call; after this time, another worker continues
LOST = timedelta(minutes=10)  # after this time, a queued task does not count any more

# The app `refinement` sets these. The first returns the vector of a query for an agent and an embedder, or None. The
# second returns whether the last call for an agent and an embedder failed.
embed_query: Callable[[Agent, str, str], "array[float] | None"] | None = None
has_failed: Callable[[Agent, str], bool] | None = None


def embedder_of(agent: Agent) -> str:
    """Return the embedder that makes an agent's vectors, or an empty text."""
    found: str = agent.embedder or settings.EMBEDDER
    return "" if found == NONE else found


def serving(agent: Agent) -> str:
    """Return the embedder whose vectors a search uses: the former one until the vectors of the new one are complete."""
    return agent.former_embedder or embedder_of(agent)


def vector_of(agent: Agent, query: Query) -> "array[float] | None":
    """Return the vector of a query, or None if the search must use words alone. While the agent is locked, no provider
    is asked: others would wait for it. Raises Erased."""
    embedder, text = serving(agent), " ".join((query.text, *query.phrases)).strip()
    if not embedder or not text or agent.is_locked or embed_query is None:
        return None
    found = embed_query(agent, embedder, text[:QUERY_CHARACTERS])
    if Agent.objects.filter(pk=agent.pk, wrapped_key=b"").exists():  # the embedder may have taken seconds
        raise Erased("The agent's memory was erased.")
    return found


def after(agent: Agent, embedder: str) -> dict[str, str]:
    """Return the values of an agent with another setting `embedder`. The vectors that are in use stay in use until the
    new ones are complete, but not if search by meaning ends."""
    used, changed = serving(agent), embedder or settings.EMBEDDER
    return {"embedder": embedder, "former_embedder": "" if changed in (NONE, "", used) else used}


def restart(agent: Agent) -> None:
    """Remove the vectors that a locked agent must not have, and look at all its memories again. Vectors that are still
    right stay. Call this after a change of its embedder or of its rules."""
    if (mine := Vector.objects.filter(agent_id=agent.pk)).exists():  # without vectors, no memory is read
        hidden = Memory.objects.of(agent).filter(category__in=_never(agent), number__in=mine.values("number"))
        mine.filter(number__in=hidden.values("number")).delete()
        remove_unused(agent)
    embedder = embedder_of(agent)
    first: Any = {"embedder": embedder, "version": 0, "number": 0, "dimensions": 0, "tokens": 0}
    first |= {"failures": 0, "problem": "", "wait_until": timezone.now()}
    rows = Embedding.objects.filter(agent_id=agent.pk)
    if not rows.update(**first) and embedder:  # a worker that makes vectors keeps its turn until its call ends
        Embedding.objects.create(agent_id=agent.pk, taken_until=agent.created_at, **first)
    if embedder:
        queue(agent)


def remove_unused(agent: Agent) -> None:
    """Remove the vectors of all embedders that a locked agent does not use."""
    used = {embedder_of(agent), agent.former_embedder}
    Vector.objects.filter(agent_id=agent.pk).exclude(embedder__in=used).delete()


def remove(agent: Agent, numbers: Collection[int]) -> None:
    """Remove the vectors of redacted memories of a locked agent. A memory of which only a former text is redacted keeps
    the vector of its present text."""
    present = {memory.number: bytes(memory.digest) for memory in Memory.objects.of(agent).numbered(numbers)}
    found = Vector.objects.filter(agent_id=agent.pk, number__among=list(numbers)).values_list("pk", "number", "digest")
    former = [pk for pk, number, digest in found if bytes(digest) != present[number]]
    Vector.objects.filter(pk__among=former).delete()


def queue(agent: Agent) -> None:
    """Queue the task that makes the vectors of an agent, unless a task of its tenant is queued. That task continues
    with all agents of the tenant, one after the other. So a tenant with many agents does not fill the queue."""
    now, rows = timezone.now(), Embedding.objects.filter(agent_id=agent.pk)
    queued = Embedding.objects.filter(agent__tenant_id=agent.tenant_id, queued_at__gt=now - LOST, queued_at__lte=now)
    if agent.is_locked and not rows.exists():  # it has the server's embedder
        Embedding.objects.create(agent_id=agent.pk, embedder=embedder_of(agent), taken_until=agent.created_at)
    if rows.filter(~Exists(queued)).update(queued_at=now) or not rows.exists():
        put(EMBED_MEMORIES, agent.pk, lost=partial(rows.update, queued_at=None))


# --- how far the vectors are


@dataclass(frozen=True, slots=True)
class State:
    """The state of an agent's vectors. `waiting` is the number of memories whose vectors are not made yet."""

    embedder: str
    queries_go_to: str
    made: int
    waiting: int
    problem: str


def state(agent: Agent) -> State:
    if not (embedder := embedder_of(agent)):
        return State("", "", 0, 0, "")
    row = Embedding.objects.filter(agent_id=agent.pk, embedder=embedder).first() or Embedding(agent=agent)
    made = Vector.objects.filter(agent_id=agent.pk, embedder=embedder).count()
    queries, problem = serving(agent), row.problem
    if not problem and has_failed is not None and has_failed(agent, queries):
        problem = f"{queries} did not answer the last query."
    return State(embedder, queries, made, _after(agent, row).count(), problem)


def late() -> QuerySet[Agent]:
    """Return the agents whose vectors are not complete, and that wait after no failure. First comes the agent whose
    last turn was longest ago."""
    rows, now = Embedding.objects.filter(agent_id=OuterRef("pk")), timezone.now()
    mine = Case(When(embedder="", then=Value(settings.EMBEDDER)), default=F("embedder"))
    until = Coalesce(Subquery(rows.values("taken_until")), F("created_at"))
    agents = Agent.objects.annotate(mine=mine, until=until, row=Subquery(rows.values("embedder")))
    agents = agents.annotate(done=Subquery(rows.values("version")), wait=Subquery(rows.values("wait_until")))
    agents = agents.filter(memory_enabled=True).exclude(wrapped_key=b"").exclude(mine__in=("", NONE))
    incomplete = Q(row=None) | ~Q(row=F("mine")) | Q(done__lt=F("audit_seq")) | ~Q(former_embedder="")
    return agents.filter(incomplete, Q(wait=None) | ~_is_near("wait", now)).order_by("until", "pk")


def next_late(tenant_id: int) -> Agent | None:
    """Return the tenant's next late agent. Return None if no agent is late, or if a worker has a turn for this
    tenant."""
    if Embedding.objects.filter(_is_near("taken_until", timezone.now()), agent__tenant_id=tenant_id).exists():
        return None
    return late().filter(tenant_id=tenant_id).first()


def _is_near(field: str, now: datetime) -> Q:
    """Whether a time is in the future. A time that is too far away comes from a wrong clock."""
    return Q((f"{field}__gt", now), (f"{field}__lte", now + TURN))


def queue_late() -> None:
    """Queue one late agent of each tenant for which no worker makes vectors."""
    for tenant_id in set(late().order_by().values_list("tenant_id", flat=True)):
        agent = next_late(tenant_id)
        if agent is not None and vars(agent)["row"] is None:
            _queue_first(agent)
        elif agent is not None:
            queue(agent)


def _queue_first(agent: Agent) -> None:
    """Queue an agent that has the server's embedder, and has no row yet."""
    try:
        with edits.locked(agent, seconds=1) as row:
            queue(row)
    except (DomainError, OperationalError):
        put(EMBED_MEMORIES, agent.pk)


def _never(agent: Agent) -> frozenset[str]:
    rules = switches.rules_of(agent)
    return switches.closed(agent) | {category for category in SCOPES if paths.is_private(category, rules)}


def _after(agent: Agent, row: Embedding) -> MemoryQuerySet:
    """Return the memories that are not done. Only versions of the trail count: SQL could set a higher one."""
    rows = Memory.objects.of(agent).kept().filter(redacted_at__isnull=True, version__lte=agent.audit_seq)
    rows = rows.exclude(category__in=_never(agent))
    later = Q(version__gt=row.version) | Q(version=row.version, number__gt=row.number)
    return rows.filter(version__gte=row.version).filter(later)


# --- making vectors


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """The next memories of an agent. `texts` has those that need a vector."""

    row: Embedding
    last: tuple[int, int]
    texts: Mapping[int, str]
    digests: Mapping[int, bytes]


def begin(agent: Agent) -> None:
    """Record that a worker will take the agent now. If the worker is killed, other agents come first for a while."""
    pause = {"wait_until": timezone.now() + LONG_PAUSE}
    new = {"embedder": embedder_of(agent), **pause}
    Embedding.objects.update_or_create(agent_id=agent.pk, defaults=pause, create_defaults=new)


def take(agent: Agent) -> Embedding | None:
    """Take the agent's vectors for this worker. Return None if another worker has them."""
    with edits.locked(agent, seconds=LOCK_SECONDS) as row:
        found, now = Embedding.objects.filter(agent_id=agent.pk).first(), timezone.now()
        if found is None or found.embedder != embedder_of(row):  # the server has another default
            restart(row)
            found = Embedding.objects.get(agent_id=agent.pk)
        if now < found.taken_until <= now + TURN:
            return None
        found.taken_until, found.turn = now + TURN, found.turn + 1
        found.save(update_fields=["taken_until", "turn"])
    return found


def _mine(row: Embedding) -> QuerySet[Embedding]:
    """Return the row, unless another worker has continued, or the agent's vectors were restarted."""
    place = {name: getattr(row, name) for name in ("agent_id", "turn", "embedder", "version", "number")}
    return Embedding.objects.filter(**place)


def keep(row: Embedding) -> bool:
    """Extend this worker's turn. Return False if the turn has ended."""
    return bool(_mine(row).update(taken_until=timezone.now() + TURN))


def give_back(row: Embedding, problem: str = "", *, retries: bool = True) -> None:
    """End this worker's turn. After a failure, queue the task again after a pause. Without `retries`, only the sweep
    does this, because somebody must correct the problem first."""
    failures, now, pause = row.failures, timezone.now(), timedelta()
    if problem:
        failures = min(failures + 1, MOST_FAILURES)
        pause = min(FIRST_PAUSE * 2**failures, LONGEST_PAUSE) if retries else LONG_PAUSE
    values = {"failures": failures, "problem": problem[:300], "taken_until": now, "wait_until": now + pause}
    if not _mine(row).update(**values):
        leave(row)
    elif problem and retries:
        _put_later(row.agent, pause)


def leave(row: Embedding) -> None:
    """End this worker's turn, because the agent's vectors were restarted. If another worker has begun the next turn,
    nothing changes."""
    Embedding.objects.filter(agent_id=row.agent_id, turn=row.turn).update(taken_until=timezone.now())


def _put_later(agent: Agent, wait: timedelta) -> None:
    """Queue a task of the tenant after a time, unless there is one. Its argument is the tenant's first agent."""
    first = Agent.objects.filter(tenant_id=agent.tenant_id).order_by("pk").values_list("pk", flat=True)[0]
    if not is_put_later(EMBED_MEMORIES, first):
        put_later(EMBED_MEMORIES, first, wait=wait)


def next_batch(agent: Agent, row: Embedding, most: int) -> Batch | None:
    """Return the next memories, or None if all are done. `texts` has at most `most` texts, and not those of memories
    whose vectors are right."""
    silo, texts, digests, last, characters = Silo.for_agent(agent), dict[int, str](), dict[int, bytes](), None, 0
    rows = list(_after(agent, row).order_by("version", "number")[: 4 * BATCH])
    made = Vector.objects.filter(agent_id=agent.pk, embedder=row.embedder, number__among=[m.number for m in rows])
    right = {number: bytes(digest) for number, digest in made.values_list("number", "digest")}
    for memory in rows:
        digest = bytes(memory.digest)
        if right.get(memory.number) != digest:
            if len(texts) == most or characters >= BATCH_CHARACTERS:
                break
            if text := own_text(silo.open(memory).content, memory.category)[:TEXT_CHARACTERS].strip():
                texts[memory.number], digests[memory.number] = text, digest
                characters += len(text)
        last = memory.version, memory.number
    if last is None and row.version < agent.audit_seq:
        last = agent.audit_seq, 0  # no memory has changed since
    return Batch(row, last, texts, digests) if last else None


def store(agent: Agent, batch: Batch, vectors: Mapping[int, Sequence[float]], tokens: int) -> bool:
    """Store the vectors of a batch, by the numbers of their memories, in one transaction. A memory that has changed
    meanwhile gets no vector now. Return False if the agent has another embedder, or another worker has continued."""
    from memory.search.vectors import packed

    row = batch.row
    with edits.locked(agent, seconds=LOCK_SECONDS) as locked:
        if embedder_of(locked) != row.embedder or not locked.memory_enabled:
            return False
        version, number = batch.last
        dimensions = row.dimensions or len(next(iter(vectors.values()), ()))
        done = {"version": version, "number": number, "dimensions": dimensions, "tokens": row.tokens + tokens}
        failures = max(row.failures - 1, 0) if batch.texts else row.failures
        if not _mine(row).update(**done, failures=failures, problem="", taken_until=timezone.now() + TURN):
            return False
        present = Memory.objects.of(locked).kept().exclude(category__in=_never(locked)).numbered(batch.texts)
        digests = {memory.number: bytes(memory.digest) for memory in present}
        silo = Silo.for_agent(locked)
        made = [
            Vector(
                agent_id=agent.pk,
                number=number,
                embedder=row.embedder,
                digest=digests[number],
                sealed=silo.seal_data(_place(row.embedder, digests[number]), number, packed(vector)),
            )
            for number, vector in vectors.items()
            if digests.get(number) == batch.digests[number]
        ]
        Vector.objects.filter(agent_id=agent.pk, embedder=row.embedder, number__among=list(batch.texts)).delete()
        Vector.objects.bulk_create(made)
        row.failures = failures
        for name, value in done.items():
            setattr(row, name, value)
    return True


def _place(embedder: str, digest: bytes) -> str:
    return f"vector/{embedder}/{digest.hex()}"


def opened(silo: Silo, vector: Any) -> bytes | None:
    """Return a vector as int8, or None if SQL has changed its row: then the memory is found by words."""
    try:
        return silo.open_data(_place(vector.embedder, bytes(vector.digest)), vector.number, bytes(vector.sealed))
    except SealBroken:
        return None
