"""The cache of search indexes in this process. If the cache is too large, the least recently used indexes are dropped.

An index is built when it is first used. Each later search first adds the changes since the last update of the index. An
index is never stored. The cache key contains the agent's wrapped key. So after the agent's key is rotated or erased,
the old index is not used.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from threading import Lock, RLock, local
from typing import Any
from weakref import WeakKeyDictionary

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Sum
from django.db.models.functions import Length

from audit.bulk import streamed
from memory.models import Agent, Layer, Memory, Source, Vector, layer_of
from memory.search import embedding
from memory.search.holdings import Document, short
from memory.search.index import Index
from memory.search.own_words import own_text
from memory.silo.silo import Silo


@dataclass(slots=True)
class _Held:
    index: Index
    seen: int = 0  # the last audit entry whose changes the index contains
    embedder: str = ""  # whose vectors the index contains
    seen_vector: int = 0  # the last of these rows
    lock: RLock = field(default_factory=RLock)


class Behind(Exception):
    """Error: The index is in use, or lacks so many changes that `reader` must add them before the agent is locked. The
    argument is the agent, as it was when it was locked."""


class _Edited(local):
    """The agents that this thread edits in its current transaction. `blocks` maps the outermost `atomic` block of this
    transaction to these agents, each with the index that only this transaction searches."""

    def __init__(self) -> None:
        self.blocks: WeakKeyDictionary[object, dict[int, _Held | None]] = WeakKeyDictionary()


_edited = _Edited()


def note_edit(*, agent: Agent, **_: object) -> None:
    """Receive the signal `edited`. From now until the end of the current transaction, searches in this transaction
    use an index of their own for this agent.

    The transaction can still be rolled back, so the cached index must not contain the changes of the transaction. If
    the agent can have an embedder, this also queues the task that makes its vectors.
    """
    if agent.embedder or settings.EMBEDDER:
        embedding.queue(agent)
    _edited.blocks.setdefault(_block(), {}).setdefault(agent.pk, None)


def _block() -> object:
    """Return the outermost `atomic` block of this thread's transaction. The block of a Django test case is ignored."""
    blocks = transaction.get_connection().atomic_blocks
    return next((block for block in blocks if not block._from_testcase), None)


_held: OrderedDict[tuple[int, bytes], _Held] = OrderedDict()
_lock = Lock()


@contextmanager
def reader(
    agent: Agent,
    since: datetime | None = None,
    until: datetime | None = None,
    *,
    embedder: str = "",
    keeps: bool = False,
) -> Iterator[Index]:
    """Yield an agent's index for one search. The index is up to date and locked. With `embedder`, it has the vectors of
    this embedder. With `keeps`, the transaction keeps it, so that other searches cannot take its place in the cache.

    If the index does not have all memories beneath, a search with `since` or `until` gets its own index, with the
    memories beneath from this period.
    """
    held = _hold(agent)
    if not held.lock.acquire(blocking=not agent.is_locked):  # other writers must not wait for a search
        raise Behind(agent)
    try:
        _update(agent, held)
        if keeps and _edited.blocks.setdefault(_block(), {}).get(agent.pk) is None:
            with _lock:
                _keep(agent, held)
        if embedder:
            _add_vectors(agent, held, embedder)
        is_enough = held.index.searched_since is None or since is until is None
        yield held.index if is_enough else _of_period(agent, held, since, until)
    finally:
        held.lock.release()
        _limit_size()


def _of_period(agent: Agent, held: _Held, since: datetime | None, until: datetime | None) -> Index:
    period = {"origin__gte": since, "origin__lte": until}
    beneath = Memory.objects.of(agent).in_layers([Layer.BENEATH])
    beneath = beneath.filter(**{name: value for name, value in period.items() if value is not None})
    silo, index = Silo.for_agent(agent), Index(agent.language)
    for rows in (Memory.objects.of(agent).active(), beneath.order_by("-origin")[: settings.SEARCH_LAYER_MAX]):
        index.extend(_document(silo, row) for row in rows.values_list(*_COLUMNS, named=True))
    index.keep_newest(settings.SEARCH_LAYER_MAX)
    index.vectors = held.index.vectors
    return index


def forget(agent_id: int | None = None) -> None:
    """Drop all indexes of this process, or only the indexes of one agent."""
    with _lock:
        for place in [place for place in _held if agent_id in (None, place[0])]:
            del _held[place]


def _edited_here() -> dict[int, _Held | None]:
    """Return the agents whose memories the present transaction has edited, with their indexes."""
    block = _block()
    return _edited.blocks.get(block, {}) if block else {}


