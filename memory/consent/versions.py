"""The redaction of one version of a memory in a store. The other versions of the memory stay."""

from collections.abc import Sequence

from audit import redactions, trail
from audit.models import Change
from memory.errors import Invalid
from memory.models import Memory, StoreVersion
from memory.writing import edits
from memory.writing.edits import Edit, snapshot
from memory.writing.places import DELETED


def redact(edit: Edit, number: int, version: int, request: int) -> None:
    """Remove the content and the path that a memory got with entry `version`, wherever the trail has them.

    If the memory is discarded and still has them, its row is redacted, too. Raises Invalid if they are the present
    content of the memory.
    """
    [memory] = edits.fetch(edit.agent, [number])
    rows = {row.seq: row for row in StoreVersion.objects.filter(agent_id=edit.agent.pk, number=number)}
    body = _body(rows[version], Change.objects.get(agent_id=edit.agent.pk, number=number, seq=version))
    now = snapshot(memory)
    if trail.body_digest(now) == body:
        require_old(memory, rows[version])
        values = {"sealed": b"", "digest": b"", "store": None, "place": None}
        edit.change(memory, redacted_at=edit.at, **values)
    else:
        edit.put(memory, now, {})  # the database allows the removal only if the entry has a change of this memory
    edit.detail = {"request": request, "version": version} | redactions.as_detail({number: [body]}, [])
    edit.finish()
    stripped = trail.strip_version(edit.agent.pk, number, body)
    mark(edit, [number], [each.seq for each in stripped if each.seq in rows and _body(rows[each.seq], each) == body])


def _body(version: StoreVersion, change: Change) -> bytes:
    """The digest of the content and the path that a version has."""
    return trail.body_digest(bytes((change.before if version.operation == DELETED else change.after) or b""))


def require_old(memory: Memory, version: StoreVersion) -> None:
    """Raise Invalid for the newest version of a memory that is not discarded."""
    newer = StoreVersion.objects.filter(agent_id=memory.agent_id, number=memory.number, seq__gt=version.seq)
    if memory.discarded_at is None and not newer.exists():
        raise Invalid("version", "is the newest one of its memory. Change or delete the memory first")


def mark(edit: Edit, numbers: Sequence[int], entries: Sequence[int] | None = None) -> None:
    """Record that this edit redacts the versions of these memories, or only those that these entries made."""
    rows = StoreVersion.objects.filter(agent_id=edit.agent.pk, number__among=list(numbers), redaction=None)
    rows = rows if entries is None else rows.filter(seq__among=list(entries))
    rows.update(redaction=edit.seq)
