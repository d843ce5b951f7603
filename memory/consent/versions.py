"""The redaction of one version of a memory in a store. The other versions of the memory stay."""

from collections.abc import Iterable, Sequence

from audit import redactions, trail
from audit.models import Change
from memory.errors import Invalid
from memory.models import Agent, Memory, StoreVersion
from memory.writing import edits
from memory.writing.edits import Edit, snapshot


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
    changes = Change.objects.filter(agent_id=edit.agent.pk, number=number, seq__among=sorted(stripped))
    mark(edit, [number], [each.seq for each in changes if _side(each) in stripped[each.seq]])


def body_of(version: StoreVersion) -> bytes:
    """The digest of the content and the path that a version has."""
    return trail.body_digest(_snapshot_of(version))


def content_of(version: StoreVersion) -> bytes:
    """The keyed digest of a version's content."""
    content: bytes = edits.fields_of(_snapshot_of(version))["digest"]
    return content


def _snapshot_of(version: StoreVersion) -> bytes:
    change = Change.objects.get(agent_id=version.agent_id, number=version.number, seq=version.seq)
    return bytes((change.after if _side(change) == "after" else change.before) or b"")


def _side(change: Change) -> str:
    """The snapshot of a change that has the version's content. The trail decides this: SQL could change the version's
    own row."""
    state = edits.fields_of(trail.snapshot_head(bytes(change.after or b"{}")))
    return "after" if state["store"] is not None and state["discarded_at"] is None else "before"


def require_former(memory: Memory, version: StoreVersion) -> None:
    """Raise Invalid for a version with the present content of a memory that is not discarded. Raise Invalid for a
    memory that was in core or in the journal: its words may be in the vault and in prompts."""
    if memory.discarded_at is None and bytes(memory.digest) == content_of(version):
        raise Invalid("version", "has the present content of its memory. Change or delete the memory first")
    states = Change.objects.filter(agent_id=memory.agent_id, number=memory.number, after__isnull=False)
    heads = states.annotate(head=trail.SnapshotHead("after")).values_list("head", flat=True)
    if any(edits.fields_of(bytes(head))["beneath_at"] is None for head in heads):
        raise Invalid("version", f"is of a memory that was not always beneath. {WHOLE}")


WHOLE = "Ask for the removal of the whole memory instead"


def gone(agent: Agent, memories: Iterable[Memory]) -> set[int]:
    """The memories of which nothing is left to redact. If a version was redacted, others may be left in the trail."""
    redacted = {memory.number for memory in memories if memory.redacted_at is not None}
    changes = Change.objects.filter(agent_id=agent.pk, number__among=sorted(redacted))
    sides = changes.values_list("number", "before", "after")
    left = {number for number, *both in sides for side in both if side is not None and trail.has_body(bytes(side))}
    return redacted - left


def mark(edit: Edit, numbers: Sequence[int], entries: Sequence[int] | None = None) -> None:
    """Record that this edit redacts the versions of these memories, or only those that these entries made."""
    rows = StoreVersion.objects.filter(agent_id=edit.agent.pk, number__among=list(numbers), redaction=None)
    rows = rows if entries is None else rows.filter(seq__among=list(entries))
    rows.update(redaction=edit.seq)
