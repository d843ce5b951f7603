"""The audit trail. It has one entry for each edit, and a MAC chains the entries of each agent. Only this module writes
it.

An entry's MAC covers the previous MAC, the entry's fields and the digests of its snapshots. So a verification decrypts
nothing, and it detects every entry that was altered without the audit key.

The first NUL byte of a snapshot ends its head. The rest is its body. The head is kept; a redaction removes the body
permanently. The digest of the snapshot is computed from the head and the digest of the body. The entry of a redaction
contains the digests of the removed bodies. So the chain can still be verified.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from django.db import models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from audit.bulk import insert_many, streamed
from audit.models import ActorKind, AuditEntry, Change
from config.keyring import keyring

Touch = tuple[int, bytes | None, bytes | None]  # a memory's number, and its snapshots before and after an edit


@dataclass(frozen=True, slots=True)
class Actor:
    """The actor on whose behalf an edit is made. `label` is an id or a name, never content."""

    kind: str
    label: str

    @classmethod
    def agent(cls, label: str = "agent") -> Actor:
        return cls(ActorKind.AGENT, label)

    @classmethod
    def steward(cls, address: str) -> Actor:
        return cls(ActorKind.STEWARD, address)

    @classmethod
    def system(cls, label: str) -> Actor:
        return cls(ActorKind.SYSTEM, label)

    @classmethod
    def operator(cls, label: str) -> Actor:
        return cls(ActorKind.OPERATOR, label)

    @classmethod
    def person(cls, label: str) -> Actor:
        return cls(ActorKind.PERSON, label)


@dataclass(frozen=True)
class Draft:
    """An entry to append. `detail` contains numbers and names, never content. `sealed` is encrypted content.

    `distinct_tokens` is the number of tokens in core memory after the edit. Exact duplicates count once.
    """

    agent_id: int
    tenant_id: int
    agent_label: str
    seq: int
    at: datetime
    actor_kind: str
    actor_label: str
    operation: str
    session: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    sealed: bytes | None = None
    distinct_tokens: int = 0


def append(draft: Draft, previous: bytes, touches: Iterable[Touch]) -> AuditEntry:
    """Write an entry with its changes. `previous` is the MAC of the entry before it.

    Call it in the transaction of the edit, with the agent's row locked. Raises RuntimeError outside a transaction.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("Append an entry in the transaction of its edit.")
    changes = [
        Change(
            agent_id=draft.agent_id,
            seq=draft.seq,
            number=number,
            before=before,
            before_digest=snapshot_digest(before),
            after=after,
            after_digest=snapshot_digest(after),
        )
        for number, before, after in sorted(touches)
    ]
    key = keyring().audit[0]
    entry = AuditEntry(**vars(draft), changes=len(changes), key_id=key.id)
    entry.sealed_digest = None if draft.sealed is None else hashlib.sha256(draft.sealed).digest()
    entry.changes_digest = changes_digest(map(vars, changes))
    entry.mac = entry_mac(key.secret, previous, vars(entry), entry.changes_digest)
    insert_many([entry])
    insert_many(changes)
    return entry


def strip(agent_id: int, numbers: Sequence[int], notes: Sequence[int]) -> None:
    """Permanently remove the bodies of the snapshots of these memories, and the notes of these entries.

    Append the redaction's entry first, in the same transaction. Otherwise a trigger refuses the removal
    (`audit.redactions`).
    """
    heads = {side: SnapshotHead(side) for side in ("before", "after")}
    Change.objects.filter(agent_id=agent_id, number__among=list(numbers)).update(**heads)
    AuditEntry.objects.filter(agent_id=agent_id, seq__among=list(notes)).update(sealed=None)


def strip_version(agent_id: int, number: int, body: bytes, notes: Sequence[int]) -> dict[int, set[str]]:
    """Permanently remove one body of a memory, given by its digest, from all snapshots that have it, and the notes of
    these entries. The rules of `strip` apply. Returns the entries that had it, with "before", "after" or both."""
    strip(agent_id, [], notes)
    rows = Change.objects.filter(agent_id=agent_id, number=number).values_list("seq", "before", "after")
    found: dict[int, set[str]] = {}
    with streamed(rows) as changes:
        for seq, before, after in changes:
            both = (("before", before), ("after", after))
            if sides := {name for name, kept in both if kept and body_digest(bytes(kept)) == body}:
                found[seq] = sides
    for seq, sides in found.items():
        heads = {name: SnapshotHead(name) for name in sides}
        Change.objects.filter(agent_id=agent_id, number=number, seq=seq).update(**heads)
    return found


def entry_mac(secret: bytes, previous: bytes, entry: dict[str, Any], changes: bytes) -> bytes:
    """One HMAC-SHA256 of three values: the previous MAC, the digest of the entry's changes, and the entry's fields as
    canonical JSON."""
    fields = {name: entry[name] for name in _COVERED}
    fields["at"] = entry["at"].isoformat()
    fields["sealed_digest"] = entry["sealed_digest"].hex() if entry["sealed_digest"] else None
    if stored := entry["changes_digest"]:  # older entries have none
        fields["changes_digest"] = stored.hex()
    return hmac.digest(secret, previous + changes + canonical(fields).encode(), "sha256")


_COVERED = (
    *("agent_id", "tenant_id", "agent_label", "seq", "actor_kind", "actor_label"),
    *("operation", "session", "detail", "changes", "distinct_tokens", "key_id"),
)

canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def changes_digest(changes: Iterable[dict[str, Any]]) -> bytes:
    """The SHA-256 of all changes. It covers each memory's number, and the digests of the memory before and after the
    change. The changes must be sorted by memory number."""
    total = hashlib.sha256()
    for change in changes:
        total.update(change["number"].to_bytes(8, "big"))
        total.update(change["before_digest"] or b"\0" * 32)
        total.update(change["after_digest"] or b"\0" * 32)
    return total.digest()


# --- the parts of a snapshot


def snapshot_digest(snapshot: bytes | None) -> bytes | None:
    """The digest of a snapshot whose body was not removed."""
    if snapshot is None:
        return None
    body = snapshot.find(b"\0") + 1 or len(snapshot)
    return hashlib.sha256(snapshot[:body] + hashlib.sha256(snapshot[body:]).digest()).digest()


def body_digest(snapshot: bytes) -> bytes:
    return hashlib.sha256(snapshot[len(snapshot_head(snapshot)) :]).digest()


def snapshot_head(snapshot: bytes) -> bytes:
    """The head of a snapshot, including the NUL byte. A redaction removes everything after it."""
    return snapshot[: snapshot.find(b"\0") + 1] or snapshot


def has_body(snapshot: bytes) -> bool:
    return len(snapshot_head(snapshot)) < len(snapshot)


class SnapshotPart(models.Func):
    """An SQL expression for a part of a snapshot. `sql` has one expression for each database vendor. {0} is replaced by
    the column."""

    sql: ClassVar[dict[str, str]]
    output_field = models.BinaryField()

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper, **_: Any) -> Any:  # type: ignore[override]
        return super().as_sql(compiler, connection, template=self.sql[connection.vendor].format("%(expressions)s"))


class SnapshotHead(SnapshotPart):
    """`snapshot_head`. NULL stays NULL."""

    sql: ClassVar = {
        "sqlite": "substr({0}, 1, instr({0}, x'00'))",
        "postgresql": "substring({0} from 1 for position('\\x00'::bytea in {0}))",
    }
