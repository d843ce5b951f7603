"""Memories as the blocks of a Letta agent file (docs/migration-sources.md, "Letta"), each labelled by its number: the
file has no place for the passages of an archive."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

from django.utils import timezone

from memory.formats.export import OURS, Export, NotHeld, own_fields
from memory.models import Agent
from memory.reading import Read

_AT_LEAST = 5_000  # characters that a block may grow to: Letta's own default


def _written(agent: Agent, memories: Iterable[Read], _: NotHeld) -> Iterator[bytes]:
    numbers = array("Q")
    yield b'{"blocks": ['
    between = b"\n"
    for read in memories:
        numbers.append(read.memory.number)
        yield between + json.dumps(_block(read), ensure_ascii=False).encode()
        between = b",\n"
    yield b"\n],\n"
    rest = {
        "agents": [_agent(agent, numbers)],
        **{name: [] for name in ("groups", "files", "sources", "tools", "mcp_servers")},
        "metadata": {"written_by": OURS},
        "created_at": f"{timezone.now():%Y-%m-%dT%H:%M:%SZ}",
    }
    yield json.dumps(rest, ensure_ascii=False).removeprefix("{").encode() + b"\n"


def _block(read: Read) -> dict[str, Any]:
    return {
        "id": _id(read.memory.number),
        "label": f"memory-{read.memory.number}",
        "value": read.opened.content,
        "description": None,
        "limit": max(_AT_LEAST, len(read.opened.content)),
        "read_only": False,
        "metadata": {"category": read.memory.category, OURS: own_fields(read)},
    }


def _agent(agent: Agent, numbers: Iterable[int]) -> dict[str, Any]:
    """None of its settings: they are for here. Letta asks for those that it needs when the file is read."""
    return {
        "id": "agent-0",
        "name": agent.slug,
        "agent_type": "letta_v1_agent",
        "block_ids": [_id(number) for number in numbers],
        **{
            name: []
            for name in (
                "memory_blocks",
                "tool_ids",
                "source_ids",
                "in_context_message_ids",
                "messages",
                "files_agents",
                "group_ids",
            )
        },
    }


def _id(number: int) -> str:
    return f"block-{number}"


EXPORT = Export(
    name="letta",
    media_type="application/json",
    ending=".af",
    what="a Letta agent file, each memory a block; what a block has no field for goes along as its metadata",
    not_held=(),
    write=_written,
)
