"""The formats that memories leave in."""

from __future__ import annotations

from memory.errors import Invalid
from memory.transfer.exporting import Export, Writer
from memory.transfer.formats import axe, jsonl, letta, mem0, tree

EXPORTS = {each.name: each for each in (jsonl.EXPORT, tree.EXPORT, axe.EXPORT, mem0.EXPORT, letta.EXPORT)}


def writer(name: str, *, with_discarded: bool) -> Writer:
    """What writes a format. Raises Invalid where it has no place for what was discarded."""
    export: Export = EXPORTS[name]
    if not with_discarded:
        return export.write
    if export.with_discarded is None:
        raise Invalid("discarded", f"is for jsonl alone: {name} would not say which memories were discarded")
    return export.with_discarded
