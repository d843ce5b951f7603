"""Our own export as JSON Lines (docs/migration-sources.md, "Our own export")."""

from __future__ import annotations

from memory.transfer.formats import own
from memory.transfer.outline import Outline, lines
from memory.transfer.system import LARGEST_EXPORT, Form, System, Way

_OURS = {"[].kind", "[].category", "[].scope", "[].origin", "[].constitutional", "[].tokens", "[].created_at"}


def _fits(outline: Outline) -> bool:
    return "[].content" in outline and len(_OURS & outline) > 3


SYSTEM = System(
    "own",
    "Palimpsest",
    "legacy_memory_systems",
    "our own exports as JSON Lines, wherever they lie",
    form=Form((".jsonl", ".ndjson"), (b'"content"',), _fits, Way(own.parts, LARGEST_EXPORT), lines),
)
