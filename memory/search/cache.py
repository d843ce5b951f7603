"""The opened search indexes of this process: made on first use, kept by recency, caught up by audit number.

Nothing is written anywhere. An index goes with its agent's wrapped key: after a rotation or an erasure it is
never found again, and is dropped as the least recently used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock, RLock, local
from typing import Any

from django.conf import settings
from django.db import transaction

from audit.bulk import streamed
from memory.models import Agent, Memory, Source
from memory.search import Document, Index
from memory.search.own_words import to_be_found
from memory.silo.silo import Silo

_BYTES_PER_MB = 1_000_000


@dataclass(slots=True)
class _Held:
    index: Index
    seen: int = 0  # audit number up to which it is caught up
    lock: RLock = field(default_factory=RLock)


class _Edited(local):
    """Agents edited by this thread in a transaction that is not over, with its block."""

    def __init__(self) -> None:
        self.blocks: dict[int, object] = {}


_edited = _Edited()


def note_edit(*, agent: Agent, **_: object) -> None:
    """Receives `edited`: until the transaction is over, its reader gets an index of its own, for it may be rolled back,
    and the index kept would then hold what never was."""
    _edited.blocks[agent.pk] = _block()


def _block() -> object:
    """The outermost block of this thread's transaction, not counting one that a test is run in."""
    blocks = transaction.get_connection().atomic_blocks
    return next((block for block in blocks if not block._from_testcase), None)


_held: OrderedDict[tuple[int, bytes, str], _Held] = OrderedDict()
_lock = Lock()


@contextmanager
def reader(agent: Agent) -> Iterator[Index]:
    """An agent's index, caught up, locked for the time of one search."""
    held = _hold(agent)
    try:
        with held.lock:
            _catch_up(agent, held)
            yield held.index
    finally:
        _keep_within_bounds()


def forget(agent_id: int | None = None) -> None:
    """Drop every index of this process, or those of an agent."""
    with _lock:
        for place in [place for place in _held if agent_id in (None, place[0])]:
            del _held[place]


def _hold(agent: Agent) -> _Held:
    edited_in = _edited.blocks.get(agent.pk)
    if edited_in is not None and edited_in is _block():
        return _Held(Index(agent.language))
    place = (agent.pk, bytes(agent.wrapped_key), agent.language)
    with _lock:
        held = _held.get(place)
        if held is None:
            held = _held[place] = _Held(Index(agent.language))
        _held.move_to_end(place)
        return held


def _catch_up(agent: Agent, held: _Held) -> None:
    """Take in what changed since; or everything anew when that was redacted by another process, for an index keeps the
    words of what was taken out of it."""
    if not _take_in(agent, held):
        held.index, held.seen = Index(agent.language), 0
        _take_in(agent, held)


def _take_in(agent: Agent, held: _Held) -> bool:
    """False when one of the memories it may hold was redacted. Per agent, versions are committed in order, so none
    below `seen` can be missed."""
    changed = Memory.objects.of(agent).filter(version__gt=held.seen)
    if held.seen and not changed.exists():
        return True
    silo = Silo.for_agent(agent)
    seen = held.seen
    with streamed(changed.order_by("version").values_list(*_COLUMNS), _ROWS) as rows:
        while batch := list(islice(rows, _ROWS)):
            if held.seen and any(row[_REDACTED_AT] is not None for row in batch):
                return False
            for row in batch:
                if row[_DISCARDED_AT] is not None:
                    held.index.remove(row[_NUMBER])
            held.index.extend(_document(silo, row) for row in batch if row[_DISCARDED_AT] is None)
            seen = batch[-1][_VERSION]
    # Only now: the memories of one edit share a version, and what a failure left out would never be asked for again.
    held.seen = seen
    return True


def _document(silo: Silo, row: Sequence[Any]) -> Document:
    number, sealed, origin, kind, category, project, *_, source = row
    opened = silo.open_sealed(number, bytes(sealed))
    is_notice = source == Source.SYSTEM
    text = to_be_found(opened.content, category)
    return Document(number, text, opened.tags, origin, kind, category, project, is_notice)


_WHERE = ("kind", "category", "project")
_COLUMNS = ("number", "sealed", "origin", *_WHERE, "discarded_at", "version", "redacted_at", "source")
_NUMBER, _DISCARDED_AT, _VERSION, _REDACTED_AT = 0, 6, 7, 8
_ROWS = 2_000  # rows held at a time


def _keep_within_bounds() -> None:
    with _lock:
        while (
            len(_held) > 1
            and sum(h.index.bytes_used for h in _held.values()) > settings.SEARCH_CACHE_MB * _BYTES_PER_MB
        ):
            _held.popitem(last=False)
