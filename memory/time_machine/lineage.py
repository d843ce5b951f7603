"""The lineage of memories: from which memories a memory was made. Nothing is decrypted."""

from collections.abc import Collection, Iterator

from django.db.models import Q

from audit.models import AuditEntry, Change, Operation
from memory.models import Agent, Memory
from memory.writing.edits import fields_of


def sources(agent: Agent, numbers: Collection[int]) -> set[int]:
    """Return the memories that were merged into one of these, and the memories that one of these replaced."""
    changes = Change.objects.filter(agent_id=agent.pk)
    made = changes.filter(number__among=list(numbers), before_digest__isnull=True)
    merges = AuditEntry.objects.filter(agent_id=agent.pk, seq__in=made.values("seq"), operation=Operation.CONSOLIDATED)
    merged = changes.filter(seq__in=merges.values("seq"), before_digest__isnull=False)
    replaced = _replaced(agent, Q(superseded_by__among=list(numbers)))
    return {*merged.values_list("number", flat=True), *(number for number, _ in replaced)}


def successors(agent: Agent, numbers: Collection[int]) -> set[int]:
    """Return the memories that replaced one of these."""
    return {successor for _, successor in _replaced(agent, Q(number__among=list(numbers)))}


def _replaced(agent: Agent, condition: Q) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the replaced memories, each with the number of its successor. A number that is in the row
    but not in the trail is left out, because SQL can change the row."""
    rows = Memory.objects.of(agent).filter(condition, superseded_by__isnull=False)
    versions = {row.number: (row.version, row.superseded_by or 0) for row in rows.defer("sealed", "digest")}
    seqs = [version for version, _ in versions.values()]
    changes = Change.objects.filter(agent_id=agent.pk, number__among=list(versions), seq__among=seqs)
    for number, seq, after in changes.values_list("number", "seq", "after").iterator(chunk_size=500):
        version, successor = versions[number]
        if seq == version and after is not None and fields_of(bytes(after))["superseded_by"] == successor:
            yield number, successor