MOST_WHILE_LOCKED = 500  # changed memories; 30,000 take half a minute
MOST_BYTES = 50_000  # of these memories with their tags, sealed: a tenth of a second


def _hold(agent: Agent) -> _Held:
    """Return the agent's index. A transaction that has edited the agent takes it out of the cache until its commit."""
    edited, place = _edited_here(), (agent.pk, bytes(agent.wrapped_key))
    if own := edited.get(agent.pk):
        return own
    with _lock:
        held = _held.pop(place, None) or _Held(Index(agent.language))
        _held[place] = held
        if agent.pk in edited:
            _keep(agent, held)
        return held


def _keep(agent: Agent, held: _Held) -> None:
    place = agent.pk, bytes(agent.wrapped_key)
    _held.pop(place, None)
    _edited_here()[agent.pk] = held
    transaction.on_commit(partial(_held.setdefault, place, held))


def _update(agent: Agent, held: _Held) -> None:
    """Update the index. Rebuild it if it is in another language, or if a memory was redacted since the last update: it
    must not contain the redacted words."""
    if held.index.language != agent.language or not _add_changes(agent, held):
        held.index, held.seen, held.seen_vector = Index(agent.language), 0, 0
        _add_changes(agent, held)


def _add_changes(agent: Agent, held: _Held) -> bool:
    """Update the index with the changes that are newer than `held.seen`. Return False if one of the changed memories is
    redacted, because the index must then be rebuilt.

    The audit entries of an agent are committed in the order of their numbers. So a change with a lower number cannot
    appear later.
    """
    changed = Memory.objects.of(agent).filter(version__gt=held.seen)
    few = changed.annotate(length=Length("sealed"))[: MOST_WHILE_LOCKED + 1]
    pending, size = few.aggregate(count=Count("pk"), size=Sum("length", default=0)).values()
    if held.seen and not pending:
        return True
    is_much = pending > MOST_WHILE_LOCKED or size > MOST_BYTES
    if agent.is_locked and is_much and agent.pk not in _edited_here():
        raise Behind(agent)
    silo = Silo.for_agent(agent)
    seen = held.seen
    with streamed(changed.order_by("version").values_list(*_COLUMNS, named=True), _ROWS) as rows:
        while batch := list(islice(rows, _ROWS)):
            if held.seen and any(row.redacted_at is not None for row in batch):
                return False
            for row in batch:
                if row.discarded_at is not None:
                    held.index.remove(row.number)
            held.index.extend(_document(silo, row) for row in batch if row.discarded_at is None)
            held.index.keep_newest(settings.SEARCH_LAYER_MAX)
            seen = batch[-1].version
    # `seen` changes only here. All memories of one edit have the same version, so after an error all are read again.
    held.seen = min(seen, agent.audit_seq)  # only SQL can set a higher version
    return True


def _add_vectors(agent: Agent, held: _Held, embedder: str) -> None:
    """Add the vectors that were made since the last search. Vectors of two embedders are never mixed."""
    from memory.search.vectors import Vectors

    if held.embedder != embedder or held.index.vectors is None:
        held.index.vectors, held.embedder, held.seen_vector = Vectors(len(held.index)), embedder, 0
    vectors = held.index.vectors
    rows = Vector.objects.filter(agent_id=agent.pk, embedder=embedder, pk__gt=held.seen_vector).order_by("pk")
    silo = Silo.for_agent(agent)
    with streamed(rows.values_list("id", "number", "embedder", "digest", "sealed", named=True), _ROWS) as found:
        for row in found:
            if (vector := embedding.opened(silo, row)) is not None:
                vectors.put(row.number, short(row.digest), vector)
            held.seen_vector = row.id


def _document(silo: Silo, row: Any) -> Document:
    opened = silo.open(row)
    text, where = own_text(opened.content, row.category), (layer_of(row._asdict()), row.category, row.project)
    others = (row.source == Source.SYSTEM, row.superseded_by, short(row.digest))
    return Document(row.number, text, opened.tags, row.origin, *where, *others)


_WHERE = ("kind", "category", "project")
_STATE = ("discarded_at", "beneath_at", "superseded_by", "version", "redacted_at", "source")
_COLUMNS = ("number", "sealed", "digest", "origin", *_WHERE, *_STATE)
_ROWS = 2_000  # the rows that are loaded at the same time


def _limit_size() -> None:
    with _lock:
        most = settings.SEARCH_CACHE_MB * 1_000_000
        while len(_held) > 1 and sum(each.index.bytes_used for each in _held.values()) > most:
            _held.popitem(last=False)
