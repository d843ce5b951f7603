"""Redactions: what one takes out of a trail, what the database lets through of it, what verifying makes of the gaps.

The entry of a redaction names, in its `detail`, each memory it covers with the digests of the bodies it takes away
(`redacted`: number → hex digests) and the entries whose sealed notes go (`notes`). It is appended first; then the
triggers let exactly `trail.strip` through: of the changes of these memories up to the entry, both snapshots lose their
bodies; of these entries, the note is emptied. Everything else of a row stays, and the chain still verifies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, models

from audit import trail
from audit.models import AuditEntry, Change, Operation

# --- what the database lets through


def is_redacted_change() -> str:
    """SQL for a trigger: an UPDATE takes both bodies off a change of a memory that a later entry redacted."""
    head = trail.SnapshotHead.sql[connection.vendor]
    heads = [f"NEW.{side} {_same()} {head.format(f'OLD.{side}')}" for side in _SNAPSHOTS]
    return " AND ".join([*_unchanged(Change, _SNAPSHOTS), *heads, _IS_REDACTED])


def is_redacted_note() -> str:
    """SQL for a trigger: an UPDATE empties the note of an entry that edited a memory which a later entry redacted."""
    return " AND ".join([*_unchanged(AuditEntry, ("sealed",)), "NEW.sealed IS NULL", _EDITED_A_REDACTED])


# A redaction changes the memories it covers, and no others: its changes say so, found by their index. (Its detail says
# so, too, but a detail of a thousand memories, looked through for every row, took minutes.) CROSS JOIN is how SQLite is
# told to take the tables in this order; in another it goes through all that came later.
_BY_REDACTION = f"""
    CROSS JOIN audit_auditentry AS entry WHERE entry.agent_id = gone.agent_id AND entry.seq = gone.seq
    AND entry.operation = '{Operation.REDACTED.value}'
"""
_IS_REDACTED = f"""EXISTS (
    SELECT 1 FROM audit_change AS gone {_BY_REDACTION}
    AND gone.agent_id = OLD.agent_id AND gone.number = OLD.number AND gone.seq >= OLD.seq
)"""
_EDITED_A_REDACTED = f"""EXISTS (
    SELECT 1 FROM audit_change AS edit CROSS JOIN audit_change AS gone {_BY_REDACTION}
    AND edit.agent_id = OLD.agent_id AND edit.seq = OLD.seq
    AND gone.agent_id = edit.agent_id AND gone.number = edit.number AND gone.seq >= edit.seq
)"""
_SNAPSHOTS = ("before", "after")


def _same() -> str:
    """Equal, or both NULL: a condition with NULL in it would be neither true nor false."""
    return "IS NOT DISTINCT FROM" if connection.vendor == "postgresql" else "IS"


def _unchanged(model: type[models.Model], but: tuple[str, ...]) -> list[str]:
    names = (field.column for field in model._meta.concrete_fields if field.column not in but)
    return [f"NEW.{name} {_same()} OLD.{name}" for name in names]


# --- what verifying makes of it


@dataclass(slots=True)
class Redacted:
    """What the entries of an agent's redactions name. Holds the redacted alone, whatever the trail's length."""

    bodies: dict[int, tuple[int, frozenset[bytes]]] = field(default_factory=dict)  # number → entry, bodies' digests
    notes: dict[int, int] = field(default_factory=dict)  # entry whose note is gone → entry that redacted it

    def add(self, seq: int, detail: Mapping[str, Any]) -> None:
        """Take in what an entry names: all of it or, where it is ill-formed as SQL can write it, nothing. Raises then
        what that gives rise to (`verify.ill_formed`)."""
        named = {int(number): frozenset(map(bytes.fromhex, each)) for number, each in detail["redacted"].items()}
        notes = dict.fromkeys(detail["notes"], seq)
        self.bodies |= {number: (seq, self._named(number) | each) for number, each in named.items()}
        self.notes |= notes

    def _named(self, number: int) -> frozenset[bytes]:
        return self.bodies.get(number, (0, frozenset[bytes]()))[1]

    def covers(self, number: int, seq: int) -> bool:
        """Whether what an entry kept of a memory was redacted."""
        by, named = self.bodies.get(number, (0, frozenset()))
        return seq <= by and bool(named)

    def accounts_for(self, number: int, head: bytes, digest: bytes) -> bool:
        """Whether a snapshot that lost its body is one that was redacted."""
        return any(trail.digest_without_body(head, body) == digest for body in self._named(number))


def as_detail(taken: Mapping[int, Iterable[bytes]], notes: Sequence[int]) -> dict[str, Any]:
    """What the entry of a redaction names, of the bodies' digests of each memory, and the entries' numbers."""
    return {
        "redacted": {str(number): sorted(body.hex() for body in digests) for number, digests in taken.items()},
        "notes": list(notes),
    }
