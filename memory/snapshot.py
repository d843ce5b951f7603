"""A memory's whole state as one byte string: what the trail keeps before and after an edit.

Metadata in canonical JSON (an empty project, false and null left out), a NUL, and the sealed bytes as they stand in
the row. Taking one opens nothing; putting one back moves sealed bytes.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from memory.models import Memory

_TIMES = ("origin", "created_at", "discarded_at")
_PLAIN = (
    "kind",
    "category",
    "scope",
    "project",
    "source",
    "tokens",
    "constitutional",
    "superseded_by",
)


_LEFT_OUT: dict[str, Any] = {"project": "", "constitutional": False, "superseded_by": None}


def snapshot(memory: Memory) -> bytes:
    """The state of a memory. `version` is left out: it is the number of the entry that holds the snapshot."""
    plain = {name: getattr(memory, name) for name in _PLAIN}
    state: dict[str, Any] = {n: value for n, value in plain.items() if n not in _LEFT_OUT or value is not _LEFT_OUT[n]}
    state |= {name: at.isoformat() for name in _TIMES if (at := getattr(memory, name))}
    state["digest"] = bytes(memory.digest).hex()
    return _encode(state).encode() + b"\0" + bytes(memory.sealed)


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


def restore(snapshot: bytes) -> dict[str, Any]:
    """The field values a snapshot holds, ready to be set on a Memory."""
    text, _, sealed = snapshot.partition(b"\0")
    state = json.loads(text)
    fields: dict[str, Any] = {name: state.get(name) for name in _PLAIN}
    fields |= {"project": state.get("project", ""), "constitutional": state.get("constitutional", False)}
    fields |= {"tokens": state.get("tokens", 0)}
    fields |= {name: datetime.fromisoformat(state[name]) if name in state else None for name in _TIMES}
    return fields | {"digest": bytes.fromhex(state["digest"]), "sealed": sealed}
