"""mem0: what its list of memories answers, and OpenMemory's export (docs/migration-sources.md, "mem0")."""

from __future__ import annotations

from memory.transfer.formats import mem0
from memory.transfer.outline import Outline
from memory.transfer.system import LARGEST_EXPORT, Form, System, Way

_BESIDE = ("id", "created_at", "updated_at", "user_id", "agent_id", "run_id", "app_id", "hash")


def _fits(outline: Outline) -> bool:
    if {"memories[].content", "memories[].state"} <= outline:
        return True
    return any(
        f"{each}.memory" in outline and any(f"{each}.{name}" in outline for name in _BESIDE)
        for each in ("results[]", "[]")
    )


SYSTEM = System(
    "mem0",
    "mem0",
    "legacy_memory_systems",
    "JSON files of mem0's memories, and OpenMemory's memories.json, wherever they lie",
    form=Form((".json",), (b'"memory"', b'"memories"'), _fits, Way(mem0.parts, LARGEST_EXPORT)),
)
