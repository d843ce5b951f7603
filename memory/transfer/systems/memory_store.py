"""Anthropic's memory stores, as their list of memories answers (docs/migration-sources.md, "Anthropic's memory tool
and memory stores")."""

from __future__ import annotations

from memory.transfer.formats import memory_store
from memory.transfer.outline import Outline
from memory.transfer.system import LARGEST_EXPORT, Form, System, Way


def _fits(outline: Outline) -> bool:
    return "data[].memory_version_id" in outline or {"data[].memory_store_id", "data[].path"} <= outline


SYSTEM = System(
    "memory-store",
    "Anthropic's memory stores",
    "custom_agent_frameworks",
    "JSON files of what a memory store answers, wherever they lie",
    form=Form(
        (".json",), (b'"memory_store_id"', b'"memory_version_id"'), _fits, Way(memory_store.parts, LARGEST_EXPORT)
    ),
)
