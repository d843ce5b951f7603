"""Letta: agent files, and passages of an archive (docs/migration-sources.md, "Letta")."""

from __future__ import annotations

from memory.transfer.formats import letta
from memory.transfer.outline import Outline
from memory.transfer.system import LARGEST_EXPORT, Form, System, Way

_NEWER = {"agents[].block_ids", "agents[].agent_type", "agents[].memory_blocks"}
_PASSAGE = {"[].archive_id", "[].embedding_config", "[].is_deleted"}


def _fits(outline: Outline) -> bool:
    if {"core_memory[].label", "core_memory[].value"} <= outline or len(_NEWER & outline) > 1:
        return True
    return "[].text" in outline and bool(_PASSAGE & outline)


SYSTEM = System(
    "letta",
    "Letta",
    "legacy_memory_systems",
    "agent files (.af), and passages of an archive as JSON, wherever they lie",
    form=Form(
        (".af", ".json"),
        (b'"core_memory"', b'"agents"', b'"archive_id"', b'"embedding_config"', b'"is_deleted"'),
        _fits,
        Way(letta.parts, LARGEST_EXPORT),
        certain=(".af",),
    ),
)
