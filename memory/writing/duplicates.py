"""Find and remove exact duplicates. The keyed digests of memories are compared, so no content is decrypted."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from operator import attrgetter

from django.db.models import Count, Q, Window
from django.db.models.functions import Length

from audit.models import Operation
from audit.trail import Actor
from memory.models import Agent, Memory, Source
from memory.models.memories import MemoryQuerySet
from memory.policy import switches
from memory.policy.validation import MAX_TAGS
from memory.silo.silo import Silo
from memory.writing import edits

_GROUP = ("digest", "kind", "category", "scope", "project")


# The most memories that one call of `remove` looks at, and their sealed bytes. With 4,000, SQLite's writer was held for
# a second, and for up to four seconds while the same agent read much.
MOST, MOST_BYTES = 1_000, 800_000


def find(agent: Agent) -> list[int]:
    """Find up to MOST active memories that have an exact duplicate, group by group, with up to MOST_BYTES in total.
    Notices of the service, memories in categories that are off, and memories of a store are left out. Returns their
    numbers. This reads all memories, so do it before the agent is locked."""
    counts = Memory.objects.of(agent).active().values("digest").annotate(count=Count("pk"))
    numbers = list(
        _active(agent)
        .filter(digest__in=counts.filter(count__gt=1).values("digest"))  # by an index: 20 times as fast
        .annotate(equal=Window(Count("id"), partition_by=list(_GROUP)))
        .filter(equal__gt=1)
        .values_list("number", flat=True)[:MOST]  # without `sealed`, which the window would copy for each memory
    )
    sizes = dict(Memory.objects.of(agent).numbered(numbers).values_list("number", Length("sealed")))
    fitting = bisect_right([*accumulate(sizes.get(number, 0) for number in numbers)], MOST_BYTES)
    return numbers[:fitting]


def _active(agent: Agent) -> MemoryQuerySet:
    left_out = Q(source=Source.SYSTEM) | Q(category__in=switches.closed(agent)) | Q(store__isnull=False)
    return Memory.objects.of(agent).active().exclude(left_out).order_by(*_GROUP, "number")


def removable(agent: Agent) -> list[Memory]:
    """Return the memories that `remove` would discard."""
    return [memory for _, extra in _groups(agent, find(agent)) for memory in extra]


def remove(agent: Agent, found: Sequence[int] | None = None, *, session: int | None = None) -> edits.Edited:
    """Discard exact duplicates in one audit entry. If there are very many, later calls discard the rest. If the agent
    is locked, `found` has the result of `find` from before.

    One memory of each group of duplicates stays. It gets the earliest origin date and the tags of the group, at
    most MAX_TAGS. Constitutional memories always stay, and never change.
    """
    found = find(agent) if found is None else found
    with edits.begin(agent, Operation.DEDUPLICATED, Actor.system("duplicates"), session=session) as edit:
        silo, edit.detail["removed"] = Silo.for_agent(edit.agent), 0
        for survivor, extra in _groups(edit.agent, found):
            if not survivor.constitutional:
                _inherit(edit, survivor, extra, silo)
            for memory in extra:
                edit.change(memory, discarded_at=edit.at, superseded_by=survivor.number)
            edit.detail["removed"] += len(extra)
        return edit.finish()


def _inherit(edit: edits.Edit, survivor: Memory, extra: list[Memory], silo: Silo) -> None:
    tags = silo.open_tags(survivor)
    united = tuple(dict.fromkeys([*tags, *(tag for memory in extra for tag in silo.open_tags(memory))]))[:MAX_TAGS]
    edit.change(survivor, origin=min(memory.origin for memory in (survivor, *extra)))
    if united != tags:
        edit.change(survivor, sealed=silo.retag(survivor.number, bytes(survivor.sealed), united))


def _groups(agent: Agent, found: Sequence[int]) -> Iterator[tuple[Memory, list[Memory]]]:
    """For each group of duplicates, yield the memory that stays, and the memories to discard."""
    order = attrgetter(*_GROUP)
    rows = sorted(_active(agent).order_by().numbered(found), key=order)  # SQLite would read all memories in this order
    for _, [*group] in groupby(rows, order):
        survivor = min(group, key=lambda memory: (not memory.constitutional, memory.origin, memory.number))
        if extra := [memory for memory in group if memory is not survivor and not memory.constitutional]:
            yield survivor, extra
