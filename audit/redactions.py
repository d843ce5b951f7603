"""Redactions: the updates that the triggers allow, and how verification handles removed content.

The `detail` of a redaction's entry has two fields. `redacted` has the number of each redacted memory, with the hex
digests of its removed bodies. `notes` has the numbers of the entries whose notes were removed. For the redaction of a
single version, `version` is the number of its entry. After the redaction's entry exists, the triggers allow
`trail.strip` to remove two things: these notes, and the bodies of these memories in all entries up to this entry. All
other values stay, and the chain can still be verified.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, models

from audit import trail
from audit.models import CONSENT, AuditEntry, Change, Operation

# --- what the triggers allow


def is_redacted_change() -> str:
    """An SQL condition for a trigger. The UPDATE may only remove the bodies of a change. The memory of this change must
    be redacted, by the same entry or by a later one."""
    head = trail.SnapshotHead.sql[connection.vendor]
    kept = [f"NEW.{side} {_same()} OLD.{side}" for side in _SNAPSHOTS]
    stripped = [f"NEW.{side} {_same()} {head.format(f'OLD.{side}')}" for side in _SNAPSHOTS]
    heads = [f"({one} OR {other})" for one, other in zip(kept, stripped, strict=True)]
    return " AND ".join([*_unchanged(Change, _SNAPSHOTS), *heads, _IS_REDACTED])


def is_redacted_note() -> str:
    """An SQL condition for a trigger. The UPDATE may only remove the note of an entry E. A memory that E edited must be
    redacted, by E or by a later entry."""
    return " AND ".join([*_unchanged(AuditEntry, ("sealed",)), "NEW.sealed IS NULL", _EDITED_A_REDACTED])


# The redacted memories are found by the changes of the redaction's entry, which are indexed. (To search the entry's
# detail for every row takes minutes.) CROSS JOIN makes SQLite use the tables in this order, which is fast.
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
    """The SQL operator that is true if two values are equal or both NULL."""
    return "IS NOT DISTINCT FROM" if connection.vendor == "postgresql" else "IS"


def _unchanged(model: type[models.Model], except_for: tuple[str, ...]) -> list[str]:
    names = (field.column for field in model._meta.concrete_fields if field.column not in except_for)
    return [f"NEW.{name} {_same()} OLD.{name}" for name in names]


def last(agent: Any) -> int:
    """The number of the agent's last redaction, or 0. It is part of the names of seals that a redaction makes invalid.
    So SQL cannot put back what was sealed before. It is in the signed row, so SQL cannot hide the entry."""
    rows = AuditEntry.objects.filter(CONSENT, agent_id=agent.pk, operation=Operation.REDACTED)
    return agent.redacted_seq or rows.order_by("-seq").values_list("seq", flat=True).first() or 0


def whole(agent_id: int, numbers: Iterable[int]) -> set[int]:
    """Those of the numbers whose memories were redacted, not only a version of them."""
    entries = AuditEntry.objects.filter(agent_id=agent_id, operation=Operation.REDACTED)
    seqs = entries.exclude(detail__has_key="version").values("seq")
    changes = Change.objects.filter(agent_id=agent_id, number__among=list(numbers), seq__in=seqs)
    return set(changes.values_list("number", flat=True))


# --- verification


@dataclass(slots=True)
class Redacted:
    """The redacted bodies and notes of one agent, from the entries of its redactions."""

    bodies: dict[int, tuple[int, frozenset[bytes]]] = field(default_factory=dict)  # number → entry, bodies' digests
    notes: dict[int, int] = field(default_factory=dict)  # entry without its note → entry that redacted it

    def add(self, seq: int, detail: Mapping[str, Any]) -> None:
        """Add the bodies and notes that the entry of a redaction lists. If the entry is invalid, add nothing and raise
        one of the errors in `ill_formed`."""
        named = {int(number): frozenset(map(bytes.fromhex, each)) for number, each in detail["redacted"].items()}
        notes = dict.fromkeys(detail["notes"], seq)
        self.bodies |= {number: (seq, self._named(number) | each) for number, each in named.items()}
        self.notes |= notes

    def _named(self, number: int) -> frozenset[bytes]:
        return self.bodies.get(number, (0, frozenset[bytes]()))[1]

    def covers(self, number: int, seq: int, snapshot: bytes) -> bool:
        """Whether this snapshot of this memory in this entry is redacted, or has no body in the redacted trail."""
        by, named = self.bodies.get(number, (0, frozenset()))
        is_listed = not trail.has_body(snapshot) or trail.body_digest(snapshot) in named
        return seq <= by and bool(named) and is_listed

    def accounts_for(self, number: int, head: bytes, digest: bytes) -> bool:
        """Whether a redaction explains why this snapshot has no body."""
        return any(hashlib.sha256(head + body).digest() == digest for body in self._named(number))


def as_detail(removed: Mapping[int, Iterable[bytes]], notes: Sequence[int]) -> dict[str, Any]:
    """The `detail` of a redaction's entry: the digests of the removed bodies of each memory, and the numbers of the
    entries that lost their notes."""
    return {
        "redacted": {str(number): sorted(body.hex() for body in digests) for number, digests in removed.items()},
        "notes": list(notes),
    }


def put_back(agent: Any, rows: Mapping[tuple[int, int], bytes]) -> set[int]:
    """The numbers of those memories whose rows SQL has put back after a redaction. `rows` has the snapshot of each row,
    by its number and version. A row that is not as in the trail may have the words of a redacted version."""
    rows = {place: row for place, row in rows.items() if agent.redacted_seq and trail.has_body(row)}
    if not rows:
        return set()
    numbers, versions = ([place[each] for place in rows] for each in (0, 1))
    changes = Change.objects.filter(agent_id=agent.pk, number__among=numbers, seq__among=versions)
    found = changes.values_list("number", "seq", "after").iterator(chunk_size=2_000)
    right = {(number, seq) for number, seq, after in found if rows.get((number, seq)) == bytes(after or b"")}
    return whole(agent.pk, numbers) | {place[0] for place in rows.keys() - right}
