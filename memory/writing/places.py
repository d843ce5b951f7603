"""The places and the versions of memories in stores. Each edit calls this for the memories that are or were in a
store."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import F, Q, QuerySet

from memory.errors import PathTaken
from memory.models import Agent, Memory, Store, StoreVersion
from memory.silo.silo import PLACE_BYTES
from memory.writing.counters import Pair

Spot = tuple[int, bytes]  # the number of a store, and a place in it
CREATED, MODIFIED, DELETED = "created", "modified", "deleted"


def versions_of(
    agent: Agent, seq: int, at: datetime, touched: Sequence[tuple[Memory, bytes | None, Any]], pairs: Sequence[Pair]
) -> list[StoreVersion]:
    """Return the versions that an edit makes. Raises PathTaken if two memories would have the same path, or if a memory
    would have the path of a folder. A store that gets a memory is no longer deleted. If several memories move, their
    rows lose their places, until the edit writes them."""
    versions: list[StoreVersion] = []
    spots: dict[int, Spot | None] = {}
    moved: list[Memory] = []
    for (memory, snapshot, _), (before, after) in zip(touched, pairs, strict=True):
        was, now = (None if weight is None else weight.spot for weight in (before, after))
        spots[memory.number] = now
        if was == now and (now is None or (snapshot or b"").endswith(bytes(memory.sealed))):
            continue
        moved += [memory] if was != now else []
        operation = CREATED if was is None else DELETED if now is None else MODIFIED
        store = (now or was or (0,))[0]
        values: Any = {"store": store, "number": memory.number, "seq": seq, "at": at}
        versions.append(StoreVersion(agent_id=agent.pk, operation=operation, **values))
    if moved and (blocked := taken(agent, spots)):
        raise PathTaken(list(blocked.values()))
    more: dict[int, int] = defaultdict(int)
    for each in versions:
        more[each.store] += {CREATED: 1, DELETED: -1}.get(each.operation, 0)
    for store, number in more.items():
        if number:
            Store.objects.filter(agent_id=agent.pk, number=store).update(memories=F("memories") + number)
    restored = {memory.number for memory, snapshot, _ in touched if snapshot is not None}
    if created := {each.store for each in versions if each.operation == CREATED and each.number in restored}:
        deleted = Store.objects.filter(agent_id=agent.pk, number__in=created, deleted_at__isnull=False)
        deleted.update(deleted_at=None)  # a memory was restored
    if len(moved) > 1:  # two memories may exchange their paths, and the database checks each row by itself
        rows = Memory.objects.of(agent).numbered(memory.number for memory in moved)
        rows.update(store=None, place=None)
    return versions


def taken(agent: Agent, spots: Mapping[int, Spot | None]) -> dict[int, int]:
    """Return which of these memories cannot have their spots, and the memory that blocks each of them. `spots` has the
    spots of all memories that change together, after the change."""
    wanted = {number: spot for number, spot in spots.items() if spot is not None}
    others = _near(agent, wanted.values()).exclude(number__among=list(spots))
    rows = others.values_list("store", "place", "number")
    found = [((store or 0, bytes(place or b"")), number) for store, place, number in rows]
    blocked: dict[int, int] = {}
    above: list[tuple[Spot, int]] = []  # memories whose places begin the next place
    for spot, number in sorted([*found, *((spot, number) for number, spot in wanted.items())]):
        while above and not (spot[0] == above[-1][0][0] and spot[1].startswith(above[-1][0][1])):
            above.pop()
        if above:
            other = above[-1][1]
            if number in wanted:
                blocked[number] = other
            elif other in wanted:
                blocked[other] = number
        above.append((spot, number))
    return blocked


_FEW = 3


def _near(agent: Agent, spots: Iterable[Spot]) -> QuerySet[Memory]:
    """Return the memories that can block these spots. For many spots, return all memories of their stores."""
    by_store: dict[int, list[bytes]] = defaultdict(list)
    for store, place in spots:
        by_store[store].append(place)
    near = Q(pk__in=())
    for store, places in by_store.items():
        where = Q()
        if len(places) <= _FEW:
            folders = {place[:end] for place in places for end in range(PLACE_BYTES, len(place) + 1, PLACE_BYTES)}
            within = [Q(place__gt=place, place__lt=after(place)) for place in places]
            where = reduce(or_, within, Q(place__among=sorted(folders)))
        near |= Q(store=store) & where
    return Memory.objects.of(agent).kept().filter(near)


def after(place: bytes) -> bytes:
    """Return the end of the places that begin with this one."""
    return (int.from_bytes(place) + 1).to_bytes(len(place))
