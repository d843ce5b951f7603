"""Memories as mem0's `get_all` answers them (docs/migration-sources.md, "mem0")."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from memory.formats.export import OURS, Export, NotHeld, own_fields
from memory.models import Agent
from memory.reading import Read


def _written(agent: Agent, memories: Iterable[Read], _: NotHeld) -> Iterator[bytes]:
    yield b'{"results": ['
    between = b"\n"
    for read in memories:
        yield between + json.dumps(_entry(agent, read), ensure_ascii=False).encode()
        between = b",\n"
    yield b"\n]}\n"


def _entry(agent: Agent, read: Read) -> dict[str, Any]:
    own = own_fields(read)
    return {
        "id": str(uuid5(NAMESPACE_URL, f"palimpsest:{agent}/{read.memory.number}")),
        "memory": read.opened.content,
        "agent_id": agent.slug,
        "created_at": own["origin"],
        "categories": list(dict.fromkeys((read.memory.category, *read.opened.tags))),
        "metadata": {"category": read.memory.category, OURS: own},
    }


EXPORT = Export(
    name="mem0",
    media_type="application/json",
    ending=".mem0.json",
    what="JSON as mem0 answers it; what mem0 has no field for goes along as metadata",
    not_held=(),
    write=_written,
)
