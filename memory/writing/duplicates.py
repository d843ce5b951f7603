"""Find and remove exact duplicates. The keyed digests of memories are compared, so no content is decrypted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from django.db.models import Count, Q, Window

from audit.models import Operation
from audit.trail import Actor
from memory.models import Agent, Memory, Source
from memory.policy import switches
from memory.silo.silo import Silo
from memory.writing import edits

_GROUP = ("digest", "kind", "category", "scope", "project")


def find(agent: Agent) -> list[Memory]:
    """Use one query to find the active memories that have an exact duplicate. Notices of the service, and memories in
    categories that are off, are left out."""
    return list(
        Memory.objects.of(agent)
        .active()
        .exclude(Q(source=Source.SYSTEM) | Q(category__in=switches.closed(agent)))
        .annotate(equal=Window(Count("id"), partition_by=list(_GROUP)))
        .filter(equal__gt=1)
        .order_by("number")
    )


def removable(agent: Agent) -> list[Memory]:
    """Return the memories that `remove` would discard."""
    return [memory for group in _groups(find(agent)) for memory in _extra(group)]


def remove(agent: Agent, *, session: int | None = None) -> edits.Edited:
    """Discard all exact duplicates in one audit entry.

    One memory of each group of duplicates stays. This memory gets the earliest origin date and all tags of the group.
    Constitutional memories always stay, and never change.
    """
    with edits.begin(agent, Operation.DEDUPLICATED, Actor.system("duplicates"), session=session) as edit:
        silo = Silo.for_agent(edit.agent)
        removed = 0
        for group in _groups(find(edit.agent)):
            removed += _unite(edit, group, silo)
        edit.detail["removed"] = removed
        return edit.finish()


def _unite(edit: edits.Edit, group: list[Memory], silo: Silo) -> int:
    survivor, extra = _survivor(group), _extra(group)
    if not extra:
        return 0
    _inherit(edit, survivor, group, silo)
    for memory in extra:
        edit.change(memory, discarded_at=edit.at, superseded_by=survivor.number)
    return len(extra)


def _inherit(edit: edits.Edit, survivor: Memory, group: list[Memory], silo: Silo) -> None:
    if survivor.constitutional:  # a constitutional memory never changes
        return
    tags = silo.open_tags(survivor)
    united = tuple(dict.fromkeys([*tags, *(tag for memory in group for tag in silo.open_tags(memory))]))
    edit.change(survivor, origin=min(memory.origin for memory in group))
    if united != tags:
        edit.change(survivor, sealed=silo.retag(survivor.number, bytes(survivor.sealed), united))


def _survivor(group: list[Memory]) -> Memory:
    return min(group, key=lambda memory: (not memory.constitutional, memory.origin, memory.number))


def _extra(group: list[Memory]) -> list[Memory]:
    survivor = _survivor(group)
    return [memory for memory in group if memory is not survivor and not memory.constitutional]


def _groups(memories: Iterable[Memory]) -> list[list[Memory]]:
    groups: dict[tuple[object, ...], list[Memory]] = defaultdict(list)
    for memory in memories:
        groups[tuple(bytes(v) if isinstance(v := getattr(memory, f), memoryview) else v for f in _GROUP)].append(memory)
    return list(groups.values())
