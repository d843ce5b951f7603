"""The redaction of one version of a memory in a store. The other versions of the memory stay."""

from collections.abc import Iterable, Sequence

from audit import redactions, trail
from audit.models import Change
from memory.errors import Invalid
from memory.models import Agent, Memory, StoreVersion
from memory.writing import edits
from memory.writing.edits import Edit, snapshot
from memory.writing.places import DELETED


def redact(edit: Edit, memory: Memory, version: int, request: int, notes: Sequence[int]) -> None:
    """Remove the content and the path that a memory got with entry `version`, wherever the trail has them, and these
    notes. If the memory is discarded and still has them, its row is redacted, too."""
    number = memory.number
    rows = {row.seq: row for row in StoreVersion.objects.filter(agent_id=edit.agent.pk, number=number)}
    body, now = body_of(rows[version]), snapshot(memory)
    if trail.body_digest(now) == body:
        values = {"sealed": b"", "digest": b"", "store": None, "place": None}
        edit.change(memory, redacted_at=edit.at, **values)
    else:
        edit.put(memory, now, {})  # the database allows the removal only if the entry has a change of this memory
    edit.detail = {"request": request, "version": version} | redactions.as_detail({number: [body]}, notes)
    edit.finish()
    stripped = trail.strip_version(edit.agent.pk, number, body, notes)
    mark(edit, [number], [seq for seq, sides in stripped.items() if seq in rows and _side(rows[seq]) in sides])


def body_of(version: StoreVersion) -> bytes:
    """The digest of the content and the path that a version has."""
    rows = Change.objects.filter(agent_id=version.agent_id, number=version.number, seq=version.seq)
    return trail.body_digest(bytes(rows.values_list(_side(version), flat=True).get() or b""))


def _side(version: StoreVersion) -> str:
    """The snapshot of the change that has the version's content."""
    return "before" if version.operation == DELETED else "after"


def require_former(memory: Memory, version: StoreVersion) -> None:
    """Raise Invalid for a version with the present content of a memory that is not discarded. Raise Invalid for a
    memory that was in core or in the journal: its words may be in the vault and in prompts."""
    if memory.discarded_at is None and trail.body_digest(snapshot(memory)) == body_of(version):
        raise Invalid("version", "has the present content of its memory. Change or delete the memory first")
    states = Change.objects.filter(agent_id=memory.agent_id, number=memory.number, after__isnull=False)
    heads = states.annotate(head=trail.SnapshotHead("after")).values_list("head", flat=True)
    if any(edits.fields_of(bytes(head))["beneath_at"] is None for head in heads):
        raise Invalid("version", f"is of a memory that was not always beneath. {WHOLE}")


WHOLE = "Ask for the removal of the whole memory instead"


def gone(agent: Agent, memories: Iterable[Memory]) -> set[int]:
    """The memories of which nothing is left to redact. If a version was redacted, others may be left."""
    redacted = {memory.number for memory in memories if memory.redacted_at is not None}
    rows = StoreVersion.objects.filter(agent_id=agent.pk, number__among=sorted(redacted), redaction=None)
    return redacted - set(rows.values_list("number", flat=True))


def mark(edit: Edit, numbers: Sequence[int], entries: Sequence[int] | None = None) -> None:
    """Record that this edit redacts the versions of these memories, or only those that these entries made."""
    rows = StoreVersion.objects.filter(agent_id=edit.agent.pk, number__among=list(numbers), redaction=None)
    rows = rows if entries is None else rows.filter(seq__among=list(entries))
    rows.update(redaction=edit.seq)
